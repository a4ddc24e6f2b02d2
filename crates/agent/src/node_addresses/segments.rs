//! Asks the segments of interfaces whether somebody else has the IPv4 addresses that they are to get. IPv6 has that in the kernel.
//!
//! An interface has to be up to be asked on. One that is down is set up for it, and whoever asked sets it down again if nothing comes
//! of the change. Where the other end of the wire does not come up, nobody can answer, and the address is taken.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use tenure_handles::Clock;
use tenure_linux::interface::{InterfacePlan, InterfaceState};
use tenure_linux::probe::{Answer, Question, probe};
use tenure_linux::{Mac, chain};
use tokio::time::sleep;
use tracing::warn;

use super::kernel::{Kernel, failure};
use super::machine::{Again, Failure};
use super::worker::Worker;

/// How long an interface may take until it has its other end.
const CARRIER: Duration = Duration::from_secs(2);
const BETWEEN: Duration = Duration::from_millis(20);

/// What came of asking.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// Interfaces that were set up for it.
    pub(super) raised: Vec<String>,
    /// Somebody who has an address.
    pub(super) answer: Option<Answer>,
}

/// In words, what an answer means.
pub(super) fn taken(answer: &Answer) -> String {
    let Answer { link, address, mac } = answer;
    format!(
        "interface {link}: address {address} is in use by another host of the segment, which answers from {mac}; accepted is an address \
         that nobody else has"
    )
}

impl Kernel {
    /// Who else has an address that interfaces get by these plans and do not have yet.
    pub(super) async fn ask_segments(
        &self,
        plans: &[InterfacePlan],
        clock: &Arc<dyn Clock>,
    ) -> Result<Asked, Failure> {
        let all = self.look([]).await?;
        let new = plans.iter().filter(|plan| plan.up).map(|plan| (plan.name.as_str(), absent(plan, &all)));
        let new: Vec<(&str, BTreeSet<Ipv4Addr>)> = new.filter(|(_, new)| !new.is_empty()).collect();
        let raised = self.set_up(new.iter().map(|(name, _)| (*name).to_owned()).collect(), true).await?;
        let asked = match self.questions(new, clock).await {
            Ok((questions, _)) if questions.is_empty() => Ok(None),
            Ok((questions, own)) => Ok(self.probe(questions, own, Arc::clone(clock)).await),
            Err(failure) => Err(failure),
        };
        match asked {
            Ok(answer) => Ok(Asked { raised, answer }),
            Err(failure) => {
                self.set_up(raised, false).await?;
                Err(failure)
            }
        }
    }

    /// What to ask on those interfaces that have their other end, once all have it or the time is over; and this node's own
    /// Ethernet addresses.
    async fn questions(
        &self,
        new: Vec<(&str, BTreeSet<Ipv4Addr>)>,
        clock: &Arc<dyn Clock>,
    ) -> Result<(Vec<Question>, BTreeSet<Mac>), Failure> {
        let began = clock.elapsed();
        if new.is_empty() {
            return Ok((Vec::new(), BTreeSet::new()));
        }
        loop {
            let all = self.look([]).await?;
            let mut waits = false;
            let mut questions = Vec::new();
            for (name, addresses) in &new {
                let Some(state) = all.iter().find(|it| it.name == *name) else { continue };
                let Some(mac) = state.mac.filter(|mac| mac.is_unicast()) else { continue };
                waits |= !state.carrier;
                if state.carrier {
                    let addresses = addresses.clone();
                    questions.push(Question { link: (*name).to_owned(), mac, addresses });
                }
            }
            if !waits || clock.elapsed().saturating_sub(began) >= CARRIER {
                return Ok((questions, all.iter().filter_map(|it| it.mac).collect()));
            }
            sleep(BETWEEN).await;
        }
    }

    async fn probe(
        &self,
        questions: Vec<Question>,
        own: BTreeSet<Mac>,
        clock: Arc<dyn Clock>,
    ) -> Option<Answer> {
        let asked = self.run(move |host| Ok(probe(host.namespace(), &questions, &own, &*clock))).await;
        match asked {
            Ok(Ok(answer)) => answer,
            // Better an address that nobody was asked about than none.
            Ok(Err(error)) => {
                warn!(error = chain(&error), "cannot ask whether others have the node's new addresses");
                None
            }
            Err(_) => None,
        }
    }
}

impl Worker {
    /// Asks whether somebody else has an address that interfaces are to get. Says which interfaces were set up for it; if somebody has
    /// one, or nobody could be asked, they are down again, or why not.
    pub(super) async fn ask_segments(
        &self,
        plans: &[InterfacePlan],
    ) -> Result<Vec<String>, (Result<(), Failure>, Failure)> {
        let asked =
            self.kernel.ask_segments(plans, &self.clock).await.map_err(|failure| (Ok(()), failure))?;
        let Some(answer) = asked.answer else { return Ok(asked.raised) };
        let undone = self.lower(asked.raised).await;
        let message = format!("{}; the interfaces have what they had before", taken(&answer));
        Err((undone, failure(message, Again::Later)))
    }

    /// Sets interfaces down that were set up to ask.
    pub(super) async fn lower(&self, raised: Vec<String>) -> Result<(), Failure> {
        self.kernel.set_up(raised, false).await.map(drop)
    }
}

/// The IPv4 addresses of a plan that are on no interface of this node: one that moves between two would answer for itself.
fn absent(plan: &InterfacePlan, all: &[InterfaceState]) -> BTreeSet<Ipv4Addr> {
    let addresses = plan.addresses.iter().filter_map(|it| match it.addr() {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    });
    addresses.filter(|address| !all.iter().any(|it| it.has_ip(IpAddr::V4(*address)))).collect()
}
