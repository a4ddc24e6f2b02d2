//! A pod, and calls of the plugin for it.

use std::fmt::Debug;
use std::io::Read;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use tenure_handles::{Clock, SystemClock};
use tenure_testbed::hosts::{Host, HostChild};

/// A pod.
pub struct Pod {
    pub namespace: String,
    pub name: String,
    pub container: String,
    pub path: PathBuf,
    pub network: Host,
}

impl Pod {
    /// Whether it has its interface.
    pub fn has_interface(&self) -> bool {
        self.network.namespace().ip_json(&["link", "show", "eth0"]).is_ok()
    }
}

/// A call of the plugin that is under way.
pub struct Calling {
    pub(super) child: HostChild,
    pub(super) began: Duration,
}

impl Calling {
    /// Whether there is an answer.
    pub fn has_ended(&self) -> bool {
        self.child.try_wait().is_some()
    }

    /// Waits for its end.
    pub fn join(mut self) -> Called {
        let (mut stdout, mut stderr) = (Vec::new(), String::new());
        self.child.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        let code = self.child.wait().code().unwrap();
        let json = serde_json::from_slice(&stdout).unwrap_or_default();
        Called { code, json, stderr, took: SystemClock.elapsed().saturating_sub(self.began) }
    }
}

/// What came of a call of the plugin.
#[derive(Debug)]
pub struct Called {
    pub code: i32,
    pub json: Value,
    pub stderr: String,
    pub took: Duration,
}

impl Called {
    /// The addresses of a result; it must be one.
    pub fn addresses(&self) -> Vec<IpAddr> {
        assert_eq!(self.code, 0, "{self:?}");
        let ips = self.json["ips"].as_array().unwrap();
        let address =
            |ip: &Value| ip["address"].as_str().unwrap().split('/').next().unwrap().parse().unwrap();
        ips.iter().map(address).collect()
    }

    /// The code of the error; it must be one.
    pub fn refused(&self) -> u64 {
        assert_eq!(self.code, 1, "{self:?}");
        self.json["code"].as_u64().unwrap_or_else(|| panic!("{self:?}"))
    }

    /// That it succeeded.
    #[track_caller]
    pub fn succeeded(&self) {
        assert_eq!(self.code, 0, "{self:?}");
    }
}
