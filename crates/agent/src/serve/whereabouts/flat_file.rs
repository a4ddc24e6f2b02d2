//! The flat file that fills what networks leave out: optional, and read again when it changes.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use serde_json::{Map, Value};
use tenure_cni::{Code, Failure};
use tenure_whereabouts::config::places;

/// The largest one that is read, in bytes.
const LARGEST: u64 = 1 << 20;
/// So many are kept in memory; a node has one.
const MOST: usize = 64;

/// When a file was last changed, and its length: what tells one from the next.
type Stamp = (Option<SystemTime>, u64);

/// The flat files that were read, by path.
#[derive(Debug, Default)]
pub(super) struct FlatFiles {
    read: Mutex<HashMap<String, (Stamp, Arc<Value>)>>,
}

impl FlatFiles {
    /// The flat file for a network with this `ipam` object: the first that exists, if any does.
    pub(super) fn read(&self, ipam: &Map<String, Value>) -> Result<Option<Arc<Value>>, Failure> {
        for path in places::flat_files(ipam)? {
            match fs::metadata(&path) {
                Ok(found) if found.is_file() => {
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
        let (files, path) = (FlatFiles::default(), directory.path().join("w.conf"));
        assert_eq!(files.read(&ipam(&path)).unwrap(), None, "it may be missing");
        fs::write(&path, r#"{"gateway": "10.0.0.1"}"#).unwrap();
        assert_eq!(files.read(&ipam(&path)).unwrap().unwrap()["gateway"], "10.0.0.1");
        fs::write(&path, r#"{"gateway": "10.0.0.254"}"#).unwrap();
        assert_eq!(files.read(&ipam(&path)).unwrap().unwrap()["gateway"], "10.0.0.254");
        fs::write(&path, "{").unwrap();
        let failure = files.read(&ipam(&path)).unwrap_err();
        assert!(failure.code == 7 && failure.message.contains("w.conf"), "{failure}");
    }
}
