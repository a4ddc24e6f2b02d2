//! The peer that is always there: the reference plugins ptp and host-local, which need neither an API server nor an agent.

use anyhow::{Context as _, Result};
use serde_json::json;
use tenure_testbed::binaries::{Binaries, Program};

use super::side::{Pace, Side};
use crate::host::machine::Machine;
use crate::host::stripped::stripped_size;

/// A host with them.
pub(super) struct Ptp {
    pub(super) side: Side,
    /// Of both plugins, in bytes.
    pub(super) size: f64,
}

impl Ptp {
    /// Starts a host with them, and one pod on it.
    pub(super) fn start() -> Result<Self> {
        let binaries = Binaries::locate([Program::Ptp, Program::HostLocal])?;
        let (ptp, host_local) = (binaries.path(Program::Ptp)?, binaries.path(Program::HostLocal)?);
        // Both places, where they are not one.
        let path = std::env::join_paths([ptp, host_local].into_iter().filter_map(|file| file.parent()))
            .context("a plugin is where CNI_PATH cannot say it")?;
        let config = json!({
            "cniVersion": "1.0.0",
            "name": "measured",
            "type": "ptp",
            "mtu": 1500,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": "10.64.0.0/14"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
                // In memory, as our journal is.
                "dataDir": "/run/host-local",
            },
        });
        let size = stripped_size(ptp)? + stripped_size(host_local)?;
        let machine = Machine::start("ptp")?;
        machine.host.forward()?;
        let mut side = Side::new("ptp + host-local", machine, ptp.to_owned(), path.into(), &config);
        side.make("first", 0..1)?;
        side.add("first", 0..1, "default", Pace::OneByOne)?;
        Ok(Self { side, size })
    }
}
