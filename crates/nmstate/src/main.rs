//! `tenure-nmstate`: configures interfaces through NetworkManager, for the node agent, which starts it for one change.
//!
//! - `managed INTERFACE...` says on one line what NetworkManager is and whether it manages these interfaces; within
//!   two seconds, also when there is no NetworkManager.
//! - `apply --timeout SECONDS` reads a desired state of nmstate from the first line of standard input and applies it
//!   with an open checkpoint. It writes one line; then it reads `commit` or `rollback`, does that, and writes one more.
//! - `remove --timeout SECONDS` is the same for a list of addresses and routes to take away.
//! - `replace --timeout SECONDS` is the same for both at once: `{"state": STATE, "remove": REMOVAL}`.
//! - `show` writes the configuration that NetworkManager runs, as a state of nmstate.
//!
//! A change that is not committed is rolled back: by this program when its input ends, or by NetworkManager itself
//! when the timeout is over, whatever happened to this program and to its caller.

mod bus;
mod change;
mod checkpoint;
mod desired;
mod devices;
mod failure;
mod log;
mod profiles;
mod removal;

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use serde_json::{Value, json};

use change::{Decisions, Order};
use failure::{Failure, Reason};

const USAGE: &str = "usage: tenure-nmstate managed INTERFACE... | tenure-nmstate apply --timeout SECONDS | \
                     tenure-nmstate remove --timeout SECONDS | tenure-nmstate replace --timeout SECONDS | tenure-nmstate show";

/// Where nmstate and its D-Bus client look for the address of the system bus.
const BUS_VARIABLE: &str = "DBUS_SYSTEM_BUS_ADDRESS";
/// The address on every host. By default they take one below `/var/run`, which the image does not have.
const BUS: &str = "unix:path=/run/dbus/system_bus_socket";

fn main() -> ExitCode {
    log::start();
    if std::env::var_os(BUS_VARIABLE).is_none() {
        // A program may not change its own environment, but it may start over with another one.
        let error = std::env::current_exe().map_or_else(
            |error| error,
            |own| Command::new(own).args(std::env::args_os().skip(1)).env(BUS_VARIABLE, BUS).exec(),
        );
        say(&Failure::new(Reason::Usage, format!("cannot start over with {BUS_VARIABLE}={BUS}: {error}"))
            .line());
        return ExitCode::FAILURE;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["managed", interfaces @ ..] => {
            say(&devices::ask(interfaces, devices::SHORT)
                .map_or_else(|failure| failure.as_answer(interfaces), |seen| seen.answer(interfaces)));
            Ok(())
        }
        ["apply", "--timeout", seconds] => change::run(Order::Apply, seconds, &Decisions::from_input()),
        ["remove", "--timeout", seconds] => change::run(Order::Remove, seconds, &Decisions::from_input()),
        ["replace", "--timeout", seconds] => change::run(Order::Replace, seconds, &Decisions::from_input()),
        ["show"] => show(),
        _ => Err(Failure::new(Reason::Usage, USAGE.to_owned())),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say(&failure.line());
            ExitCode::FAILURE
        }
    }
}

fn show() -> Result<(), Failure> {
    devices::ask(&[], devices::LONG)?.supported()?;
    let state = removal::current()?;
    let state = serde_json::to_value(&state).map_err(|error| {
        Failure::new(Reason::ApplyFailed, format!("the current state cannot be written as JSON: {error}"))
    })?;
    say(&json!({ "state": state }));
    Ok(())
}

/// Writes one line for the caller. A caller that is gone reads nothing and decides nothing: what is open is rolled back.
fn say(line: &Value) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
