//! Finds the addresses in use in all network namespaces of this machine, whoever created the interfaces.
//!
//! It finds namespaces by the files that runtimes mount them on, and by visible processes. This is slow on machines with many
//! of them, so ADD and DEL never do it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::address;
use crate::netns::{Error, NetNs, NetNsId};

/// Where to search for namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// Directories with mounted namespaces.
    pub directories: Vec<PathBuf>,
    /// The directory of processes, if they are to be searched.
    pub processes: Option<PathBuf>,
}

impl Default for Places {
    fn default() -> Self {
        let directories = ["/run/netns", "/var/run/netns"].map(PathBuf::from).into();
        Self { directories, processes: Some("/proc".into()) }
    }
}

/// The result of a survey.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Each namespace with its addresses.
    pub namespaces: Vec<NamespaceUse>,
    /// Namespaces that could not be read, and why.
    pub failures: Vec<String>,
}

/// The addresses of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceUse {
    /// The path by which it was found.
    pub path: PathBuf,
    /// Its addresses, without loopback and link-local ones.
    pub addresses: Vec<IpAddr>,
}

impl Places {
    /// Surveys all namespaces except these.
    pub fn survey(&self, except: &[NetNsId]) -> Survey {
        let mut survey = Survey::default();
        let mut seen: BTreeSet<NetNsId> = except.iter().copied().collect();
        for directory in &self.directories {
            match files(directory) {
                Ok(paths) => paths.iter().for_each(|path| survey.look(path, &mut seen)),
                Err(error) => survey.failures.push(format!("{}: {error}", directory.display())),
            }
        }
        let processes = self.processes.iter().flat_map(|processes| files(processes).unwrap_or_default());
        for process in processes.filter(|path| is_process(path)) {
            // If a process is gone or not accessible, another process or a runtime's file leads to the same namespace.
            if let Ok(namespace) = NetNs::open(process.join("ns/net"))
                && seen.insert(namespace.id())
            {
                survey.read(process.join("ns/net"), &namespace);
            }
        }
        survey
    }
}

impl Survey {
    fn look(&mut self, path: &Path, seen: &mut BTreeSet<NetNsId>) {
        match NetNs::open(path) {
            Ok(namespace) if seen.insert(namespace.id()) => self.read(path.to_owned(), &namespace),
            Ok(_) => {}
            // A file without a mounted namespace is skipped.
            Err(error) if error.is_gone() => {}
            Err(error) => self.failures.push(format!("{}: {error}", path.display())),
        }
    }

    fn read(&mut self, path: PathBuf, namespace: &NetNs) {
        match addresses(namespace) {
            Ok(addresses) => self.namespaces.push(NamespaceUse { path, addresses }),
            Err(error) => self.failures.push(format!("{}: {error}", path.display())),
        }
    }
}

fn addresses(namespace: &NetNs) -> Result<Vec<IpAddr>, Error> {
    let mut socket = namespace.socket()?;
    let all = address::of_all(&mut socket)
        .map_err(|source| Error::Socket { namespace: namespace.to_string(), source })?;
    Ok(all.into_iter().map(|it| it.address.addr()).filter(is_of_a_network).collect())
}

fn is_of_a_network(address: &IpAddr) -> bool {
    let on_link = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !address.is_loopback() && !on_link
}

fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.map(|entry| Ok(entry?.path())).collect(),
    }
}

fn is_process(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_found_once_by_files_and_processes_and_what_is_none_is_no_failure() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("stale"), "").unwrap();
        for name in ["one", "two"] {
            std::os::unix::fs::symlink("/proc/self/ns/net", directory.path().join(name)).unwrap();
        }
        let missing = directory.path().join("nowhere");
        let places = Places {
            directories: vec![directory.path().to_owned(), missing],
            processes: Some("/proc".into()),
        };
        let here = NetNs::current().unwrap().id();
        let found = places.survey(&[]);
        let ours = |path: &Path| NetNs::open(path).is_ok_and(|namespace| namespace.id() == here);
        assert_eq!(found.namespaces.iter().filter(|it| ours(&it.path)).count(), 1, "{found:?}");
        assert_eq!(found.failures, [""; 0]);
        let others = places.survey(&[here]);
        assert!(others.namespaces.iter().all(|it| !ours(&it.path)), "{others:?}");
    }
}
