//! How many connections there are. To look is work for the kernel that grows with them, so nobody looks more often than one
//! twentieth of the time allows.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tenure_handles::Clock;
use tenure_linux::chain;
use tenure_linux::conntrack::{self, Connections};
use tenure_linux::egress::gateway::GatewayPlan;
use tenure_linux::netns::NetNs;

/// Of the time since the last look at most this part is spent on the next.
const PART: u32 = 20;

/// The last look.
#[derive(Debug, Default)]
pub struct Looks {
    last: Mutex<Option<Look>>,
}

#[derive(Clone, Debug)]
struct Look {
    at: Duration,
    took: Duration,
    found: Option<Connections>,
}

impl Looks {
    /// The connections of clients, looked at no longer ago than `oldest`, unless that would be too often; `None` if the kernel
    /// does not tell. Waits for the kernel.
    pub fn connections(
        &self,
        clock: &dyn Clock,
        plan: &GatewayPlan,
        oldest: Duration,
    ) -> Option<Connections> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock.elapsed();
        if let Some(look) = &*last
            && now < look.at + oldest.max(look.took * PART)
        {
            return look.found.clone();
        }
        let survey = NetNs::current().map_err(conntrack::Error::from);
        let found = match survey.and_then(|namespace| conntrack::survey(&namespace, &plan.addresses)) {
            Ok(found) => Some(found),
            Err(error) => {
                tracing::debug!(error = %chain(&error), "cannot look at connections");
                None
            }
        };
        let at = clock.elapsed();
        *last = Some(Look { at, took: at.saturating_sub(now), found: found.clone() });
        found
    }
}
