//! What the status of an enactment is to say, and the patch that makes it so.

use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Map, Value, json};
use tenure_api::nmstate::{
    Applied, AppliedAddress, NodeCondition, condition, condition::reason, mode, set_condition,
};
use tenure_handles::Timestamp;

use super::facts::Facts;
use super::record::Mode;

/// The longest message of a condition.
const LONGEST: usize = 1024;

/// What the status of an enactment is to say about this node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Report {
    /// The generation that it is about.
    pub(super) generation: Option<i64>,
    /// How it went.
    pub(super) outcome: Outcome,
    /// How the node was configured, if it was.
    pub(super) mode: Option<Mode>,
    /// The addresses of the desired state that a dump showed.
    pub(super) addresses: Vec<(String, IpNet)>,
    /// The desired state.
    pub(super) desired: Option<Value>,
    /// How often it was tried in vain.
    pub(super) failures: u32,
}

/// How it went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The node has it.
    Available,
    /// It has it not.
    Failing {
        /// Why not.
        message: String,
        /// Whether it is tried again without anybody's help.
        retrying: bool,
    },
    /// The addresses are off the interfaces for good.
    Released,
}

/// A condition that is to be set.
struct Wanted {
    type_: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Report {
    /// Whether the status says so already.
    pub(super) fn is_said(&self, facts: &Facts) -> bool {
        let said = &facts.said;
        let conditions = self
            .conditions()
            .iter()
            .all(|it| said.condition(it.type_) == Some((it.status, it.reason, &it.message)));
        let applied = said.applied.as_ref() == Some(&self.applied());
        let desired = self.desired.is_none() || said.desired == self.desired;
        applied && (self.outcome == Outcome::Released || (conditions && desired))
    }

    /// The patch of the status.
    pub(super) fn patch(&self, facts: &Facts, now: Timestamp) -> Value {
        let mut conditions = facts.said.conditions.clone();
        for it in self.conditions() {
            let now = Time(now.to_jiff());
            set_condition(
                &mut conditions,
                NodeCondition::new(it.type_, it.status, it.reason, &it.message, now),
            );
        }
        let mut status = json!({
            "conditions": conditions,
            "applied": difference(&json!(facts.said.applied), &json!(self.applied())),
        });
        if let Some(desired) = &self.desired {
            status["desiredState"] = difference(&json!(facts.said.desired), desired);
        }
        if let Some(generation) = self.generation {
            status["retryCount"] = json!({generation.to_string(): self.failures});
        }
        json!({"metadata": {"resourceVersion": facts.version}, "status": status})
    }

    fn applied(&self) -> Applied {
        let address = |(interface, address): &(String, IpNet)| AppliedAddress {
            interface: interface.clone(),
            address: address.to_string(),
        };
        Applied {
            policy_generation: self.generation,
            mode: self.mode.map(|it| match it {
                Mode::Kernel => mode::KERNEL.to_owned(),
                Mode::NetworkManager => mode::NETWORK_MANAGER.to_owned(),
            }),
            addresses: self.addresses.iter().map(address).collect(),
            released: self.outcome == Outcome::Released,
        }
    }

    /// All conditions of an enactment: one is true.
    fn conditions(&self) -> Vec<Wanted> {
        let (true_one, reason, message) = match &self.outcome {
            Outcome::Available => (condition::AVAILABLE, reason::CONFIGURED, self.has()),
            Outcome::Failing { message, retrying: false } => {
                (condition::FAILING, reason::FAILED, shortened(message))
            }
            Outcome::Failing { message, retrying: true } => {
                (condition::FAILING, reason::RETRYING, shortened(message))
            }
            Outcome::Released => (
                condition::ABORTED,
                reason::GIVEN_UP,
                "the addresses were taken off the interfaces".to_owned(),
            ),
        };
        let all = [
            condition::AVAILABLE,
            condition::FAILING,
            condition::PROGRESSING,
            condition::PENDING,
            condition::ABORTED,
        ];
        let of = |type_: &'static str| {
            let is = type_ == true_one;
            let message = if is { message.clone() } else { String::new() };
            Wanted { type_, status: if is { "True" } else { "False" }, reason, message }
        };
        all.into_iter().map(of).collect()
    }

    fn has(&self) -> String {
        let texts: Vec<String> =
            self.addresses.iter().map(|(interface, address)| format!("{interface} has {address}")).collect();
        if texts.is_empty() {
            "the interfaces are as desired".to_owned()
        } else {
            shortened(&texts.join(", "))
        }
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text.to_owned(),
    }
}

/// The merge patch that turns one value into another.
fn difference(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return to.clone() };
    let gone = from.keys().filter(|key| !to.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let kept = to.iter().map(|(key, value)| {
        (key.clone(), from.get(key).map_or_else(|| value.clone(), |before| difference(before, value)))
    });
    Value::Object(gone.chain(kept).collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(outcome: Outcome) -> Report {
        Report {
            generation: Some(2),
            outcome,
            mode: Some(Mode::Kernel),
            addresses: vec![("eth1".to_owned(), "10.10.10.8/24".parse().unwrap())],
            desired: Some(json!({"interfaces": []})),
            failures: 1,
        }
    }

    /// What a server would have after the patch.
    fn patched(facts: &Facts, patch: &Value) -> Facts {
        let mut status = json!({
            "conditions": facts.said.conditions, "applied": facts.said.applied, "desiredState": facts.said.desired,
        });
        merge(&mut status, &patch["status"]);
        let mut after = facts.clone();
        after.said.conditions = serde_json::from_value(status["conditions"].clone()).unwrap();
        after.said.applied = serde_json::from_value(status["applied"].clone()).unwrap();
        after.said.desired = Some(status["desiredState"].clone()).filter(|it| !it.is_null());
        after
    }

    fn merge(into: &mut Value, patch: &Value) {
        let Value::Object(patch) = patch else {
            *into = patch.clone();
            return;
        };
        if !into.is_object() {
            *into = json!({});
        }
        for (key, value) in patch {
            if value.is_null() {
                into.as_object_mut().unwrap().remove(key);
            } else {
                merge(&mut into[key], value);
            }
        }
    }

    #[test]
    fn a_patched_status_says_what_the_report_says_whatever_it_said_before() {
        let failing = |message: &str, retrying| Outcome::Failing { message: message.to_owned(), retrying };
        let mut facts = Facts::default();
        facts.said.desired = Some(json!({"interfaces": [1], "routes": {"config": [], "x": 1}}));
        for outcome in
            [failing("no interface", true), Outcome::Available, failing("no", false), Outcome::Released]
        {
            let report = report(outcome);
            assert!(!report.is_said(&facts));
            facts = patched(&facts, &report.patch(&facts, Timestamp::from_millis(5_000)));
            assert!(report.is_said(&facts), "{facts:?}");
        }
        assert!(facts.said.applied.as_ref().unwrap().released);
    }

    #[test]
    fn a_released_enactment_has_no_addresses() {
        let report = Report { addresses: Vec::new(), desired: None, ..report(Outcome::Released) };
        let patch = report.patch(&Facts::default(), Timestamp::from_millis(0));
        assert_eq!(patch["status"]["applied"]["addresses"], json!([]));
        assert_eq!(patch["status"]["applied"]["released"], json!(true));
    }

    #[test]
    fn long_messages_are_cut() {
        let long = report(Outcome::Failing { message: "é".repeat(5_000), retrying: true });
        let patch = long.patch(&Facts::default(), Timestamp::from_millis(0));
        assert!(patch.to_string().chars().count() < 3_000);
        assert!(long.is_said(&patched(&Facts::default(), &patch)));
    }
}
