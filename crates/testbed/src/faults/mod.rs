//! The layer between a client and an API server that delays, loses, repeats and refuses requests, holds watches back,
//! and counts.
//!
//! It works on any service that a [`kube::Client`] takes: the real server's and the embedded one's.
//!
//! ```no_run
//! # use tenure_testbed::control_plane::ControlPlane;
//! # use tenure_testbed::faults::{Calls, Faults, Rule, Verb};
//! # fn example(plane: ControlPlane) -> Result<(), Box<dyn std::error::Error>> {
//! let faults = Faults::seeded(42);
//! let client = plane.client_with(&faults)?;
//! let lost = faults.add(Rule::lose_answer().on(Calls::of(Verb::Create).to("pods")).percent(10));
//! let held = faults.hold_watches(Calls::all().to("pods"));
//! // …
//! drop(held);
//! assert!(faults.struck(lost) > 0, "a fault that never happened proves nothing");
//! # Ok(()) }
//! ```
//!
//! Chance comes from one seeded source and is drawn in the order in which requests arrive, so that a run replays.

mod body;
mod call;
mod layer;
mod rule;
mod watches;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::client::Body;
use tenure_handles::{Entropy, SeededEntropy};
use tower::Layer as _;

pub use body::FaultBody;
pub use call::{Call, Calls, Verb};
pub use layer::{FaultLayer, FaultService, Lost};
pub use rule::{Answer, Rule};
pub use watches::Hold;

use rule::Plan;
use watches::{End, Watches};

/// The faults between one or more clients and their server. Clones are the same faults.
#[derive(Clone)]
pub struct Faults {
    shared: Arc<Shared>,
}

struct Shared {
    entropy: Box<dyn Entropy>,
    state: Mutex<State>,
    watches: Arc<Watches>,
}

#[derive(Default)]
struct State {
    rules: Vec<Active>,
    added: u64,
    tallies: BTreeMap<Kind, Tally>,
}

/// A rule and its counts.
struct Active {
    id: RuleId,
    rule: Rule,
    seen: u64,
    struck: u64,
}

/// An added rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleId(u64);

/// The key by which requests are counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    verb: Verb,
    group: String,
    resource: String,
    subresource: String,
}

/// How many requests there were, and how many reached the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests that clients made.
    pub asked: u64,
    /// Requests that were forwarded: fewer if some were lost or refused, more if some were repeated.
    pub sent: u64,
}

impl Faults {
    /// No faults yet; chance will come from `seed`.
    pub fn seeded(seed: u64) -> Self {
        Self::new(SeededEntropy::new(seed))
    }

    /// No faults yet; chance will come from `entropy`.
    pub fn new(entropy: impl Entropy) -> Self {
        let shared = Shared { entropy: Box::new(entropy), state: Mutex::default(), watches: Arc::default() };
        Self { shared: Arc::new(shared) }
    }

    /// The layer, for [`kube::client::ClientBuilder::with_layer`] or any other stack of services.
    pub fn layer(&self) -> FaultLayer {
        FaultLayer::new(self.clone())
    }

    /// A client of `service` with these faults in between; for a service that is not reached over a network, such as the
    /// embedded API server.
    pub fn client<S, B>(&self, service: S, default_namespace: &str) -> kube::Client
    where
        S: tower::Service<http::Request<Body>, Response = http::Response<B>> + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Into<tower::BoxError>,
        B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
        B::Error: Into<tower::BoxError>,
    {
        kube::Client::new(self.layer().layer(service), default_namespace)
    }

    /// Adds a rule. If several apply to one request, their delays add up, and the first of the others counts.
    pub fn add(&self, rule: Rule) -> RuleId {
        let mut state = self.state();
        state.added += 1;
        let id = RuleId(state.added);
        state.rules.push(Active { id, rule, seen: 0, struck: 0 });
        id
    }

    /// Removes a rule; a delay that has begun continues.
    pub fn remove(&self, rule: RuleId) {
        self.state().rules.retain(|active| active.id != rule);
    }

    /// Removes all rules. Held watches stay held.
    pub fn clear(&self) {
        self.state().rules.clear();
    }

    /// How often a rule was applied; 0 for a removed one.
    pub fn struck(&self, rule: RuleId) -> u64 {
        self.state().rules.iter().find(|active| active.id == rule).map_or(0, |active| active.struck)
    }

    /// Holds back the events of these watches, open and new ones, until the result is dropped. Then they
    /// arrive, in order and without a gap.
    #[must_use = "watches are held for as long as this is kept"]
    pub fn hold_watches(&self, of: Calls) -> Hold {
        Watches::hold(&self.shared.watches, of)
    }

    /// Breaks these watches off like a lost connection. Held ones, too.
    pub fn cut_watches(&self, of: &Calls) {
        self.shared.watches.end(of, End::Cut);
    }

    /// Ends these watches as if the server had forgotten their version, so that everything must be listed
    /// again.
    pub fn expire_watches(&self, of: &Calls) {
        self.shared.watches.end(of, End::Expired);
    }

    /// How many requests match `calls`. Names and paths are not counted separately, so those of `calls` are
    /// ignored here.
    pub fn tally(&self, calls: &Calls) -> Tally {
        let state = self.state();
        let of_it = state
            .tallies
            .iter()
            .filter(|(kind, _)| calls.describes_kind(kind.verb, &kind.resource, &kind.subresource));
        of_it.fold(Tally::default(), |sum, (_, tally)| Tally {
            asked: sum.asked + tally.asked,
            sent: sum.sent + tally.sent,
        })
    }

    /// Resets all counts.
    pub fn reset_tallies(&self) {
        self.state().tallies.clear();
    }

    /// The plan for `call`.
    fn plan(&self, call: &Call) -> Plan {
        let mut state = self.state();
        state.tally(call).asked += 1;
        let mut plan = Plan::default();
        for active in &mut state.rules {
            if !active.rule.calls.describes(call) {
                continue;
            }
            active.seen += 1;
            // Chance is drawn for every request that the rule matches, so that a rule that was applied often
            // enough does not change what is drawn for the next.
            let chosen = active.rule.is_drawn(&*self.shared.entropy);
            if chosen
                && active.seen > active.rule.after
                && active.struck < active.rule.times
                && plan.include(&active.rule, &*self.shared.entropy)
            {
                active.struck += 1;
            }
        }
        plan
    }

    /// Counts a forwarded request.
    fn sent(&self, call: &Call) {
        self.state().tally(call).sent += 1;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn tally(&mut self, call: &Call) -> &mut Tally {
        let kind = Kind {
            verb: call.verb,
            group: call.group.clone(),
            resource: call.resource.clone(),
            subresource: call.subresource.clone(),
        };
        self.tallies.entry(kind).or_default()
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        let rules: Vec<&Rule> = state.rules.iter().map(|active| &active.rule).collect();
        formatter
            .debug_struct("Faults")
            .field("rules", &rules)
            .field("tallies", &state.tallies)
            .finish_non_exhaustive()
    }
}
