//! The engine beside the straightforward allocator: a sorted map walked from the bottom.

use std::hint::black_box;
use std::time::Duration;

use tenure_handles::Timestamp;
use tenure_ipam::{Address, Block, Choice, Cidr, Exclusion, Family, Range, Release};

use crate::baseline::SortedMap;
use crate::measure::{Effort, alternate, time};
use crate::report::{Report, Unit};

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const EIGHT: u8 = 8;

/// A holder as the agent names it: 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Holder(u128);

/// All figures of the engine.
pub(crate) fn measure(effort: Effort) -> Report {
    // First, while nothing was freed that the map could use again.
    let memory = bytes_a_hold(1_000_000);
    let mut report = Report::new("The engine: one operation, of as many holds as releases", "sorted map");
    for held in [0, 10_000, 1_000_000] {
        for (name, choice) in
            [("next after the last", Choice::NextAfterLast), ("lowest free", Choice::LowestFree)]
        {
            let (ours, peer) = hold_and_release(effort, held, choice);
            let what = format!("hold and release, {name}, {held} held");
            report.less_is_better(&what, ours, peer, Unit::Nanoseconds, "< 200 ns, flat");
        }
    }
    let (ours, peer) = random_turnover(effort);
    let what = "a random one of 1000000 holders goes and comes back";
    report.less_is_better(what, ours, peer, Unit::Nanoseconds, "no cache helps");
    let (ours, peer) = last_free_of_an_eight(effort);
    report.less_is_better("the last free address of a /8", ours, peer, Unit::Nanoseconds, "flat");
    let (ours, peer) = behind_exclusions(effort);
    report.less_is_better("behind 100,000 exclusions", ours, peer, Unit::Nanoseconds, "flat");
    let (ours, peer) = memory;
    report.less_is_better("memory a held address, 1000000 held", ours, peer, Unit::Bytes, "< 40 B");
    report
}

fn ten_slash(prefix: u8) -> Option<Cidr> {
    Cidr::new(Address::new(Family::V4, 0x0a00_0000)?, prefix)
}

fn block(prefix: u8) -> Block<Holder> {
    let any = Cidr::host(Address::highest(Family::V4));
    Block::new(Range::every(ten_slash(prefix).unwrap_or(any)), Duration::ZERO)
}

/// One hold and one release with `held` others; the release is half of the figure's two operations.
fn hold_and_release(effort: Effort, held: u64, choice: Choice) -> (f64, f64) {
    let mut ours = block(EIGHT);
    for holder in 0..held {
        hold(&mut ours, u128::from(holder), Choice::LowestFree);
    }
    let mut peer = SortedMap::new(1 << 24, Vec::new());
    for holder in 0..held {
        peer.hold_at(holder, u128::from(holder));
    }
    let (our_turns, peer_turns) = (100_000, if held > 100_000 { 3 } else { 300 });
    let (one, other) = alternate(
        effort,
        || time(2 * our_turns, || (0..our_turns).for_each(|turn| turn_over(&mut ours, turn, choice))),
        || {
            time(2 * peer_turns, || {
                for turn in 0..peer_turns {
                    let holder = u128::MAX - u128::from(turn);
                    black_box(peer.hold(holder));
                    black_box(peer.release(holder));
                }
            })
        },
    );
    (one, other)
}

fn hold(block: &mut Block<Holder>, holder: u128, choice: Choice) {
    let _ = black_box(block.hold(Holder(holder), choice, NOW));
}

fn turn_over(block: &mut Block<Holder>, turn: u64, choice: Choice) {
    let holder = Holder(u128::MAX - u128::from(turn));
    if let Ok(granted) = block.hold(holder, choice, NOW) {
        let released = block.release(&holder, granted.hold().sequence, NOW);
        debug_assert!(matches!(released, Release::Freed(_)));
    }
}

/// A release and a hold of a random holder among a million: what it costs when nothing is in the processor's caches.
fn random_turnover(effort: Effort) -> (f64, f64) {
    const HELD: u64 = 1_000_000;
    let mut ours = block(EIGHT);
    let mut peer = SortedMap::new(1 << 24, Vec::new());
    for holder in 0..HELD {
        hold(&mut ours, u128::from(holder), Choice::LowestFree);
        peer.hold_at(holder, u128::from(holder));
    }
    // A multiplicative step of a full period over the holders: every one comes, none twice in a row.
    let mut next = 1_u64;
    let mut random = move || {
        next = (next * 641_421 + 11) % HELD;
        u128::from(next)
    };
    let mut other = random;
    alternate(
        effort,
        || {
            time(20_000, || {
                for _ in 0..10_000 {
                    let holder = Holder(random());
                    if let Some(held) = ours.find(&holder) {
                        black_box(ours.release(&holder, held.sequence, NOW));
                    }
                    hold(&mut ours, holder.0, Choice::NextAfterLast);
                }
            })
        },
        || {
            time(6, || {
                for _ in 0..3 {
                    let holder = other();
                    black_box((peer.release(holder), peer.hold(holder)));
                }
            })
        },
    )
}

/// A /8 of which every address but the last is taken.
fn last_free_of_an_eight(effort: Effort) -> (f64, f64) {
    let Some(cidr) = ten_slash(EIGHT) else { return (f64::NAN, f64::NAN) };
    let mut ours = block(EIGHT);
    let _ = ours.reserve(cidr.first(), cidr.last().wrapping_previous());
    let last = (1 << 24) - 1;
    let mut peer = SortedMap::new(1 << 24, Vec::new());
    (0..last).for_each(|offset| peer.hold_at(offset, u128::from(offset)));
    alternate(
        effort,
        || time(20_000, || (0..10_000).for_each(|turn| turn_over(&mut ours, turn, Choice::LowestFree))),
        || time(2, || _ = black_box((peer.hold(u128::MAX), peer.release(u128::MAX)))),
    )
}

/// A /8 whose first free address lies behind 100,000 excluded ones, each excluded by itself, every second address.
fn behind_exclusions(effort: Effort) -> (f64, f64) {
    let Some(cidr) = ten_slash(EIGHT) else { return (f64::NAN, f64::NAN) };
    let count: u64 = 100_000;
    let single =
        |n: u64| cidr.nth(u128::from(n) * 2).ok().map(|address| Exclusion::from(Cidr::host(address)));
    let mut ours = Block::new(Range::every(cidr).without((0..count).filter_map(single)), Duration::ZERO);
    let mut peer = SortedMap::new(1 << 24, (0..count).map(|n| (n * 2, n * 2)).collect());
    for n in 0..count {
        hold(&mut ours, u128::from(n), Choice::LowestFree);
        peer.hold_at(n * 2 + 1, u128::from(n));
    }
    alternate(
        effort,
        || time(20_000, || (0..10_000).for_each(|turn| turn_over(&mut ours, turn, Choice::LowestFree))),
        || time(2, || _ = black_box((peer.hold(u128::MAX), peer.release(u128::MAX)))),
    )
}

/// Bytes a held address. Ours counts all indexes itself; the sorted map, which has no index by holder, is measured by
/// how much the process grew.
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn bytes_a_hold(held: u64) -> (f64, f64) {
    let mut ours = block(EIGHT);
    for holder in 0..held {
        hold(&mut ours, u128::from(holder) << 64 | u128::from(holder), Choice::NextAfterLast);
    }
    let before = resident();
    let mut peer = SortedMap::new(1 << 24, Vec::new());
    for holder in 0..held {
        peer.hold_at(holder, u128::from(holder));
    }
    let grown = resident().saturating_sub(before);
    black_box(&peer);
    (ours.memory() as f64 / held as f64, grown as f64 / held as f64)
}

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}
