//! The results that container runtimes keep of their CNI calls: libcni's cache. A file exists from the end of
//! an ADD to the end of the DEL, and names the holder of the addresses.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::Value;
use tenure_cni::CniResult;
use tenure_ipam::Address;

use crate::key::{HoldKey, Pod};
use crate::node::Use;

/// The kind that every file of the cache names.
const KIND: &str = "cniCacheV1";
/// Runtimes and meta-plugins have their own directories below the usual one.
const DEEPEST: usize = 3;
/// No result is larger.
const LARGEST: u64 = 1 << 20;

/// All results below a directory; empty if it does not exist.
pub(super) fn read(directory: &Path) -> io::Result<Vec<Use>> {
    let mut uses = Vec::new();
    walk(directory, DEEPEST, &mut uses)?;
    Ok(uses)
}

fn walk(directory: &Path, depth: usize, uses: &mut Vec<Use>) -> io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        // Links can lead anywhere; a file that disappears meanwhile does not matter.
        match entry.metadata() {
            Ok(is) if is.is_dir() && depth > 1 => walk(&entry.path(), depth - 1, uses)?,
            Ok(is) if is.is_file() && is.len() <= LARGEST => match fs::read(entry.path()) {
                Ok(bytes) => uses.extend(serde_json::from_slice(&bytes).ok().as_ref().and_then(of_file)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            },
            _ => {}
        }
    }
    Ok(())
}

/// The addresses in a file; `None` if it is not a result or has no address.
fn of_file(file: &Value) -> Option<Use> {
    let text = |key: &str| file.get(key).and_then(Value::as_str).unwrap_or_default();
    if text("kind") != KIND {
        return None;
    }
    let result = CniResult::from_json(file.get("result")?).ok()?;
    let address = |text: &str| text.split('/').next().unwrap_or_default().parse().ok();
    let addresses: Vec<Address> = result.ips.iter().filter_map(|ip| address(&ip.address)).collect();
    let pairs = file.get("cniArgs").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let argument = |name: &str| {
        let pair = pairs.iter().find(|pair| pair.get(0).and_then(Value::as_str) == Some(name));
        pair.and_then(|pair| pair.get(1)?.as_str()).unwrap_or_default().to_owned()
    };
    (!addresses.is_empty()).then(|| Use {
        addresses,
        key: HoldKey::new(text("networkName"), text("containerId"), text("ifName")).ok(),
        pod: Pod {
            namespace: argument("K8S_POD_NAMESPACE"),
            name: argument("K8S_POD_NAME"),
            uid: argument("K8S_POD_UID"),
        },
        netns: text("netns").to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_runtimes_keep_is_read_wherever_it_is_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read(&directory.path().join("nowhere")).unwrap(), []);
        let results = directory.path().join("multus/results");
        fs::create_dir_all(&results).unwrap();
        let file = json!({
            "kind": KIND, "containerId": "c1", "ifName": "net1", "networkName": "lan", "netns": "/run/netns/c1",
            "cniArgs": [["IgnoreUnknown", "1"], ["K8S_POD_NAMESPACE", "shop"], ["K8S_POD_NAME", "web-0"]],
            "result": {"cniVersion": "1.0.0", "ips": [{"address": "10.2.0.5/24"}, {"address": "fd01::5/64"}]},
        });
        fs::write(results.join("lan-c1-net1"), file.to_string()).unwrap();
        for (name, text) in
            [("last_reserved_ip.0", "10.2.0.9"), ("other", "{}"), ("none", r#"{"kind":"cniCacheV1"}"#)]
        {
            fs::write(results.join(name), text).unwrap();
        }
        let read = read(directory.path()).unwrap();
        let [used] = &read[..] else { panic!("{read:?}") };
        assert_eq!(used.key.as_ref().unwrap().to_string(), "lan/c1/net1");
        assert_eq!((used.pod.name.as_str(), used.netns.as_str()), ("web-0", "/run/netns/c1"));
        let addresses: Vec<String> = used.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.2.0.5", "fd01::5"]);
    }
}
