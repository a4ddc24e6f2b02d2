//! What egress has made in a pod's namespace, as `ip` shows it.

use serde_json::Value;

use crate::agent::Pod;

/// The rules of a pod: priority, destination if there is one, table.
pub fn rules(pod: &Pod, family: &str) -> Vec<String> {
    let text = |rule: &Value| {
        let to = rule["dst"].as_str().map_or_else(String::new, |to| format!(" to {to}/{}", rule["dstlen"]));
        format!("{}{to} {}", rule["priority"], rule["table"].as_str().unwrap_or_default())
    };
    let rules = pod.network.namespace().ip_json(&[family, "rule", "show"]).unwrap();
    let usual = ["0 local", "32766 main", "32767 default"];
    let texts = rules.as_array().unwrap().iter().map(text);
    texts.filter(|rule| !usual.contains(&rule.as_str())).collect()
}

/// The destinations in a table of a pod.
pub fn table(pod: &Pod, family: &str, id: &str) -> Vec<String> {
    // "FIB table does not exist": nothing was ever in it.
    let routes = pod.network.namespace().ip_json(&[family, "route", "show", "table", id]);
    let routes = routes.ok().and_then(|routes| routes.as_array().cloned()).unwrap_or_default();
    routes.iter().map(|route| route["dst"].as_str().unwrap().to_owned()).collect()
}

/// The devices of tunnels of a pod, and the neighbours that stand for gateways.
fn tunnels(pod: &Pod) -> usize {
    let count = |arguments: &[&str], key: &str, prefix: &str| {
        let all = pod.network.namespace().ip_json(arguments).unwrap();
        let texts = all.as_array().unwrap().iter().filter_map(|it| it[key].as_str());
        texts.filter(|text| text.starts_with(prefix)).count()
    };
    count(&["link", "show"], "ifname", "fou") + count(&["neighbour", "show"], "lladdr", "0e:54:")
}

/// Whether nothing of egress is in a pod.
pub fn is_plain(pod: &Pod) -> bool {
    ["-4", "-6"].iter().all(|family| rules(pod, family).is_empty()) && tunnels(pod) == 0
}
