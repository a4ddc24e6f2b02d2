//! Which interfaces of pods are on this node.
//!
//! Where this node gives the addresses, its journal knows. Where another plugin does, each attachment is a small file in a
//! directory that is empty after a reboot.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tracing::warn;

use super::one_of_each;
use crate::drive::Handle;
use crate::key::{HoldKey, Pod};
use crate::node::view::InterfaceView;

/// An interface of a pod on this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The network's name.
    pub network: String,
    /// The container's ID.
    pub container: String,
    /// The interface's name inside.
    pub interface: String,
    /// The path of the pod's network namespace.
    pub netns: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The pod's UID; empty if nobody said it.
    pub uid: String,
    /// The addresses, at most one of each family.
    pub addresses: Vec<IpAddr>,
}

impl Attachment {
    pub(crate) fn new(
        key: &HoldKey,
        pod: &Pod,
        netns: &str,
        addresses: impl IntoIterator<Item = IpAddr>,
    ) -> Self {
        Self {
            network: key.network().to_owned(),
            container: key.container().to_owned(),
            interface: key.interface().to_owned(),
            netns: netns.to_owned(),
            namespace: pod.namespace.clone(),
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
            addresses: one_of_each(addresses),
        }
    }
}

/// Who knows the attachments.
#[derive(Clone, Debug)]
pub(crate) enum Attachments {
    /// The node that gives the addresses.
    Node(Handle),
    /// Files.
    Records(Records),
}

impl Attachments {
    /// All; nothing if they are not known yet.
    pub(crate) async fn all(&self) -> Option<Vec<Attachment>> {
        match self {
            Self::Node(node) => {
                let interfaces = node.look(crate::node::Node::interfaces).await.ok().flatten()?;
                let attachment = |it: InterfaceView| {
                    let addresses = it.addresses.iter().map(tenure_ipam::Address::to_ip);
                    Attachment::new(&it.key, &it.pod, &it.netns, addresses)
                };
                Some(interfaces.into_iter().map(attachment).collect())
            }
            Self::Records(records) => Some(records.all()),
        }
    }
}

/// Attachments as files.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    directory: PathBuf,
}

impl Records {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Remembers an attachment.
    pub(super) fn put(&self, attachment: &Attachment) -> io::Result<()> {
        fs::create_dir_all(&self.directory)?;
        let path = self.path(&attachment.network, &attachment.container, &attachment.interface);
        let unfinished = path.with_extension("new");
        fs::write(&unfinished, serde_json::to_vec(attachment)?)?;
        fs::rename(unfinished, path)
    }

    /// Forgets one; one that is not there is forgotten already.
    pub(super) fn remove(&self, network: &str, container: &str, interface: &str) -> io::Result<()> {
        match fs::remove_file(self.path(network, container, interface)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Forgets those of a network but these.
    pub(super) fn retain(&self, network: &str, alive: &BTreeSet<(String, String)>) -> io::Result<()> {
        let gone = |it: &Attachment| {
            it.network == network && !alive.contains(&(it.container.clone(), it.interface.clone()))
        };
        let gone = self.all().into_iter().filter(gone);
        for it in gone {
            self.remove(&it.network, &it.container, &it.interface)?;
        }
        Ok(())
    }

    fn all(&self) -> Vec<Attachment> {
        let Ok(entries) = fs::read_dir(&self.directory) else { return Vec::new() };
        let paths = entries.flatten().map(|entry| entry.path());
        let whole = paths.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
        let read = |path: PathBuf| match fs::read(&path).map(|bytes| serde_json::from_slice(&bytes)) {
            Ok(Ok(attachment)) => Some(attachment),
            Ok(Err(error)) => {
                warn!(path = %path.display(), %error, "cannot read a record of an attachment");
                None
            }
            // It was removed since the directory was read.
            Err(_) => None,
        };
        whole.filter_map(read).collect()
    }

    fn path(&self, network: &str, container: &str, interface: &str) -> PathBuf {
        let name = tenure_api::digest::hex(&format!("{network}/{container}/{interface}"), 32);
        self.directory.join(format!("{name}.json"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_put_read_and_removed() {
        let directory = std::env::temp_dir().join(format!("tenure-records-{}", std::process::id()));
        let records = Records::new(directory.join("egress"));
        assert!(records.all().is_empty());
        let attachment = |container: &str| Attachment {
            network: "k8s".into(),
            container: container.into(),
            interface: "eth0".into(),
            netns: "/run/netns/x".into(),
            namespace: "shop".into(),
            pod: "web-0".into(),
            uid: "u".into(),
            addresses: vec![[10, 1, 0, 1].into()],
        };
        for container in ["a", "b", "../../c"] {
            records.put(&attachment(container)).unwrap();
            records.put(&attachment(container)).unwrap();
        }
        assert_eq!(records.all().len(), 3);
        fs::write(directory.join("egress/torn.json"), "{").unwrap();
        records.remove("k8s", "a", "eth0").unwrap();
        records.remove("k8s", "a", "eth0").unwrap();
        records.retain("another", &BTreeSet::new()).unwrap();
        assert_eq!(records.all().len(), 2);
        records.retain("k8s", &[("b".to_owned(), "eth0".to_owned())].into()).unwrap();
        assert_eq!(records.all(), [attachment("b")]);
        fs::remove_dir_all(directory).unwrap();
    }
}
