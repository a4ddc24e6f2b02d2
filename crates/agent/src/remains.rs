//! What an agent that has stopped left on its node, for whoever takes Tenure off: who still has addresses of ours, and which addresses
//! the node's own interfaces have by policies.
//!
//! The files say it without the API server. As long as [`Remains`] lives, no agent starts.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use tenure_cni::tombstone;

use crate::journal::Known;
use crate::journal::codec;
use crate::journal::file::{Lock, NAME, OpenError, lock};
use crate::run::{self, Paths};
use crate::{node_addresses, whereabouts};

/// What a stopped agent left.
#[derive(Debug)]
pub struct Remains {
    /// Who has addresses, for people: pod, interface and container; and what cannot be known.
    pub users: BTreeSet<String>,
    /// Addresses of policies on the node's own interfaces, for people.
    pub node_addresses: BTreeSet<String>,
    /// None if there is no directory to lock.
    _lock: Option<Lock>,
}

/// Why it cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum RemainsError {
    /// An agent runs, or the journal cannot be locked.
    #[error("the agent of this node must have stopped first")]
    Locked(#[from] OpenError),
    /// A file cannot be read.
    #[error("read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl Remains {
    /// Looks for them, in the directories that the agent had.
    pub fn find(paths: &Paths, state: &Path) -> Result<Self, RemainsError> {
        let lock = if paths.journal().is_dir() { Some(lock(paths.journal())?) } else { None };
        let mut users = BTreeSet::new();
        let ended = ended(&paths.tombstones())?;
        let mut note = |(container, interface): (&str, &str), pod: &str, netns: &str| {
            let key = (container.to_owned(), interface.to_owned());
            if !ended.contains(&key) && !is_gone(netns) {
                users.insert(format!("{interface} of pod {pod} (container {container})"));
            }
        };
        let path = paths.journal().join(NAME);
        let boot = fs::read_to_string(run::BOOT_ID).unwrap_or_default();
        let mut unknown = None;
        match fs::read(&path) {
            Ok(bytes) => match codec::read(&bytes) {
                // The pods of another boot are gone.
                Ok(read) if read.origin.boot != boot.trim() => {}
                Ok(read) => {
                    for hold in read.image.holds() {
                        note(
                            (hold.key.container(), hold.key.interface()),
                            &hold.pod.to_string(),
                            &hold.netns,
                        );
                    }
                    for held in read.image.claim_uses() {
                        note(
                            (held.key.container(), held.key.interface()),
                            &held.pod.to_string(),
                            &held.netns,
                        );
                    }
                    if read.damaged > 0 || read.image.known() != Known::All {
                        unknown = Some("is not complete".to_owned());
                    }
                }
                Err(error) => unknown = Some(error.to_string()),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if run::ran_on(state, boot.trim()) {
                    unknown = Some("was lost".to_owned());
                }
            }
            Err(source) => return Err(RemainsError::Read { path, source }),
        }
        for attachment in whereabouts::ledgers::recorded(paths.ledgers()) {
            note((&attachment.container, &attachment.interface), &attachment.podref, "");
        }
        if let Some(why) = unknown {
            users.insert(format!("somebody unknown: the journal {} {why}", path.display()));
        }
        Ok(Self { users, node_addresses: node_addresses::recorded(state), _lock: lock })
    }
}

/// Containers and interfaces whose DELs wait for an agent.
fn ended(directory: &Path) -> Result<BTreeSet<(String, String)>, RemainsError> {
    let all = tombstone::read_all(directory);
    let all = all.map_err(|source| RemainsError::Read { path: directory.to_owned(), source })?;
    let calls = all.into_iter().filter_map(|(_, call)| call.ok());
    Ok(calls.map(|call| (call.container_id, call.ifname)).collect())
}

/// Whether a pod's namespace was there and is gone.
fn is_gone(netns: &str) -> bool {
    // The same directory by the name under which every container sees it.
    let path = netns.strip_prefix("/var").filter(|rest| rest.starts_with("/run/")).unwrap_or(netns);
    !path.is_empty() && fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use tenure_cni::rpc::Call;
    use tenure_handles::Timestamp;
    use tenure_ipam::{Addresses, Sequence};

    use super::*;
    use crate::journal::Held;
    use crate::journal::{Journal, Origin, Record};
    use crate::key::{HoldKey, Pod};

    fn boot() -> String {
        fs::read_to_string(run::BOOT_ID).unwrap().trim().to_owned()
    }

    /// A node whose agent has stopped, with holds of containers and the paths of their namespaces.
    fn node(directory: &Path, boot: String, holds: &[(&str, &str)]) -> (Paths, PathBuf) {
        let paths = Paths::in_directory(directory.join("run"));
        let opened = Journal::open(paths.journal(), &Origin { boot, node: "n".into() }, drop).unwrap();
        let record = |(number, (container, netns)): (usize, &(&str, &str))| {
            Record::Held(Held {
                block: "uid".into(),
                key: HoldKey::new("tenure", *container, "eth0").unwrap(),
                pod: Pod { namespace: "shop".into(), name: format!("web-{container}"), uid: "u".into() },
                interface: true,
                addresses: Addresses { ipv4: Some(format!("10.2.0.{number}").parse().unwrap()), ipv6: None },
                sequence: Sequence::from_u64(number as u64 + 1),
                since: Timestamp::from_millis(1),
                netns: (*netns).to_owned(),
            })
        };
        opened.journal.append(holds.iter().enumerate().map(record).collect()).unwrap();
        (paths, directory.join("state"))
    }

    #[test]
    fn who_has_an_address_is_named_until_its_del_or_its_namespace_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let there = directory.path().join("netns");
        fs::write(&there, "").unwrap();
        let there = there.to_str().unwrap().to_owned();
        let holds = [("a", &*there), ("b", "/var/run/netns/no-such-namespace"), ("c", ""), ("d", &there)];
        let (paths, state) = node(directory.path(), boot(), &holds);
        let call = Call { container_id: "d".into(), ifname: "eth0".into(), ..Call::default() };
        tombstone::leave(&paths.tombstones(), "tenure", &call).unwrap();
        let found = Remains::find(&paths, &state).unwrap();
        let users: Vec<&str> = found.users.iter().map(String::as_str).collect();
        assert_eq!(
            users,
            ["eth0 of pod shop/web-a (container a)", "eth0 of pod shop/web-c (container c)"],
            "b's namespace is gone, and d has ended"
        );
    }

    #[test]
    fn pods_of_another_boot_are_gone() {
        let directory = tempfile::tempdir().unwrap();
        let (paths, state) = node(directory.path(), "another".into(), &[("a", "")]);
        assert_eq!(Remains::find(&paths, &state).unwrap().users, BTreeSet::new());
    }

    #[test]
    fn nothing_is_told_while_an_agent_runs_and_none_starts_meanwhile() {
        let directory = tempfile::tempdir().unwrap();
        let (paths, state) = node(directory.path(), boot(), &[]);
        let open = || Journal::open(paths.journal(), &Origin { boot: boot(), node: "n".into() }, drop);
        let running = open().unwrap();
        assert!(matches!(Remains::find(&paths, &state), Err(RemainsError::Locked(_))));
        drop(running);
        let remains = Remains::find(&paths, &state).unwrap();
        assert!(matches!(open(), Err(OpenError::Locked { .. })));
        drop(remains);
        open().unwrap();
    }

    #[test]
    fn a_lost_journal_is_not_an_empty_one() {
        let directory = tempfile::tempdir().unwrap();
        let (paths, state) = node(directory.path(), boot(), &[]);
        fs::remove_file(paths.journal().join(NAME)).unwrap();
        assert_eq!(Remains::find(&paths, &state).unwrap().users, BTreeSet::new(), "no agent of this boot");
        fs::create_dir_all(&state).unwrap();
        fs::write(state.join("boot"), boot()).unwrap();
        let users = Remains::find(&paths, &state).unwrap().users;
        assert!(users.iter().any(|it| it.starts_with("somebody unknown")), "{users:?}");
        fs::write(paths.journal().join(NAME), "no journal").unwrap();
        let users = Remains::find(&paths, &state).unwrap().users;
        assert!(users.iter().any(|it| it.contains("are not a journal")), "{users:?}");
    }

    #[test]
    fn a_node_that_never_had_an_agent_has_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let paths = Paths::in_directory(directory.path().join("run"));
        let found = Remains::find(&paths, &directory.path().join("state")).unwrap();
        assert!(found.users.is_empty() && found.node_addresses.is_empty());
        assert!(!directory.path().join("run").exists(), "looking makes no directory");
    }
}
