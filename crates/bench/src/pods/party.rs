//! Whoever is measured, by what differs between them.

use std::ops::Range;

use anyhow::Result;

use super::coil::Coil;
use super::ours::Ours;
use super::ptp::Ptp;
use super::side::Side;

/// Ours, or a peer.
pub(super) trait Party {
    /// The host and the plugin.
    fn side(&mut self) -> &mut Side;

    /// Whether it gets blocks from a controller.
    fn has_blocks(&self) -> bool {
        true
    }

    /// Prepares for pods that will come.
    fn expect(&mut self, _namespace: &str, _kind: &str, _numbers: Range<usize>) -> Result<()> {
        Ok(())
    }

    /// How much memory its agent has in use, in bytes, if it has an agent.
    fn memory(&self) -> Result<Option<f64>>;

    /// Makes pods of another node in its cluster, and waits until its agent would have seen them.
    fn strangers(&mut self, count: usize) -> Result<()>;

    /// The sizes of its plugin, its agent and its controller, in bytes.
    fn sizes(&self) -> [Option<f64>; 3];
}

/// The node that strangers are on.
const ELSEWHERE: &str = "elsewhere";

fn strangers(cluster: &super::cluster::Cluster, count: usize) -> Result<()> {
    cluster.pods("default", ELSEWHERE, (0..count).map(|number| format!("stranger-{number}")).collect())?;
    std::thread::sleep(std::time::Duration::from_secs(2));
    Ok(())
}

impl Party for Ours {
    fn side(&mut self) -> &mut Side {
        &mut self.side
    }

    fn memory(&self) -> Result<Option<f64>> {
        Ours::memory(self).map(Some)
    }

    fn strangers(&mut self, count: usize) -> Result<()> {
        strangers(&self.cluster, count)
    }

    fn sizes(&self) -> [Option<f64>; 3] {
        [None; 3]
    }
}

impl Party for Ptp {
    fn side(&mut self) -> &mut Side {
        &mut self.side
    }

    fn has_blocks(&self) -> bool {
        false
    }

    fn memory(&self) -> Result<Option<f64>> {
        Ok(None)
    }

    fn strangers(&mut self, _count: usize) -> Result<()> {
        Ok(())
    }

    fn sizes(&self) -> [Option<f64>; 3] {
        [Some(self.size), None, None]
    }
}

impl Party for Coil {
    fn side(&mut self) -> &mut Side {
        &mut self.side
    }

    fn expect(&mut self, namespace: &str, kind: &str, numbers: Range<usize>) -> Result<()> {
        Coil::expect(self, namespace, kind, numbers)
    }

    fn memory(&self) -> Result<Option<f64>> {
        Coil::memory(self).map(Some)
    }

    fn strangers(&mut self, count: usize) -> Result<()> {
        strangers(&self.cluster, count)
    }

    fn sizes(&self) -> [Option<f64>; 3] {
        self.sizes.map(Some)
    }
}
