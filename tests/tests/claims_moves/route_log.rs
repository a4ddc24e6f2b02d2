//! What happens to the routes of a host, in order: `ip monitor` writes it down.

use std::net::IpAddr;
use std::process::Stdio;

use tenure_testbed::hosts::{Host, HostChild};

/// A host's routes, from the moment that this was started.
pub struct RouteLog {
    file: tempfile::NamedTempFile,
    child: HostChild,
}

/// A route that came or went.
#[derive(Debug)]
pub struct Change {
    pub gone: bool,
    pub table: u32,
}

impl RouteLog {
    pub fn start(host: &Host) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        let output = file.reopen().unwrap();
        let command = host.command("ip").args(["monitor", "route"]);
        let child = command.stdin(Stdio::null()).stdout(output).spawn().unwrap();
        Self { file, child }
    }

    /// What happened to routes to this address in tables of this host's own, in the order of time.
    pub fn of(&self, address: IpAddr) -> Vec<Change> {
        let text = std::fs::read_to_string(self.file.path()).unwrap();
        let address = address.to_string();
        let read = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let table = words
                .iter()
                .position(|word| *word == "table")
                .and_then(|at| words.get(at + 1)?.parse().ok())?;
            let gone = words.first() == Some(&"Deleted");
            words.contains(&address.as_str()).then_some(Change { gone, table })
        };
        text.lines().filter_map(read).collect()
    }
}

impl Drop for RouteLog {
    fn drop(&mut self) {
        // It may have ended with its host.
        let _ = self.child.kill();
    }
}
