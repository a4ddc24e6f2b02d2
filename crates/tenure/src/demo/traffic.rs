//! Continuous echo requests, and how many of them were answered.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};

use super::ping::Pings;

const PAUSE: Duration = Duration::from_millis(2);
/// A later answer does not count.
const LIMIT: Duration = Duration::from_secs(1);

/// Continuous traffic.
pub(crate) struct Traffic {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    flows: Vec<JoinHandle<io::Result<Tally>>>,
}

/// The results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) sent: u64,
    pub(crate) answered: u64,
    pub(crate) slowest: Duration,
}

impl Traffic {
    /// Starts on all of these paths at once.
    pub(crate) fn begin(ways: Vec<Pings>) -> Result<Self> {
        let mut traffic = Self { stop: Arc::default(), answered: Arc::default(), flows: Vec::new() };
        for way in ways {
            let (stop, answered) = (Arc::clone(&traffic.stop), Arc::clone(&traffic.answered));
            let flow = std::thread::Builder::new().name("traffic".to_owned());
            let flow =
                flow.spawn(move || flow_until(&stop, &answered, way)).context("cannot start a thread")?;
            traffic.flows.push(flow);
        }
        Ok(traffic)
    }

    /// How many were answered so far.
    pub(crate) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Ends the traffic.
    pub(crate) fn end(self) -> Result<Tally> {
        self.stop.store(true, Ordering::Relaxed);
        let mut sum = Tally::default();
        for flow in self.flows {
            let flow = flow.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?;
            let flow = flow.context("cannot send echo requests")?;
            sum.sent += flow.sent;
            sum.answered += flow.answered;
            sum.slowest = sum.slowest.max(flow.slowest);
        }
        Ok(sum)
    }
}

fn flow_until(stop: &AtomicBool, answered: &AtomicU64, mut pings: Pings) -> io::Result<Tally> {
    let mut tally = Tally::default();
    while !stop.load(Ordering::Relaxed) {
        tally.sent += 1;
        if let Some(took) = pings.once(LIMIT)? {
            tally.answered += 1;
            tally.slowest = tally.slowest.max(took);
            answered.fetch_add(1, Ordering::Relaxed);
        }
        std::thread::sleep(PAUSE);
    }
    Ok(tally)
}
