//! A question to the plugin, in the few words that a case file has for it.

use serde_json::{Map, Value, json};

/// Keys of a question that are not part of the network's `ipam`.
const AROUND: [&str; 9] =
    ["cmd", "cniVersion", "flat_file", "CNI_ARGS", "api", "state", "node", "slice", "prevResult"];
const VERBS: [&str; 6] = ["ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION"];

/// What is asked.
#[derive(Debug)]
pub(super) struct Question {
    steps: Vec<Step>,
    before: Vec<Step>,
    pub(super) ipam: Map<String, Value>,
    pub(super) version: String,
    /// The flat file's text; nothing without one.
    pub(super) flat_file: Option<String>,
    /// What goes wrong between agent and API server.
    pub(super) fault: Option<Fault>,
    pub(super) state: String,
    /// This node's slice; nothing if it has none.
    pub(super) slice: Option<String>,
}

/// One run of the plugin.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) verb: String,
    pub(super) pod: String,
    pub(super) interface: String,
    /// `CNI_ARGS`; the usual ones if nothing is said.
    pub(super) arguments: Option<String>,
    /// The network's `ipam`, where it is not the question's.
    pub(super) ipam: Option<Map<String, Value>>,
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The HTTP method; every one if it is empty.
    pub(super) method: String,
    /// The resource; every one if it is empty.
    pub(super) resource: String,
    /// The answer; none at all if there is no code.
    pub(super) code: Option<u16>,
}

impl Question {
    /// Reads a question; `None` for what is not understood.
    pub(super) fn read(input: &Value) -> Result<Option<Self>, String> {
        let text = |key: &str| input.get(key).and_then(Value::as_str).unwrap_or_default();
        let cmd = text("cmd");
        let fields = input.as_object().ok_or("the question is no object")?;
        let mut ipam: Map<String, Value> =
            fields.iter().filter(|(key, _)| !AROUND.contains(&key.as_str())).map(own).collect();
        let dual = cmd.contains("dual-stack");
        if !ipam.contains_key("range") {
            ipam.insert("range".to_owned(), json!("10.0.0.0/24"));
        }
        let v4_only = ipam.clone();
        if dual && !ipam.contains_key("ipRanges") {
            let range = if text("state").contains("exhausted") { "fd00::/126" } else { "fd00::/120" };
            ipam.insert("ipRanges".to_owned(), json!([{ "range": range }]));
        }
        let Some(mut steps) = steps(cmd) else { return Ok(None) };
        let arguments = match text("CNI_ARGS") {
            "" => None,
            said if said.starts_with("no ") => Some("K8S_POD_NAMESPACE=ns".to_owned()),
            said => Some(said.to_owned()),
        };
        for step in &mut steps {
            step.arguments.clone_from(&arguments);
        }
        let mut before = Vec::new();
        let first = steps.first().cloned().ok_or("cmd names no verb")?;
        let needs_add = ["DEL", "CHECK", "GC"].contains(&first.verb.as_str()) || cmd.starts_with("re-ADD");
        if needs_add {
            // A re-ADD's first ADD was of the network as it was before.
            let earlier = cmd.starts_with("re-ADD").then_some(v4_only);
            before.push(Step { verb: "ADD".to_owned(), ipam: earlier, ..first });
        }
        let newest = steps.iter().any(|step| ["GC", "STATUS"].contains(&step.verb.as_str()));
        let version = match text("cniVersion") {
            "" if newest => "1.1.0",
            "" => "1.0.0",
            said => said,
        };
        let flat_file = match fields.get("flat_file") {
            None | Some(Value::Null) => None,
            Some(Value::String(said)) if said == "absent" => None,
            Some(Value::String(said)) => Some(said.clone()),
            Some(object) => Some(object.to_string()),
        };
        let nowhere = text("node").contains("not in");
        let slice = (!nowhere).then(|| text("slice").to_owned());
        Ok(Some(Self {
            steps,
            before,
            ipam,
            version: version.to_owned(),
            flat_file,
            fault: Fault::read(text("api")),
            state: text("state").to_owned(),
            slice,
        }))
    }

    /// What is done before the question begins.
    pub(super) fn before(&self) -> &[Step] {
        &self.before
    }

    /// What is asked, in order.
    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The ranges of the network, as they are written.
    pub(super) fn ranges(&self) -> Vec<String> {
        let first = self.ipam.get("range").and_then(Value::as_str).map(str::to_owned);
        let more = self.ipam.get("ipRanges").and_then(Value::as_array).into_iter().flatten();
        let more = more.filter_map(|it| it.get("range").and_then(Value::as_str).map(str::to_owned));
        first.into_iter().chain(more).filter(|range| !range.is_empty()).collect()
    }

    /// Whether this is the network of the first range.
    pub(super) fn is_first(&self, range: &str) -> bool {
        let first = self.ranges().into_iter().next().unwrap_or_default();
        tenure_ipam::Notation::LeadingZeros.range(&first).is_ok_and(|it| it.cidr.to_string() == range)
    }
}

impl Fault {
    fn read(said: &str) -> Option<Self> {
        if said.is_empty() {
            return None;
        }
        let word = |words: &[(&str, &str)]| {
            let found = words.iter().find(|(word, _)| said.contains(word));
            found.map_or_else(String::new, |(_, meaning)| (*meaning).to_owned())
        };
        let resource = word(&[
            ("NodeSlicePool", "nodeslicepools"),
            ("IPPool", "ippools"),
            ("OverlappingRangeIPReservation", "overlappingrangeipreservations"),
            ("ORIP", "overlappingrangeipreservations"),
            ("Lease", "leases"),
        ]);
        let verbs = [
            ("PATCH", "PATCH"),
            ("POST", "POST"),
            ("PUT", "PUT"),
            ("DELETE", "DELETE"),
            ("GET", "GET"),
            ("LIST", "GET"),
        ];
        let code = said.split(|c: char| !c.is_ascii_digit()).find_map(|part| part.parse().ok());
        Some(Self { method: word(&verbs), resource, code })
    }
}

/// `ADD net1 on 10.0.0.0/24, then ADD net2 of the SAME pod on 10.0.0.0/28`, `ADD x2`, `ADD/DEL`, `re-ADD of …`.
fn steps(cmd: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    for (place, clause) in cmd.split(", then ").enumerate() {
        let words: Vec<&str> = clause.split_whitespace().collect();
        let verbs = words.first()?.trim_start_matches("re-");
        let times: usize = words.iter().find_map(|word| word.strip_prefix('x')?.parse().ok()).unwrap_or(1);
        let interface = words.iter().find(|word| word.starts_with("net")).map_or("net1", |word| *word);
        let range = words.iter().position(|word| *word == "on").and_then(|at| words.get(at + 1));
        let same = clause.contains("SAME pod") || place == 0;
        for verb in verbs.split('/') {
            if !VERBS.contains(&verb) {
                return None;
            }
            for pod in 1..=times {
                let pod = if same { pod } else { pod + place };
                steps.push(Step {
                    verb: verb.to_owned(),
                    pod: format!("pod{pod}"),
                    interface: interface.to_owned(),
                    arguments: None,
                    ipam: range.map(|range| Map::from_iter([("range".to_owned(), json!(range))])),
                });
            }
        }
    }
    Some(steps)
}

fn own((key, value): (&String, &Value)) -> (String, Value) {
    (key.clone(), value.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_understood() {
        let read = |input: &Value| Question::read(input).unwrap().unwrap();
        let two = read(&json!({"cmd": "ADD x2", "range": "10.0.0.0/24"}));
        assert_eq!(two.steps().iter().map(|step| step.pod.as_str()).collect::<Vec<_>>(), ["pod1", "pod2"]);
        let then =
            read(&json!({"cmd": "ADD net1 on 10.0.0.0/24, then ADD net2 of the SAME pod on 10.0.0.0/28"}));
        let named: Vec<_> = then.steps().iter().map(|it| (it.pod.as_str(), it.interface.as_str())).collect();
        assert_eq!(named, [("pod1", "net1"), ("pod1", "net2")]);
        let fault = read(&json!({"cmd": "ADD", "api": "IPPool PATCH answers 500"})).fault.unwrap();
        assert_eq!(
            (fault.method.as_str(), fault.resource.as_str(), fault.code),
            ("PATCH", "ippools", Some(500))
        );
        let del = read(&json!({"cmd": "DEL dual-stack"}));
        assert_eq!((del.before().len(), del.ranges().len()), (1, 2));
        assert!(Question::read(&json!({"cmd": "DANCE"})).unwrap().is_none());
    }
}
