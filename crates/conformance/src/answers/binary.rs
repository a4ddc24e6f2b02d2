//! The plugin as a process, as far as it needs no agent: `VERSION`, and what is refused before anything is asked.
//!
//! What a node's agent answers is tested with a real agent; here it is skipped.

use std::path::Path;

use serde_json::{Value, json};
use tenure_cni::Failure;
use tenure_cni::plugin::{Places, run};
use tenure_whereabouts::config::{Arguments, Config};

use super::{Answer, Input, refused};

pub(super) fn binary_run(input: &Input) -> Option<Answer> {
    match input.text("cmd") {
        "VERSION" => Some(version(input)),
        "ADD" if input.text("CNI_ARGS") == "no K8S_POD_NAME" => Some(nameless()),
        _ => None,
    }
}

fn version(input: &Input) -> Answer {
    let variable = |name: &str| (name == "CNI_COMMAND").then(|| "VERSION".to_owned());
    let config = match input.text("cniVersion") {
        "" => json!({}),
        version => json!({ "cniVersion": version }),
    };
    // VERSION asks nobody.
    let nowhere = Places { socket: Path::new("/nonexistent"), tombstones: Path::new("/nonexistent") };
    let outcome = run("whereabouts", variable, config.to_string().into_bytes(), nowhere);
    let mut answer: Value = serde_json::from_slice(&outcome.stdout).map_err(refused)?;
    answer["exit"] = json!(outcome.code);
    Ok(answer)
}

/// An ADD of nobody's.
fn nameless() -> Answer {
    let network = json!({
        "cniVersion": "1.0.0", "name": "net", "type": "macvlan",
        "ipam": {"type": "whereabouts", "range": "10.0.0.0/24"}
    });
    let config = Config::load(&network, None, &Arguments::default()).map_err(refused)?;
    match config.pod() {
        Ok(podref) => Err(format!("{podref} was accepted")),
        Err(refusal) => {
            let failure = Failure::from(refusal);
            Ok(json!({"exit": 1, "code": failure.code, "msg": failure.message}))
        }
    }
}
