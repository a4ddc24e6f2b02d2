//! What may be on the node's interfaces, and the file that keeps it across a reboot.
//!
//! A record is on disk before the kernel is asked for anything that it says. So whatever a killed agent or a reboot leaves
//! behind, the next start knows which addresses may be there, and which change was not confirmed: that one it takes back.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure_node_addresses::DesiredState;
use tracing::warn;

const NAME: &str = "node-addresses.json";
const VERSION: u32 = 1;

/// How a node was configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Mode {
    /// By netlink.
    Kernel,
    /// By NetworkManager.
    NetworkManager,
}

/// What one enactment may have put on the node's interfaces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    /// The enactment's UID.
    pub(super) uid: String,
    /// Its name.
    pub(super) name: String,
    /// Its policy.
    pub(super) policy: String,
    /// What was applied, verified and confirmed by the API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) confirmed: Option<Configured>,
    /// What is being applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) trying: Option<Trying>,
}

/// What a policy made of this node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Configured {
    /// The policy's generation.
    pub(super) generation: i64,
    /// How.
    pub(super) mode: Mode,
    /// The desired state, typed: its interfaces, addresses and routes.
    pub(super) desired: DesiredState,
    /// The desired state as it is reported.
    pub(super) state: Value,
}

/// A change that is not confirmed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Trying {
    /// What the interfaces are to have.
    pub(super) to: Configured,
    /// What they had before, as far as addresses do not tell.
    pub(super) before: Vec<Before>,
}

/// An interface before a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Before {
    pub(super) name: String,
    pub(super) mtu: u32,
}

impl Record {
    /// All interfaces that it may have changed.
    pub(super) fn interfaces(&self) -> impl Iterator<Item = &str> {
        let all = self.states().flat_map(|state| state.interfaces.iter());
        all.map(|interface| interface.name.as_str())
    }

    /// All addresses that may be on interfaces.
    pub(super) fn addresses(&self) -> impl Iterator<Item = (&str, IpNet)> {
        self.states().flat_map(DesiredState::addresses)
    }

    /// All routes that may be in profiles, as desired states have them.
    pub(super) fn routes(&self) -> impl Iterator<Item = &Value> {
        let trying = self.trying.as_ref().map(|it| &it.to);
        self.confirmed.iter().chain(trying).flat_map(|it| routes_of(&it.state))
    }

    /// The generation that is confirmed.
    pub(super) fn generation(&self) -> Option<i64> {
        self.confirmed.as_ref().map(|it| it.generation)
    }

    /// Whether NetworkManager has, or may have, what it says.
    pub(super) fn is_of_manager(&self) -> bool {
        let trying = self.trying.as_ref().map(|it| &it.to);
        self.confirmed.iter().chain(trying).any(|it| it.mode == Mode::NetworkManager)
    }

    fn states(&self) -> impl Iterator<Item = &DesiredState> {
        let trying = self.trying.as_ref().map(|it| &it.to.desired);
        self.confirmed.as_ref().map(|it| &it.desired).into_iter().chain(trying)
    }
}

/// The routes of a desired state that are to be there.
pub(super) fn routes_of(state: &Value) -> impl Iterator<Item = &Value> {
    let all = state["routes"]["config"].as_array().into_iter().flatten();
    all.filter(|route| route["state"] != "absent")
}

#[derive(Serialize, Deserialize)]
struct Contents {
    version: u32,
    records: Vec<Record>,
}

/// The file with all records.
#[derive(Clone, Debug)]
pub(super) struct Store {
    /// Without a directory nothing is kept.
    path: Option<PathBuf>,
}

impl Store {
    /// In this directory.
    pub(super) fn new(directory: Option<&Path>) -> Self {
        Self { path: directory.map(|it| it.join(NAME)) }
    }

    /// All records. A file that cannot be read is put aside, and what our mark says is still found on the interfaces.
    pub(super) fn load(&self) -> Vec<Record> {
        let Some(path) = &self.path else { return Vec::new() };
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
            Err(error) => {
                warn!(path = %path.display(), %error, "cannot read which addresses the node's interfaces have");
                return Vec::new();
            }
        };
        match serde_json::from_slice::<Contents>(&text) {
            Ok(contents) if contents.version == VERSION => contents.records,
            other => {
                let problem =
                    other.map_or_else(|error| error.to_string(), |it| format!("version {}", it.version));
                let aside = path.with_extension("damaged");
                warn!(path = %path.display(), problem, aside = %aside.display(), "the file with the node's addresses is damaged; it is put aside");
                let _ = fs::rename(path, aside);
                Vec::new()
            }
        }
    }

    /// Replaces all records; they are on disk when it returns.
    pub(super) fn save(&self, records: Vec<Record>) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let directory = path.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(directory)?;
        let beside = path.with_extension("new");
        let mut file = File::create(&beside)?;
        file.write_all(&serde_json::to_vec(&Contents { version: VERSION, records })?)?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        File::open(directory)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let desired = serde_json::json!({"interfaces": [
            {"name": "eth1", "ipv4": {"address": [{"ip": "10.10.10.8", "prefix-length": 24}]}}
        ]});
        let to = Configured {
            generation: 1,
            mode: Mode::Kernel,
            desired: DesiredState::parse(&desired).unwrap(),
            state: desired,
        };
        let before = vec![Before { name: "eth1".to_owned(), mtu: 1500 }];
        Record {
            uid: "u".to_owned(),
            name: "n.p".to_owned(),
            policy: "p".to_owned(),
            confirmed: Some(to.clone()),
            trying: Some(Trying { to, before }),
        }
    }

    #[test]
    fn records_come_back_as_they_were_kept() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::new(Some(&directory.path().join("state")));
        assert_eq!(store.load(), []);
        store.save(vec![record()]).unwrap();
        assert_eq!(store.load(), [record()]);
        store.save(Vec::new()).unwrap();
        assert_eq!(store.load(), []);
    }

    #[test]
    fn a_damaged_file_is_put_aside() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::new(Some(directory.path()));
        for text in ["", "{", "{\"version\":9,\"records\":[]}"] {
            fs::write(directory.path().join(NAME), text).unwrap();
            assert_eq!(store.load(), []);
            assert!(
                !directory.path().join(NAME).exists()
                    && directory.path().join("node-addresses.damaged").exists()
            );
        }
    }
}
