//! Faults of a node: its parts stop, its cable is unplugged, its power is cut.

use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::{Node, NodePart};
use crate::cluster::ClusterError;
use crate::hosts::{HostChild, HostError};

/// How long a part that was asked to stop may take before it is killed.
const GRACE: Duration = Duration::from_secs(10);

impl Node {
    /// The process id of a part, if it runs.
    pub fn process_id(&self, part: NodePart) -> Option<i32> {
        self.process(part).filter(|process| process.try_wait().is_none()).map(|process| process.id())
    }

    /// Asks a part to end (SIGTERM) and waits until it has; kills it after ten seconds.
    pub async fn stop(&self, part: NodePart) -> Result<(), ClusterError> {
        let stop = |process: Arc<HostChild>| {
            process.signal(Signal::SIGTERM)?;
            // A paused one would not notice the request.
            process.signal(Signal::SIGCONT)?;
            match process.wait_for(GRACE) {
                Some(_) => Ok(()),
                None => process.kill().map(drop),
            }
        };
        self.end(part, stop).await
    }

    /// Ends a part at once (SIGKILL) and waits until it is gone.
    pub async fn kill(&self, part: NodePart) -> Result<(), ClusterError> {
        self.end(part, |process| process.kill().map(drop)).await
    }

    /// Starts a part; does nothing if it runs.
    pub fn start(&self, part: NodePart) -> Result<(), ClusterError> {
        if self.process_id(part).is_some() { Ok(()) } else { self.launch(part) }
    }

    /// Stops a part if it runs, and starts it again.
    pub async fn restart(&self, part: NodePart) -> Result<(), ClusterError> {
        self.stop(part).await?;
        self.launch(part)
    }

    /// Suspends a part (SIGSTOP): its connections stay open, and nothing is answered.
    pub fn pause(&self, part: NodePart) -> Result<(), ClusterError> {
        self.signal(part, Signal::SIGSTOP)
    }

    /// Resumes a suspended part (SIGCONT).
    pub fn resume(&self, part: NodePart) -> Result<(), ClusterError> {
        self.signal(part, Signal::SIGCONT)
    }

    /// Unplugs the node's cable: it keeps its addresses and routes, and reaches nobody.
    pub fn unplug(&self) -> Result<(), ClusterError> {
        Ok(self.port.unplug()?)
    }

    /// Plugs the node's cable in again.
    pub fn plug(&self) -> Result<(), ClusterError> {
        Ok(self.port.plug()?)
    }

    /// Cuts the node's power: every process ends at once, and the contents of `/run` are lost. Its disk
    /// stays.
    pub fn power_off(&self) -> Result<(), ClusterError> {
        self.host.end_processes();
        self.cgroups.clear()
    }

    /// Starts all parts after [`Self::power_off`].
    pub fn power_on(&self) -> Result<(), ClusterError> {
        NodePart::ALL.into_iter().try_for_each(|part| self.start(part))
    }

    fn signal(&self, part: NodePart, signal: Signal) -> Result<(), ClusterError> {
        self.process(part).map_or(Ok(()), |process| Ok(process.signal(signal)?))
    }

    async fn end(
        &self,
        part: NodePart,
        how: impl FnOnce(Arc<HostChild>) -> Result<(), HostError> + Send + 'static,
    ) -> Result<(), ClusterError> {
        let Some(process) = self.process(part) else { return Ok(()) };
        Ok(tokio::task::spawn_blocking(move || how(process)).await??)
    }
}
