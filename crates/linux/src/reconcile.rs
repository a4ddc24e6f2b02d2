//! Brings existing routes to the wanted set with the fewest changes.
//!
//! Everything that owns a set of routes uses it: the pod table, the export table, the routes to other nodes.

use std::collections::BTreeSet;

use ipnet::IpNet;

use crate::route::Route;
use crate::socket::{Error, Refusal, Request, Socket};

/// The result of a reconciliation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Routes that were added.
    pub added: Vec<Route>,
    /// Routes that were removed.
    pub removed: Vec<Route>,
    /// Routes that the kernel refused to add or remove; the others were still processed.
    pub refused: Vec<(Route, Refusal)>,
}

impl Changes {
    /// Whether nothing had to change.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.refused.is_empty()
    }
}

/// The routes to add and to remove; `same` tells whether one route can serve as another.
pub(crate) fn difference(
    wanted: &BTreeSet<Route>,
    actual: &[Route],
    same: impl Fn(&Route, &Route) -> bool,
) -> (Vec<Route>, Vec<Route>) {
    let mut missing = wanted.clone();
    let mut surplus = Vec::new();
    for route in actual {
        // Every comparison in use requires the same destination, and few routes share one.
        let mut candidates = missing.range(first(route)..);
        let kept = candidates
            .by_ref()
            .take_while(|w| w.destination == route.destination)
            .find(|w| same(w, route))
            .copied();
        match kept {
            Some(kept) => {
                missing.remove(&kept);
            }
            None => surplus.push(*route),
        }
    }
    (missing.into_iter().collect(), surplus)
}

/// The smallest route of the same destination, in the order of `Route`.
fn first(route: &Route) -> Route {
    Route {
        destination: route.destination,
        table: 0,
        protocol: 0,
        link: None,
        gateway: None,
        metric: 0,
        source: None,
        mtu: 0,
    }
}

/// Compares with the routes that `list` returns, and corrects them.
///
/// A changed route is replaced in one step, and then there is no old one to remove. Only a second list can tell: removing the
/// old one blindly could remove its replacement.
pub(crate) fn converge(
    socket: &mut Socket,
    wanted: &BTreeSet<Route>,
    list: impl Fn(&mut Socket) -> Result<Vec<Route>, Error>,
    same: impl Fn(&Route, &Route) -> bool,
) -> Result<Changes, Error> {
    let mut changes = Changes::default();
    for _ in 0..PASSES {
        let (missing, mut surplus) = difference(wanted, &list(socket)?, &same);
        let places: BTreeSet<IpNet> = missing.iter().map(|route| route.destination).collect();
        let before = surplus.len();
        surplus.retain(|route| !places.contains(&route.destination));
        let look_again = surplus.len() < before;
        carry_out(socket, &missing, &surplus, &mut changes)?;
        if !look_again || !changes.refused.is_empty() {
            break;
        }
    }
    Ok(changes)
}

/// Two passes suffice, unless someone else changes the same routes at the same time.
const PASSES: usize = 4;

fn carry_out(
    socket: &mut Socket,
    missing: &[Route],
    surplus: &[Route],
    changes: &mut Changes,
) -> Result<(), Error> {
    let requests: Vec<Request> =
        missing.iter().map(Route::put).chain(surplus.iter().map(Route::remove)).collect();
    let outcomes = socket.exchange(&requests)?;
    for (position, (request, outcome)) in requests.iter().zip(outcomes).enumerate() {
        let (done, route) = match missing.get(position) {
            Some(route) => (&mut changes.added, route),
            None => (&mut changes.removed, &surplus[position - missing.len()]),
        };
        match outcome {
            Err(refusal) if !request.tolerates(refusal.errno) => changes.refused.push((*route, refusal)),
            _ => done.push(*route),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn arbitrary_route() -> impl Strategy<Value = Route> {
        (0..6u8, 0..3u8, prop::option::of(1..3u32), prop::option::of(1..3u8), 0..2u32).prop_map(
            |(net, protocol, link, gateway, metric)| Route {
                destination: format!("10.0.{net}.0/24").parse().unwrap(),
                table: 119,
                protocol,
                link,
                gateway: gateway.map(|last| [192, 0, 2, last].into()),
                metric,
                source: None,
                mtu: 0,
            },
        )
    }

    proptest! {
        /// From any state: removing the surplus and adding the missing routes results in exactly the wanted set.
        #[test]
        fn the_difference_leads_from_any_state_to_the_wanted_one(
            wanted in prop::collection::btree_set(arbitrary_route(), 0..8),
            actual in prop::collection::vec(arbitrary_route(), 0..8),
        ) {
            let (missing, surplus) = difference(&wanted, &actual, |a, b| a == b);
            let mut after = actual.clone();
            for route in &surplus {
                let at = after.iter().position(|r| r == route).unwrap();
                after.remove(at);
            }
            after.extend(&missing);
            after.sort();
            prop_assert_eq!(after, wanted.iter().copied().collect::<Vec<_>>());
        }

        #[test]
        fn what_is_in_order_is_left_alone(wanted in prop::collection::btree_set(arbitrary_route(), 0..8)) {
            let actual: Vec<Route> = wanted.iter().copied().collect();
            prop_assert_eq!(difference(&wanted, &actual, |a, b| a == b), (vec![], vec![]));
        }
    }
}
