//! Kernel parameters of the network, by their files under `/proc/sys/net`; every error names the file.
//!
//! They belong to the network namespace of the calling thread. Container runtimes mount them read-only. If the manifest mounts
//! the host's `/proc/sys` beside them, they are written there, and still apply to the calling thread's namespace.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use serde::{Deserialize, Serialize};

/// Where a container can write the parameters.
const WRITABLE: &str = "/host/proc/sys/net";

/// A parameter that could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{act} {}", file.display())]
pub struct Error {
    act: String,
    file: PathBuf,
    source: std::io::Error,
}

impl Error {
    /// Whether the kernel lacks this parameter (a kernel without IPv6, an interface that is gone).
    pub fn is_missing(&self) -> bool {
        self.source.kind() == std::io::ErrorKind::NotFound
    }
}

/// The value of a parameter, for example of `ipv4/ip_forward`.
pub fn read(name: &str) -> Result<String, Error> {
    let file = file(name);
    match std::fs::read_to_string(&file) {
        Ok(text) => Ok(text.trim_end().to_owned()),
        Err(source) => Err(Error { act: "read".to_owned(), file, source }),
    }
}

/// Sets a parameter and returns whether that changed it. A parameter that already has the value is not written: writing some of
/// them has side effects, and the file may be read-only.
pub fn set(name: &str, value: &str) -> Result<bool, Error> {
    if read(name)? == value {
        return Ok(false);
    }
    let file = file(name);
    match write(&file, name, value) {
        Ok(()) => Ok(true),
        Err(source) => Err(Error { act: format!("write {value:?} to"), file, source }),
    }
}

/// The value of an interface's parameter, for example of `disable_ipv6` of family `ipv6`.
pub fn read_of_link(family: &str, link: &str, name: &str) -> Result<String, Error> {
    read(&format!("{family}/conf/{link}/{name}"))
}

/// Sets a parameter of an interface; returns whether that changed it.
pub fn set_of_link(family: &str, link: &str, name: &str, value: &str) -> Result<bool, Error> {
    set(&format!("{family}/conf/{link}/{name}"), value)
}

/// A parameter that was changed: enough to change it back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// The parameter, for example `ipv4/ip_forward`.
    pub name: String,
    /// Its value before.
    pub before: String,
    /// Its value since.
    pub after: String,
}

/// As sysctl(8) has it, without the value.
impl fmt::Display for Changed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "net.{}", self.name.replace('/', "."))
    }
}

impl Changed {
    /// Sets the parameter back, unless it is gone or somebody has given it another value since. Returns whether that changed it.
    pub fn undo(&self) -> Result<bool, Error> {
        match read(&self.name) {
            Ok(value) if value == self.after => set(&self.name, &self.before),
            Ok(_) => Ok(false),
            Err(error) if error.is_missing() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Turns on forwarding in every family that the kernel has. Returns the changes.
///
/// A host that forwards IPv6 ignores router advertisements, and would lose a default route that came from one. So `uplink` is
/// first configured to accept them anyway.
pub fn enable_forwarding(uplink: Option<&str>) -> Result<Vec<Changed>, Error> {
    let mut changed = Vec::new();
    let mut put = |name: String, from: Option<&str>, after: &str| {
        let before = match read(&name) {
            // A kernel without IPv6 has nothing to turn on.
            Err(error) if error.is_missing() && name.starts_with("ipv6/") => return Ok(()),
            before => before?,
        };
        if from.is_none_or(|from| before == from) && set(&name, after)? {
            changed.push(Changed { name, before, after: after.to_owned() });
        }
        Ok(())
    };
    put("ipv4/ip_forward".to_owned(), None, "1")?;
    if let Some(uplink) = uplink {
        put(format!("ipv6/conf/{uplink}/accept_ra"), Some("1"), "2")?;
    }
    put("ipv6/conf/all/forwarding".to_owned(), None, "1")?;
    Ok(changed)
}

fn write(file: &Path, name: &str, value: &str) -> io::Result<()> {
    let written = std::fs::write(file, value);
    let writable = Path::new(WRITABLE);
    match written {
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem && writable.exists() => {
            std::fs::write(writable.join(name), value)
        }
        written => written,
    }
}

fn file(name: &str) -> PathBuf {
    PathBuf::from("/proc/sys/net").join(name)
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn a_parameter_is_read_without_its_line_end() {
        assert!(read("ipv4/ip_forward").unwrap().parse::<u8>().is_ok());
    }

    #[test]
    fn an_error_names_the_file() {
        let error = read_of_link("ipv4", "no-such-link", "forwarding").unwrap_err();
        assert!(error.is_missing());
        assert_eq!(error.to_string(), "read /proc/sys/net/ipv4/conf/no-such-link/forwarding");
        assert!(error.source().is_some());
    }

    #[test]
    fn a_value_that_is_there_already_is_not_written() {
        let value = read("ipv4/ip_forward").unwrap();
        assert!(!set("ipv4/ip_forward", &value).unwrap());
    }
}
