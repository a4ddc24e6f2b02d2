//! The flat file that fills in what networks leave out: optional, and read again when it changes.
//!
//! A network's configuration, which tenants write, may name its path. So it is read only from where the
//! node's owner puts files for CNI: another file could be one that never ends, such as some in `/proc`, or
//! one that tenants must not see.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use serde_json::{Map, Value};
use tenure_cni::{Code, Failure};
use tenure_whereabouts::config::places;

/// The largest one that is read, in bytes.
const LARGEST: u64 = 1 << 20;
/// How many are kept in memory; a node has one.
const MOST: usize = 64;

/// Where the node's owner puts files for CNI, in the node's own file system or as a pod sees it.
const DIRECTORIES: [&str; 4] =
    ["/etc/cni", "/etc/kubernetes/cni", "/host/etc/cni", "/host/etc/kubernetes/cni"];

/// When a file was last changed, and its length: these identify a version.
type Stamp = (Option<SystemTime>, u64);

/// The flat files that were read, by path.
#[derive(Debug)]
pub(super) struct FlatFiles {
    directories: Vec<PathBuf>,
    read: Mutex<HashMap<String, (Stamp, Arc<Value>)>>,
}

impl FlatFiles {
    /// Flat files below the usual directories, and below the agent's own, which only root can write.
    pub(super) fn below(own: Option<&Path>) -> Self {
        let directories = DIRECTORIES.iter().map(Path::new).chain(own).map(Path::to_owned).collect();
        Self { directories, read: Mutex::default() }
    }

    /// Whether the file, with all links resolved, is in an allowed directory.
    fn is_allowed(&self, path: &str) -> bool {
        let real = |path: &Path| fs::canonicalize(path).ok();
        let Some(file) = real(Path::new(path)) else { return false };
        self.directories.iter().filter_map(|directory| real(directory)).any(|it| file.starts_with(it))
    }

    /// The flat file for a network with this `ipam` object: the first one that exists.
    pub(super) fn read(&self, ipam: &Map<String, Value>) -> Result<Option<Arc<Value>>, Failure> {
        for path in places::flat_files(ipam)? {
            match fs::metadata(&path) {
                Ok(found) if found.is_file() => {
                    if !self.is_allowed(&path) {
                        let problem = format!("accepted are files below {}", DIRECTORIES.join(", "));
                        return Err(unreadable(&path, &problem));
                    }
                    let stamp = (found.modified().ok(), found.len());
                    return self.at(&path, stamp).map(Some);
                }
                Ok(_) => {}
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
                Err(error) => return Err(unreadable(&path, &error.to_string())),
            }
        }
        Ok(None)
    }

    fn at(&self, path: &str, stamp: Stamp) -> Result<Arc<Value>, Failure> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, value)) = read.get(path)
            && *known == stamp
        {
            return Ok(Arc::clone(value));
        }
        if stamp.1 > LARGEST {
            return Err(unreadable(path, &format!("it has {} bytes; accepted are {LARGEST}", stamp.1)));
        }
        let text = fs::read(path).map_err(|error| unreadable(path, &error.to_string()))?;
        let value: Value = serde_json::from_slice(&text)
            .map_err(|error| unreadable(path, &format!("it is no JSON: {error}")))?;
        let value = Arc::new(value);
        if read.len() >= MOST {
            read.clear();
        }
        read.insert(path.to_owned(), (stamp, Arc::clone(&value)));
        Ok(value)
    }
}

fn unreadable(path: &str, problem: &str) -> Failure {
    Failure::new(Code::InvalidConfig, format!("the flat file {path} cannot be read: {problem}")).detail(
        "accepted is a JSON object such as {\"kubernetes\": {\"kubeconfig\": \"/etc/…\"}}, or no file",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ipam(path: &std::path::Path) -> Map<String, Value> {
        let path = path.display().to_string();
        Map::from_iter([("configuration_path".to_owned(), Value::String(path))])
    }

    #[test]
    fn a_file_that_changes_is_read_again_and_one_that_is_none_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let (files, path) = (FlatFiles::below(Some(directory.path())), directory.path().join("w.conf"));
        assert_eq!(files.read(&ipam(&path)).unwrap(), None, "it may be missing");
        fs::write(&path, r#"{"gateway": "10.0.0.1"}"#).unwrap();
        assert_eq!(files.read(&ipam(&path)).unwrap().unwrap()["gateway"], "10.0.0.1");
        fs::write(&path, r#"{"gateway": "10.0.0.254"}"#).unwrap();
        assert_eq!(files.read(&ipam(&path)).unwrap().unwrap()["gateway"], "10.0.0.254");
        fs::write(&path, "{").unwrap();
        let failure = files.read(&ipam(&path)).unwrap_err();
        assert!(failure.code == 7 && failure.message.contains("w.conf"), "{failure}");
    }

    /// Reading `/proc/kmsg` waits for a kernel message.
    #[test]
    fn a_network_cannot_have_the_agent_read_files_that_are_not_for_cni() {
        let directory = tempfile::tempdir().unwrap();
        let (own, elsewhere) = (directory.path().join("own"), directory.path().join("elsewhere.conf"));
        fs::create_dir(&own).unwrap();
        fs::write(&elsewhere, r#"{"gateway": "10.0.0.1"}"#).unwrap();
        let (files, link) = (FlatFiles::below(Some(&own)), own.join("link.conf"));
        std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
        for path in [Path::new("/proc/kmsg"), Path::new("/proc/self/environ"), &elsewhere, &link] {
            let failure = files.read(&ipam(path)).unwrap_err();
            assert!(failure.message.contains("accepted are files below /etc/cni"), "{failure}");
        }
    }
}
