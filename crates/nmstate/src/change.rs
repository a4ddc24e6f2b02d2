//! One change: read the order, check, apply under a checkpoint, let the caller decide.
//!
//! ```text
//! order ──▶ checked ──▶ applied ──commit──▶ committed
//!             │            ├──rollback, end of input──▶ rolled back
//!             ▼            └──timeout──▶ error (NetworkManager has rolled back)
//!           error ◀── not applied, not as desired (nmstate has rolled back)
//! ```

use std::io::BufRead as _;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use nmstate::ErrorKind;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::desired::Desired;
use crate::devices::Seen;
use crate::failure::{Failure, Reason};
use crate::removal::Removal;
use crate::{checkpoint, devices, profiles, say};

/// The longest time for a decision.
const LONGEST: u32 = 3600;

/// What the first line of input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// A desired state.
    Apply,
    /// Addresses and routes to take away.
    Remove,
    /// A desired state, and what goes beside it.
    Replace,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Replacement {
    state: Value,
    remove: Removal,
}

/// The lines of the caller. The sender's end is dropped at the end of input.
pub(crate) struct Decisions(Receiver<String>);

impl Decisions {
    /// Reads standard input, on a thread of its own, so that waiting for it has a limit.
    pub(crate) fn from_input() -> Self {
        let (lines, receiver) = sync_channel(1);
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines() {
                let Ok(line) = line else { return };
                if lines.send(line).is_err() {
                    return;
                }
            }
        });
        Self(receiver)
    }
}

/// Does it. What it answers on the way it writes; an error is for the caller to write.
pub(crate) fn run(order: Order, seconds: &str, decisions: &Decisions) -> Result<(), Failure> {
    let timeout = seconds.parse::<u32>().ok().filter(|seconds| (1..=LONGEST).contains(seconds));
    let timeout = timeout.ok_or_else(|| {
        Failure::new(Reason::Usage, format!("--timeout is {seconds}; it takes seconds, 1 to {LONGEST}"))
    })?;
    let line = decisions.0.recv().map_err(|_| {
        Failure::new(
            Reason::Usage,
            "standard input has ended; its first line is the order, as JSON".to_owned(),
        )
    })?;
    // What can be refused without NetworkManager is refused first.
    let (seen, desired, gone) = match order {
        Order::Apply => {
            let desired = Desired::parse(&line)?;
            (ask(&desired.interfaces())?, desired, None)
        }
        Order::Remove => {
            let removal = Removal::parse(&line)?;
            let seen = ask(&removal.interfaces())?;
            let Some(desired) = removal.desired()? else {
                profiles::check(&removal)?;
                nothing_to_do(decisions, timeout);
                return Ok(());
            };
            (seen, desired, Some(removal))
        }
        Order::Replace => {
            let Replacement { state, remove } = serde_json::from_str(&line).map_err(|error| {
                let message = format!(
                    "the order is not understood: {error}; it is {{\"state\": STATE, \"remove\": REMOVAL}}"
                );
                Failure::new(Reason::Unsupported, message)
            })?;
            let mut interfaces = remove.interfaces();
            let alone = Desired::from_value(state.clone())?;
            interfaces.extend(alone.interfaces());
            let seen = ask(&interfaces)?;
            (seen, remove.beside(state)?, Some(remove))
        }
    };
    desired.check(&seen)?;
    if let Some(other) = seen.checkpoints().first() {
        let message = format!(
            "another change is under way on {} (NetworkManager has {other}): only one is possible at a time; try again \
             when it is committed or rolled back",
            desired.names()
        );
        return Err(Failure::new(Reason::CheckpointOpen, message));
    }
    let checkpoint = apply(desired, timeout)?;
    if let Some(failure) = gone.and_then(|removal| profiles::check(&removal).err()) {
        checkpoint::roll_back(&checkpoint)?;
        return Err(failure);
    }
    say(&json!({ "applied": true }));
    decide(&checkpoint, timeout, decisions)
}

fn ask(interfaces: &[&str]) -> Result<Seen, Failure> {
    let seen = devices::ask(interfaces, devices::LONG)?;
    seen.supported()?;
    Ok(seen)
}

/// Applies and verifies; returns the checkpoint that is still open.
fn apply(desired: Desired, timeout: u32) -> Result<String, Failure> {
    let names = desired.names();
    let mut state = desired.state;
    state.set_commit(false).set_timeout(timeout);
    state.apply().map_err(|error| {
        let (reason, what) = match error.kind() {
            ErrorKind::InvalidArgument | ErrorKind::NotImplementedError | ErrorKind::NotSupportedError => {
                (Reason::Unsupported, "does not support what is desired; correct it")
            }
            // Somebody else was faster after the check above.
            _ if error.msg().contains("CheckpointConflict") => {
                (Reason::CheckpointOpen, "has another change under way; try again when that is decided")
            }
            ErrorKind::PermissionError => {
                (Reason::ApplyFailed, "does not let this program change it; run the agent as root")
            }
            ErrorKind::VerificationError => (
                Reason::VerificationFailed,
                "has applied it, found something else, and restored the state before; the device may not support \
                 it, or another program configures it",
            ),
            _ => (
                Reason::ApplyFailed,
                "could not apply it, and restored the state before; look at `journalctl -u NetworkManager`",
            ),
        };
        Failure::new(reason, format!("{names}: NetworkManager {what}: {}", error.msg()))
    })?;
    let open = devices::ask(&[], devices::LONG)?;
    let [checkpoint] = open.checkpoints() else {
        let message = format!(
            "{names}: applied, but NetworkManager has {} checkpoints and not one: it was restarted, or another program \
             changes the network; look at the interface before trying again",
            open.checkpoints().len()
        );
        return Err(Failure::new(Reason::TimedOut, message));
    };
    // nmstate took some of the time.
    checkpoint::restart_timeout(checkpoint, timeout)?;
    Ok(checkpoint.clone())
}

/// Waits for the caller's decision and follows it.
fn decide(checkpoint: &str, timeout: u32, decisions: &Decisions) -> Result<(), Failure> {
    match decisions.0.recv_timeout(Duration::from_secs(timeout.into())) {
        Ok(word) if word.trim() == "commit" => {
            checkpoint::commit(checkpoint)?;
            say(&json!({ "committed": true }));
            Ok(())
        }
        Ok(word) if word.trim() == "rollback" => rolled_back(checkpoint),
        Ok(word) => {
            checkpoint::roll_back(checkpoint)?;
            let message =
                format!("the decision is {word:?}; it must be commit or rollback, so this was rolled back");
            Err(Failure::new(Reason::Usage, message))
        }
        Err(RecvTimeoutError::Disconnected) => rolled_back(checkpoint),
        Err(RecvTimeoutError::Timeout) => {
            // NetworkManager does it, too, at this moment: which of the two comes first does not matter.
            let _ = checkpoint::roll_back(checkpoint);
            let message = format!("no decision came within {timeout} s: NetworkManager has rolled back");
            Err(Failure::new(Reason::TimedOut, message))
        }
    }
}

/// What shall go is gone already: there is nothing to commit, and nothing to roll back.
fn nothing_to_do(decisions: &Decisions, timeout: u32) {
    say(&json!({ "applied": true }));
    match decisions.0.recv_timeout(Duration::from_secs(timeout.into())) {
        Ok(word) if word.trim() == "commit" => say(&json!({ "committed": true })),
        _ => say(&json!({ "rolledBack": true })),
    }
}

fn rolled_back(checkpoint: &str) -> Result<(), Failure> {
    checkpoint::roll_back(checkpoint)?;
    say(&json!({ "rolledBack": true }));
    Ok(())
}
