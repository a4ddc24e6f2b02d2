//! Which of this node's containers have something in shared ledgers, and by which CNI configuration.
//!
//! A record of an `IPPool` names pod, container and interface, but neither the node nor the configuration:
//! two networks may share a range. A GC must know both, or it would release addresses of a live pod of
//! another network. So each ADD writes a small file before anything else, and the DEL removes it. After a
//! reboot the directory is empty and the containers are gone; the controller finds their records.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tenure_cni::{Code, Failure};
use tenure_handles::Timestamp;
use tracing::warn;

/// What a container's interface received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The CNI configuration's name.
    pub name: String,
    /// `network_name`.
    pub network: String,
    /// The container.
    pub container: String,
    /// The interface.
    pub interface: String,
    /// The pod, as `namespace/name`.
    pub podref: String,
    /// Since when.
    pub since: Timestamp,
}

/// Configuration, container, interface.
type Key = (String, String, String);

/// All attachments. Those on disk are also in memory.
pub(super) struct Attachments {
    directory: PathBuf,
    known: Mutex<HashMap<Key, Attachment>>,
    /// How many ADDs of each are in progress.
    under_way: Mutex<HashMap<Key, usize>>,
}

/// An ADD is in progress as long as this exists.
pub(super) struct UnderWay<'a> {
    attachments: &'a Attachments,
    key: Key,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut under_way = self.attachments.under_way();
        if let Some(adds) = under_way.get_mut(&self.key) {
            *adds -= 1;
            if *adds == 0 {
                under_way.remove(&self.key);
            }
        }
    }
}

/// An attachment as written to disk.
#[derive(Serialize, Deserialize)]
struct Written {
    name: String,
    network: String,
    container: String,
    interface: String,
    podref: String,
    since_ms: u64,
}

/// What the files of an agent that does not run say.
pub fn recorded(directory: PathBuf) -> Vec<Attachment> {
    Attachments::open(directory).known().values().cloned().collect()
}

impl Attachments {
    /// Reads the files of an earlier agent. An unreadable file is logged and stays.
    pub(super) fn open(directory: PathBuf) -> Self {
        let mut known = HashMap::new();
        match fs::read_dir(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => warn!(directory = %directory.display(), %error, "cannot look for attachments"),
            Ok(entries) => {
                for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
                    match read(&path) {
                        Ok(read) => {
                            known.insert(key(&read.name, &read.container, &read.interface), read);
                        }
                        Err(problem) => warn!(file = %path.display(), problem, "cannot read an attachment"),
                    }
                }
            }
        }
        Self { directory, known: Mutex::new(known), under_way: Mutex::default() }
    }

    /// An ADD begins. Until it ends, its attachment is not in [`Attachments::of`] its configuration.
    pub(super) fn begin(&self, name: &str, container: &str, interface: &str) -> UnderWay<'_> {
        let key = key(name, container, interface);
        *self.under_way().entry(key.clone()).or_default() += 1;
        UnderWay { attachments: self, key }
    }

    /// Records an attachment.
    pub(super) fn note(&self, attachment: &Attachment) -> Result<(), Failure> {
        let path = self.path(&attachment.name, &attachment.container, &attachment.interface);
        let written = Written {
            name: attachment.name.clone(),
            network: attachment.network.clone(),
            container: attachment.container.clone(),
            interface: attachment.interface.clone(),
            podref: attachment.podref.clone(),
            since_ms: attachment.since.as_millis(),
        };
        let text = serde_json::to_vec(&written).unwrap_or_default();
        let put = || match fs::write(&path, &text) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(&self.directory)?;
                fs::write(&path, &text)
            }
            put => put,
        };
        put().map_err(|error| {
            Failure::new(Code::Io, format!("cannot remember an attachment in {}: {error}", path.display()))
                .detail("the agent's directory must be writable and have room")
        })?;
        let key = key(&attachment.name, &attachment.container, &attachment.interface);
        self.known().insert(key, attachment.clone());
        Ok(())
    }

    /// Removes an attachment.
    pub(super) fn forget(&self, name: &str, container: &str, interface: &str) {
        if self.known().remove(&key(name, container, interface)).is_none() {
            return;
        }
        let path = self.path(name, container, interface);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                warn!(file = %path.display(), %error, "cannot remove an attachment");
            }
            _ => {}
        }
    }

    /// One of them.
    pub(super) fn get(&self, name: &str, container: &str, interface: &str) -> Option<Attachment> {
        self.known().get(&key(name, container, interface)).cloned()
    }

    /// Those of one configuration, without those with an ADD in progress.
    pub(super) fn of(&self, name: &str) -> Vec<Attachment> {
        let (known, under_way) = (self.known(), self.under_way());
        let settled = known.iter().filter(|(key, it)| it.name == name && !under_way.contains_key(*key));
        settled.map(|(_, it)| it.clone()).collect()
    }

    /// The path of an attachment's file. It is a hash, because file names must be shorter than keys may be.
    fn path(&self, name: &str, container: &str, interface: &str) -> PathBuf {
        const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
        // FNV-1a; no part contains a NUL.
        let bytes = [name, "\0", container, "\0", interface].into_iter().flat_map(str::bytes);
        let hash = bytes.fold(BASIS, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME));
        self.directory.join(format!("{hash:032x}"))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Key, Attachment>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<Key, usize>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(name: &str, container: &str, interface: &str) -> Key {
    (name.to_owned(), container.to_owned(), interface.to_owned())
}

fn read(path: &Path) -> Result<Attachment, String> {
    let text = fs::read(path).map_err(|error| error.to_string())?;
    let read: Written = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    let Written { name, network, container, interface, podref, since_ms } = read;
    let since = Timestamp::from_millis(since_ms);
    Ok(Attachment { name, network, container, interface, podref, since })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment(name: &str, container: &str) -> Attachment {
        Attachment {
            name: name.into(),
            network: "blue".into(),
            container: container.into(),
            interface: "net1".into(),
            podref: "ns/pod".into(),
            since: Timestamp::from_millis(7),
        }
    }

    #[test]
    fn what_was_noted_is_known_after_a_restart_and_what_cannot_be_read_stays() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("ledgers");
        let first = Attachments::open(at.clone());
        for (name, container) in [("a", "c1"), ("a", "c2"), ("b", "c1")] {
            first.note(&attachment(name, container)).unwrap();
        }
        first.forget("a", "c2", "net1");
        fs::write(at.join("foreign"), "{").unwrap();
        let again = Attachments::open(at.clone());
        assert_eq!(again.of("a"), [attachment("a", "c1")]);
        assert_eq!(again.get("b", "c1", "net1"), Some(attachment("b", "c1")));
        assert_eq!(fs::read_dir(at).unwrap().count(), 3);
    }
}
