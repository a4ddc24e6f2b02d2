//! Runs the scenarios of egress with the datapaths named as arguments, the client's and the gateway's, and says what came
//! of each: what a virtual machine with another kernel runs. With `coil` as the client's, the other end is made as Coil makes it.

use std::io::{self, Write as _};
use std::process::ExitCode;

use tenure_tests::egress::{coil, datapath, scenarios};

fn main() -> io::Result<ExitCode> {
    let mut output = io::stdout().lock();
    let mut arguments = std::env::args().skip(1);
    let names = [arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default()];
    let only = arguments.next();
    let mut failed = false;
    if names[0] != "coil"
        && let Ok(found) = datapath(&names[0])
    {
        writeln!(output, "{} is {}: {}", names[0], found.name(), found.reason())?;
    }
    let is_asked = |text: &str| only.as_ref().is_none_or(|only| text.contains(only.as_str()));
    let mut say = |text: &str, outcome: anyhow::Result<()>| match outcome {
        Ok(()) => writeln!(output, "{} to {}: {text}: ok", names[0], names[1]),
        Err(error) => {
            failed = true;
            writeln!(output, "{} to {}: {text}: FAILED: {error:#}", names[0], names[1])
        }
    };
    if names[0] == "coil" {
        for (text, scenario) in coil::ALL.into_iter().filter(|(text, _)| is_asked(text)) {
            say(text, datapath(&names[1]).and_then(|mut ours| scenario(&mut ours)))?;
        }
        return Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS });
    }
    for (text, scenario) in scenarios::ALL.into_iter().filter(|(text, _)| is_asked(text)) {
        let [client, gateway] = [datapath(&names[0]), datapath(&names[1])];
        let outcome = match (client, gateway) {
            (Ok(mut client), Ok(mut gateway)) => scenario(&mut client, &mut gateway),
            (Err(error), _) | (_, Err(error)) => Err(error),
        };
        say(text, outcome)?;
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
