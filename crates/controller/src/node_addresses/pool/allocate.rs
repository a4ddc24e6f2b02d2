//! Which address a waiting enactment gets, and how long a freed one cools.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure_api::nmstate::{CoolingOffsets, KeptOffset, NodeIPPoolStatus, NodeRange};
use tenure_handles::Timestamp;
use tenure_ipam::Choice;

use super::{Around, of};
use crate::node_addresses::known::EnactmentFacts;

/// How many offsets cool at most; the oldest become free.
const COOLING: usize = 8192;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Taken(u128),
    Rests(u128),
    For(String, usize),
}

pub(super) struct Allocated<'a> {
    pub(super) granted: Vec<(&'a EnactmentFacts, Vec<u128>)>,
    pub(super) left: Vec<(&'a str, &'a str)>,
}

/// Gives every waiting enactment what is kept for it, and further addresses while there are some.
pub(super) fn allocate<'a>(
    range: &NodeRange,
    taken: &BTreeSet<u128>,
    (cooling, kept): (&mut Vec<CoolingOffsets>, &[KeptOffset]),
    around: &Around<'_>,
    waiting: &[(&'a EnactmentFacts, usize)],
    rest: Duration,
    now: Timestamp,
) -> Allocated<'a> {
    let mut block = range.block::<Key>(rest);
    for offset in taken {
        if let Ok(address) = range.address(*offset) {
            // Every offset exists once.
            _ = block.replay(Key::Taken(*offset), address, None);
        }
    }
    for group in cooling.iter() {
        let until = Timestamp::from_jiff(group.until.0);
        let freed = Timestamp::from_millis(until.as_millis().saturating_sub(millis(rest)));
        for offset in group.offsets.iter().filter_map(|offset| u128::try_from(*offset).ok()) {
            let address = range.address(offset).ok();
            let replayed = address.and_then(|it| block.replay(Key::Rests(offset), it, None).ok());
            if let Some(replayed) = replayed {
                block.release(&Key::Rests(offset), replayed.hold().sequence, freed);
            }
        }
    }
    for (address, _, _) in &around.reported {
        _ = block.reserve(*address, *address);
    }
    for address in &around.elsewhere {
        _ = block.reserve(*address, *address);
    }
    for (first, last) in &around.of_pods {
        _ = block.reserve(*first, *last);
    }
    let mut allocated = Allocated { granted: Vec::new(), left: Vec::new() };
    for (facts, count) in waiting {
        let own = kept.iter().filter(|it| it.enactment == facts.at.name);
        let own = own.filter_map(|it| u128::try_from(it.offset).ok());
        let own: Vec<u128> = own.take(*count).collect();
        let count = &(count - own.len());
        let keys = (0..*count).map(|number| Key::For(facts.at.uid.clone(), number));
        let holds: Option<Vec<u128>> = keys
            .map(|key| {
                let granted = block.hold(key, Choice::LowestFree, now).ok()?;
                range.offset(granted.hold().addresses.iter().next()?).ok()
            })
            .collect();
        if let Some(offsets) = holds {
            allocated.granted.push((facts, own.into_iter().chain(offsets).collect()));
            continue;
        }
        // All or nothing: what a node cannot use stays for the next.
        for number in 0..*count {
            let key = Key::For(facts.at.uid.clone(), number);
            if let Some(hold) = block.find(&key) {
                block.release(&key, hold.sequence, now);
            }
        }
        allocated.left.push(of(facts));
    }
    let given: BTreeSet<i64> = allocated
        .granted
        .iter()
        .flat_map(|(_, offsets)| offsets)
        .filter_map(|offset| i64::try_from(*offset).ok())
        .collect();
    for group in cooling.iter_mut() {
        group.offsets.retain(|offset| !given.contains(offset));
    }
    cooling.retain(|group| !group.offsets.is_empty());
    allocated
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// What still cools, without offsets in use.
pub(super) fn still_cooling(
    status: &NodeIPPoolStatus,
    taken: &BTreeSet<u128>,
    now: Timestamp,
) -> Vec<CoolingOffsets> {
    let groups = status.cooling.iter().filter(|group| Timestamp::from_jiff(group.until.0) > now);
    let mut groups: Vec<CoolingOffsets> = groups.cloned().collect();
    for group in &mut groups {
        group.offsets.retain(|offset| u128::try_from(*offset).is_ok_and(|offset| !taken.contains(&offset)));
    }
    groups.retain(|group| !group.offsets.is_empty());
    groups.sort_by_key(|group| group.until.0);
    groups
}

/// Limits the record: the offsets that have cooled longest become free at once.
pub(super) fn bound(cooling: &mut Vec<CoolingOffsets>) {
    let mut count = 0;
    for group in cooling.iter_mut().rev() {
        let keep = COOLING.saturating_sub(count).min(group.offsets.len());
        group.offsets.drain(..group.offsets.len() - keep);
        count += keep;
    }
    cooling.retain(|group| !group.offsets.is_empty());
}
