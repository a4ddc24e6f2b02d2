//! The plugin's environment and standard input, with no agent to ask.

use std::path::Path;

use serde_json::Value;
use tenure_cni::plugin::{Outcome, Places};
use tenure_cni::{Call, NetworkConfig, Verb, tombstone};

use crate::words::Words;
use crate::{Violation, hold};

pub(crate) fn run(input: &[u8]) -> Result<(), Violation> {
    let words = Words::read(input);
    // The configuration may name any socket of this machine, and this machine's sockets are not ours to call.
    if NetworkConfig::parse(words.stdin).is_ok_and(|config| config.socket.is_some()) {
        return Ok(());
    }
    let directory = tempfile::tempdir().map_err(|error| format!("no place for tombstones: {error}"))?;
    let tombstones = directory.path().join("tombstones");
    let places = Places { socket: &directory.path().join("nobody.sock"), tombstones: &tombstones };
    let outcome =
        tenure_cni::plugin::run("tenure", |name| words.variable(name), words.stdin.to_vec(), places);
    let call = Call::read(|name| words.variable(name), words.stdin.to_vec());
    match &call {
        Ok(call) if call.verb == Verb::Version => {
            let answer = object(&outcome.stdout)?;
            let spoken = answer["supportedVersions"].as_array().is_some_and(|list| !list.is_empty());
            hold(outcome.code == 0 && answer["cniVersion"].is_string() && spoken, || {
                format!("VERSION answered {answer}")
            })
        }
        Ok(call) if call.verb == Verb::Del && outcome.code == 0 => has_tombstone(call, &tombstones),
        // There is no agent, so that nothing else can succeed.
        _ => refusal(&outcome).map(drop),
    }
}

/// A DEL that succeeded without an agent left its tombstone.
fn has_tombstone(call: &Call, tombstones: &Path) -> Result<(), Violation> {
    let left =
        tombstone::read_all(tombstones).map_err(|error| format!("tombstones cannot be read: {error}"))?;
    let [(_, Ok(left))] = &left[..] else { return Err(format!("a DEL left {left:?}")) };
    let same =
        left.container_id == call.container_id && left.ifname == call.ifname && left.config == call.config;
    hold(same, || format!("the tombstone of {call:?} says {left:?}"))
}

/// What the plugin prints when it refuses: an error as the specification has it, that names what it refuses.
pub(crate) fn refusal(outcome: &Outcome) -> Result<Value, Violation> {
    let error = object(&outcome.stdout)?;
    hold(outcome.code == 1, || format!("{error} with exit code {}", outcome.code))?;
    hold(!outcome.stderr.is_empty(), || format!("nothing in the log about {error}"))?;
    let (code, message) =
        (error["code"].as_u64().unwrap_or_default(), error["msg"].as_str().unwrap_or_default());
    hold(error["cniVersion"].is_string() && code > 0 && !message.is_empty(), || {
        format!("{error} is no error of the specification")
    })?;
    named(code, message, error["details"].as_str().unwrap_or_default())?;
    Ok(error)
}

/// A refusal of what was said names the variable or the field, and what would be accepted.
pub(crate) fn named(code: u64, message: &str, details: &str) -> Result<(), Violation> {
    const FIELDS: [&str; 13] = [
        "cniVersion",
        "name",
        "type",
        "socket",
        "prevResult",
        "cni.dev/valid-attachments",
        "network configuration",
        "pool",
        "mtu",
        "mac",
        "gateway",
        "routes",
        "annotation",
    ];
    let names = match code {
        1 => message.contains("cniVersion") || message.contains("address of its family"),
        4 => message.contains("CNI_") || message.contains("container:") || message.contains("interface:"),
        6 | 7 => FIELDS.iter().any(|field| message.contains(field)),
        _ => true,
    };
    let helps =
        !matches!(code, 1 | 4 | 6 | 7) || message.contains("accepted") || details.contains("accepted");
    hold(names && helps, || format!("code {code} names nothing: {message:?}, {details:?}"))
}

/// The JSON object that was printed.
pub(crate) fn object(stdout: &[u8]) -> Result<Value, Violation> {
    let json: Option<Value> = serde_json::from_slice(stdout).ok().filter(Value::is_object);
    json.ok_or_else(|| format!("printed {:?}, which is no JSON object", String::from_utf8_lossy(stdout)))
}
