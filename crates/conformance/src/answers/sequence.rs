//! Networks and operations in order → what each answers. The API objects are in memory.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tenure_api::whereabouts::{IPPool, IPPoolSpec};
use tenure_handles::Timestamp;
use tenure_whereabouts::config::{Arguments, Config};
use tenure_whereabouts::ledger::memory::Memory;
use tenure_whereabouts::ledger::{Answer as Said, PoolId, Request, Want, Who};

use super::{Answer, Input, refused};

/// The operations stand beside their answers, or are implied by relations between those.
pub(super) fn sequence(input: &Input, expect: &Value) -> Answer {
    let mut cluster = Cluster { memory: Memory::default(), version: version(input) };
    let networks = networks(input);
    if let Some(relations) = expect.get("relations").and_then(Value::as_array) {
        return relate(&mut cluster, &networks, relations);
    }
    let steps = input.get("steps").or_else(|| expect.get("steps")).and_then(Value::as_array);
    let steps = steps.ok_or("neither steps nor relations are given")?;
    let answers: Vec<Value> = steps.iter().map(|step| cluster.step(&networks, &Input(step))).collect();
    Ok(json!({ "steps": answers }))
}

/// One ADD on a pool that somebody else has filled.
pub(super) fn preloaded(input: &Input) -> Answer {
    let mut cluster = Cluster { memory: Memory::default(), version: version(input) };
    let ipam = input.get("ipam").cloned().unwrap_or_default();
    let (namespace, pod) = input.text("pod").split_once('/').unwrap_or(("", input.text("pod")));
    let config = cluster.config(&ipam, namespace, pod)?;
    let range = config.ranges.first().ok_or("there is no range")?.cidr();
    let allocations = input.get("pool_allocations").cloned().unwrap_or_else(|| json!({}));
    let spec = IPPoolSpec {
        range: range.to_string(),
        allocations: serde_json::from_value(allocations).map_err(refused)?,
    };
    let name = PoolId::shared(&config.network, range).name().map_err(refused)?;
    cluster.memory.put_pool(IPPool::new(&name, spec));
    let who = who(&config, input);
    Ok(json!({ "ips": cluster.add(&config, who)? }))
}

/// The configuration of a network with this `ipam`, as a pod's ADD brings it.
pub(super) fn config(version: &str, ipam: &Value, namespace: &str, pod: &str) -> Result<Config, String> {
    let mut ipam = ipam.clone();
    ipam["type"] = json!("whereabouts");
    let network = json!({"cniVersion": version, "name": "net", "type": "macvlan", "ipam": ipam});
    let arguments = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={pod}");
    Config::load(&network, None, &Arguments::parse(&arguments).map_err(refused)?).map_err(refused)
}

fn version(input: &Input) -> String {
    Some(input.text("cniVersion")).filter(|version| !version.is_empty()).unwrap_or("0.3.1").to_owned()
}

/// `ipam` alone is the network without a name.
fn networks(input: &Input) -> BTreeMap<String, Value> {
    match input.get("networks").and_then(Value::as_object) {
        Some(networks) => networks.iter().map(|(name, ipam)| (name.clone(), ipam.clone())).collect(),
        None => BTreeMap::from([(String::new(), input.get("ipam").cloned().unwrap_or_default())]),
    }
}

fn who(config: &Config, step: &Input) -> Who {
    let or = |key: &str, default: String| {
        let text = step.text(key);
        if text.is_empty() { default } else { text.to_owned() }
    };
    Who {
        id: or("id", format!("container-{}", config.arguments.pod_name)),
        podref: config.podref(),
        uid: config.arguments.pod_uid.clone(),
        ifname: or("ifname", "eth0".to_owned()),
    }
}

/// The objects of a cluster, and the version its networks are in.
struct Cluster {
    memory: Memory,
    version: String,
}

impl Cluster {
    fn config(&self, ipam: &Value, namespace: &str, pod: &str) -> Result<Config, String> {
        config(&self.version, ipam, namespace, pod)
    }

    fn step(&mut self, networks: &BTreeMap<String, Value>, step: &Input) -> Value {
        let done = networks.get(step.text("net")).ok_or_else(|| "there is no such network".to_owned());
        let done = done.and_then(|ipam| {
            let config = self.config(ipam, "default", step.text("pod"))?;
            let who = who(&config, step);
            match step.text("op") {
                "ADD" => self.add(&config, who).map(|ips| ("ips", ips)),
                "DEL" => self.serve(&config, Request::release(who, &config)).map(|_| ("ok", json!(true))),
                other => Err(format!("there is no operation {other:?}")),
            }
        });
        let mut answer = step.0.clone();
        for key in ["ips", "ok", "error", "error_prefix"] {
            answer.as_object_mut().map(|answer| answer.remove(key));
        }
        match done {
            Ok((key, value)) => answer[key] = value,
            Err(error) => answer["error"] = json!(error),
        }
        answer
    }

    fn add(&mut self, config: &Config, who: Who) -> Answer {
        config.pod().map_err(refused)?;
        let request = Request::hold(who, Want::of(config, &[]));
        match self.serve(config, request)? {
            Said::Held(addresses) => {
                let result = config.result(&addresses);
                Ok(result.ips.iter().map(|ip| json!(ip)).collect())
            }
            Said::Refused(refusal) => Err(refusal.to_string()),
            other => Err(format!("{other:?}")),
        }
    }

    fn serve(&mut self, config: &Config, request: Request) -> Result<Said, String> {
        let mut answers = self.memory.serve(&config.network, vec![request], Timestamp::default());
        answers.pop().ok_or_else(|| "no answer".to_owned())
    }
}

/// `ip(a,p1)==ip(b,p2)`: ADDs in the order in which they are mentioned, and those relations that hold.
fn relate(cluster: &mut Cluster, networks: &BTreeMap<String, Value>, relations: &[Value]) -> Answer {
    let mut given: BTreeMap<String, Value> = BTreeMap::new();
    let mut hold = Vec::new();
    for relation in relations {
        let text = relation.as_str().unwrap_or_default();
        let (left, equal, right) = text
            .split_once("==")
            .map(|(left, right)| (left, true, right))
            .or_else(|| text.split_once("!=").map(|(left, right)| (left, false, right)))
            .ok_or_else(|| format!("{text:?} is no relation"))?;
        let mut ip = |term: &str| {
            let term = term.trim();
            if let Some(known) = given.get(term) {
                return Ok(known.clone());
            }
            let inside = term.strip_prefix("ip(").and_then(|term| term.strip_suffix(')'));
            let (net, pod) =
                inside.and_then(|term| term.split_once(',')).ok_or("ip(network,pod) is expected")?;
            let answer =
                cluster.step(networks, &Input(&json!({"op": "ADD", "net": net.trim(), "pod": pod.trim()})));
            let address = answer["ips"][0]["address"].as_str().unwrap_or_default();
            let address = json!(address.split('/').next());
            given.insert(term.to_owned(), address.clone());
            Ok::<_, String>(address)
        };
        if (ip(left)? == ip(right)?) == equal {
            hold.push(relation.clone());
        }
    }
    Ok(json!({ "relations": hold }))
}
