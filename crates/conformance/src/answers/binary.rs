//! The plugin as a process, under the name `whereabouts`, in front of an agent on an API server of its own.
//!
//! A question says in a few words what is done: `cmd` names verbs (`ADD/DEL` is one after the other, `ADD x2` is two pods),
//! any key of a network's `ipam` is part of the configuration, and `flat_file`, `CNI_ARGS`, `api`, `state`, `node` and
//! `slice` say what is around it. The answer has all that a case may ask for: `exit`, `exits`, `code`, `msg`, `stdout`,
//! `ips`, `result`, addresses by pod or interface, and what of records and reservations is left.

mod bed;
mod question;

use serde_json::{Value, json};

use super::{Answer, Input, refused};
use bed::{Bed, Ended};
use question::{Question, Step};

pub(super) fn binary_run(input: &Input) -> Option<Answer> {
    let question = match Question::read(input.0) {
        Ok(question) => question?,
        Err(problem) => return Some(Err(problem)),
    };
    Some(answer(&question))
}

fn answer(question: &Question) -> Answer {
    let bed = Bed::start(question)?;
    let mut answer = json!({});
    let mut ends: Vec<Ended> = Vec::new();
    for step in question.before() {
        bed.run(step)?;
    }
    bed.bring_about(question)?;
    for step in question.steps() {
        let ended = bed.run(step)?;
        note(&mut answer, step, &ended);
        ends.push(ended);
    }
    bed.mend();
    let last = ends.last().ok_or("nothing is asked for")?;
    // What came first, unless something went wrong later.
    let telling = ends.iter().find(|ended| ended.exit != 0).unwrap_or(last);
    answer["exit"] = json!(telling.exit);
    answer["exits"] = ends.iter().map(|ended| json!(ended.exit)).collect();
    answer["stdout"] = json!(last.stdout);
    answer["later"] = json!(bed.tombstones() > 0);
    if let Ok(printed) = serde_json::from_str::<Value>(&telling.stdout) {
        for key in ["code", "msg", "supportedVersions"] {
            if let Some(value) = printed.get(key) {
                answer[key] = value.clone();
            }
        }
        if telling.exit == 0 {
            answer["ips"] = printed.get("ips").cloned().unwrap_or_else(|| json!([]));
            answer["result"] = printed;
        }
    }
    let left = bed.left().map_err(refused)?;
    answer["pool_entry"] = json!(!left.records.is_empty());
    answer["v4_entry_left"] = json!(left.records.iter().any(|range| !range.contains(':')));
    answer["v6_entry_left"] = json!(left.records.iter().any(|range| range.contains(':')));
    answer["first_range_entry_left"] = json!(left.records.iter().any(|range| question.is_first(range)));
    answer["orip"] = json!(!left.reserved.is_empty());
    answer["orip_for_v4"] = json!(left.reserved.iter().any(|name| !name.contains("--")));
    answer["orip_for_v6"] = json!(left.reserved.iter().any(|name| name.contains("--")));
    Ok(answer)
}

/// What a step says is known by its pod and by its interface.
fn note(answer: &mut Value, step: &Step, ended: &Ended) {
    let printed: Value = serde_json::from_str(&ended.stdout).unwrap_or_default();
    if let Some(address) = printed.pointer("/ips/0/address").or_else(|| printed.pointer("/ip4/ip")) {
        answer[&step.pod] = address.clone();
        answer[&step.interface] = address.clone();
    }
}
