//! From the routes that are to the routes that should be, with the fewest changes.
//!
//! Used by everything that owns a set of routes: the pod table, the export table, the routes to other nodes.

use std::collections::BTreeSet;

use ipnet::IpNet;

use crate::route::Route;
use crate::socket::{Error, Refusal, Request, Socket};

/// What bringing routes into order came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Routes that were made.
    pub added: Vec<Route>,
    /// Routes that were removed.
    pub removed: Vec<Route>,
    /// Routes that the kernel would not make or remove; all others were dealt with nevertheless.
    pub refused: Vec<(Route, Refusal)>,
}

impl Changes {
    /// Whether all was in order already.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.refused.is_empty()
    }
}

/// The routes to make and those to remove: `same` says of two routes whether one does for the other.
pub(crate) fn difference(
    wanted: &BTreeSet<Route>,
    actual: &[Route],
    same: impl Fn(&Route, &Route) -> bool,
) -> (Vec<Route>, Vec<Route>) {
    let mut missing = wanted.clone();
    let mut surplus = Vec::new();
    for route in actual {
        // Every comparison that is in use wants the same destination, and of one destination there are few.
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
    }
}

/// Compares with what `list` finds and puts it right.
///
/// A route that only changes is replaced by its new version, in one step, and then there is no old one left to remove.
/// Whether it was so, a second look tells; removing it blindly could hit the new version.
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

/// Two do, unless someone else writes to the same routes at the same time.
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
            },
        )
    }

    proptest! {
        /// Whatever is there: after removing the surplus and adding the missing, exactly the wanted set is there.
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
