//! The peer that is there when somebody gives its program: Whereabouts' CNI plugin, called as Multus calls it, with the flat
//! file that it insists on, on a host of its own and on the same API server as ours.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::caller::{self, Caller};
use super::cluster::Cluster;
use crate::host::machine::Machine;
use crate::host::way::Way;

/// What is accepted.
const EXPECTED: &str =
    "accepted by --peer is the file of Whereabouts' CNI plugin, `whereabouts`, which can be executed here";

/// A Whereabouts on a host.
pub(super) struct Peer {
    pub(super) caller: Caller,
    way: Way,
    /// Configurations by the namespace that their objects are in.
    networks: BTreeMap<String, Value>,
    directory: tempfile::TempDir,
}

impl Peer {
    /// So many records fit into the one object in which it keeps a range.
    pub(super) const MOST_HELD: usize = 5_000;

    /// Prepares a host for the program, and asks it for its version.
    pub(super) fn start(cluster: &Cluster, program: &Path) -> Result<Self> {
        ensure!(program.is_file(), "{} is no file; {EXPECTED}", program.display());
        let program = program.canonicalize().context(EXPECTED)?;
        let machine = Machine::start("peer")?;
        let way = Way::to(&cluster.plane, &cluster.runtime, &machine)?;
        let mut caller = Caller::new("Whereabouts", machine, &program)?;
        let asked = caller.call("VERSION", &json!({"cniVersion": "1.0.0"}), &[caller::sandbox(0)], 1);
        asked.with_context(|| format!("{} does not answer VERSION; {EXPECTED}", program.display()))?;
        Ok(Self { caller, way, networks: BTreeMap::new(), directory: tempfile::tempdir()? })
    }

    /// The configuration of a network whose objects are in a namespace of their own, made at the first time.
    ///
    /// The namespace is that of the kubeconfig's context.
    pub(super) fn network(&mut self, cluster: &Cluster, namespace: &str, mut config: Value) -> Result<Value> {
        if let Some(known) = self.networks.get(namespace) {
            return Ok(known.clone());
        }
        cluster.namespace(namespace)?;
        let kubeconfig = self.directory.path().join(format!("{namespace}.kubeconfig"));
        self.way.kubeconfig(&cluster.plane, Some(namespace), &kubeconfig)?;
        let flat_file = self.directory.path().join(format!("{namespace}.conf"));
        std::fs::write(&flat_file, flat(&kubeconfig).to_string())?;
        point(&mut config, &kubeconfig, &flat_file);
        self.networks.insert(namespace.to_owned(), config.clone());
        // Its pool is made by the first call.
        let (added, _) = self.caller.add(&config, 1, 1)?;
        self.caller.del(&config, &added, 1)?;
        Ok(config)
    }
}

/// What of a node's configuration is in no network's: it insists on a file with that.
pub(crate) fn flat(kubeconfig: &Path) -> Value {
    let kubernetes = json!({"kubeconfig": kubeconfig});
    // What it says is not read, and it says much unless it is told not to.
    json!({"datastore": "kubernetes", "kubernetes": kubernetes, "log_level": "error"})
}

/// Says in a network's configuration where the API server and the flat file are.
pub(crate) fn point(config: &mut Value, kubeconfig: &Path, flat_file: &Path) {
    config["ipam"]["kubernetes"] = json!({"kubeconfig": kubeconfig});
    config["ipam"]["configuration_path"] = json!(flat_file);
    config["ipam"]["log_level"] = json!("error");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::whereabouts::{SHARED, network};

    #[test]
    fn a_peer_gets_our_network_and_the_files_that_it_insists_on() {
        let (kubeconfig, flat_file) = (Path::new("/k"), Path::new("/f"));
        let mut config = network(SHARED, None);
        point(&mut config, kubeconfig, flat_file);
        let ipam = &config["ipam"];
        assert_eq!((&ipam["type"], &ipam["range"]), (&json!("whereabouts"), &json!(SHARED.1)));
        assert_eq!(ipam["kubernetes"]["kubeconfig"], json!("/k"));
        assert_eq!(ipam["configuration_path"], json!("/f"));
        assert_eq!(flat(kubeconfig)["kubernetes"], ipam["kubernetes"]);
    }
}
