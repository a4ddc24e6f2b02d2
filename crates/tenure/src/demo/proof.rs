//! The invariants over random operations: the engine beside a model that only counts.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tenure_handles::Timestamp;
use tenure_ipam::{Addresses, Block, Choice, MoveId, Notation, Range, Release, Sequence, Slot, Space, State};

/// What was proven.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Proven {
    holds: u64,
    releases: u64,
    late_releases: u64,
    moves: u64,
    restarts: u64,
}

impl fmt::Display for Proven {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "no address had two holders, in {} holds, {} releases, {} late releases, {} moves and {} restarts",
            self.holds, self.releases, self.late_releases, self.moves, self.restarts
        )
    }
}

const COOLING: Duration = Duration::from_secs(10);
const HOLDERS: u64 = 600;

/// What the model knows of a holder: what it was told.
#[derive(Clone, Copy)]
struct Told {
    addresses: Addresses,
    sequence: Sequence,
}

struct Run {
    random: StdRng,
    now: Timestamp,
    block: Block<u64>,
    /// Holders by number, in the active slot.
    active: BTreeMap<u64, Told>,
    /// Moves under way: from whom, to whom, under which number.
    moving: BTreeMap<u64, (u64, MoveId)>,
    /// When an address was freed, to check that it cooled.
    freed: BTreeMap<String, Timestamp>,
    past: Vec<(u64, Sequence)>,
    next_move: u64,
    proven: Proven,
}

/// Does `operations` random operations, checking after each.
pub(crate) fn prove(seed: u64, operations: u64) -> Result<Proven> {
    let bar = ProgressBar::new(operations);
    bar.set_style(ProgressStyle::with_template("   {bar:40} {pos}/{len} operations, {per_sec}")?);
    let mut run = Run::new(seed)?;
    for operation in 0..operations {
        run.step().with_context(|| format!("operation {operation} of seed {seed} broke an invariant"))?;
        if operation % 1_000 == 0 {
            run.restart().with_context(|| format!("restart at operation {operation} of seed {seed}"))?;
            bar.set_position(operation);
        }
    }
    bar.finish_and_clear();
    Ok(run.proven)
}

impl Run {
    fn new(seed: u64) -> Result<Self> {
        let range = |text: &str| Ok::<_, anyhow::Error>(Range::every(Notation::Strict.cidr(text)?));
        let space = Space::pair(range("10.64.0.0/23")?, range("fd64::/119")?)?;
        Ok(Self {
            random: StdRng::seed_from_u64(seed),
            now: Timestamp::from_millis(1_800_000_000_000),
            block: Block::new(space, COOLING),
            active: BTreeMap::new(),
            moving: BTreeMap::new(),
            freed: BTreeMap::new(),
            past: Vec::new(),
            next_move: 1,
            proven: Proven::default(),
        })
    }

    fn step(&mut self) -> Result<()> {
        self.now = self.now.plus(Duration::from_millis(self.random.random_range(0..40)));
        let holder = self.random.random_range(0..HOLDERS);
        match self.random.random_range(0..10) {
            0..4 => self.hold(holder),
            4..7 => self.release(holder),
            7 => self.late_release(),
            8 => self.begin(holder),
            _ => self.settle(),
        }?;
        self.check(holder)
    }

    fn hold(&mut self, holder: u64) -> Result<()> {
        if self.moving.values().any(|(to, _)| *to == holder) {
            return Ok(());
        }
        let before = self.block.counts();
        let granted = match self.block.hold(holder, Choice::NextAfterLast, self.now) {
            Ok(granted) => granted,
            Err(error) => {
                ensure!(before.held == before.capacity, "refused with {} held: {error}", before.held);
                return Ok(());
            }
        };
        let hold = granted.hold();
        ensure!(granted.is_new() != self.active.contains_key(&holder), "a repeated hold gave another answer");
        if granted.is_new() {
            let others = self.active.values().find(|told| told.addresses == hold.addresses);
            ensure!(others.is_none(), "{} has two holders", hold.addresses);
            let freed = self.freed.remove(&hold.addresses.to_string());
            let cooled = freed.is_none_or(|freed| self.now.since(freed) >= COOLING);
            ensure!(cooled || before.free == 0, "{} was reused before it had cooled", hold.addresses);
            self.proven.holds += 1;
        }
        self.active.insert(holder, Told { addresses: hold.addresses, sequence: hold.sequence });
        Ok(())
    }

    fn release(&mut self, holder: u64) -> Result<()> {
        let Some(told) = self.active.remove(&holder) else { return Ok(()) };
        let did = self.block.release(&holder, told.sequence, self.now);
        self.past.push((holder, told.sequence));
        self.proven.releases += 1;
        match self.moving.remove(&holder) {
            None => {
                ensure!(matches!(did, Release::Freed(_)), "a release did {did:?}");
                self.freed.insert(told.addresses.to_string(), self.now);
            }
            Some((to, _)) => {
                ensure!(matches!(did, Release::HandedOver(_)), "a release during a move did {did:?}");
                self.arrive(to, told.addresses)?;
            }
        }
        Ok(())
    }

    fn late_release(&mut self) -> Result<()> {
        if self.past.is_empty() {
            return Ok(());
        }
        let place = self.random.random_range(0..self.past.len());
        let (holder, sequence) = self.past.swap_remove(place);
        let did = self.block.release(&holder, sequence, self.now);
        ensure!(did == Release::Nothing, "a late release did {did:?}");
        self.proven.late_releases += 1;
        Ok(())
    }

    fn begin(&mut self, from: u64) -> Result<()> {
        let to = HOLDERS + self.next_move;
        let Some(told) = self.active.get(&from).filter(|_| !self.moving.contains_key(&from)) else {
            return Ok(());
        };
        let id = MoveId(self.next_move);
        self.next_move += 1;
        let incoming = self.block.begin_move(&from, told.sequence, to, id)?.hold();
        ensure!(
            incoming.slot == Slot::Incoming && incoming.addresses == told.addresses,
            "a move began elsewhere"
        );
        self.moving.insert(from, (to, id));
        Ok(())
    }

    /// Commits or aborts some move.
    fn settle(&mut self) -> Result<()> {
        let Some((from, (to, id))) = self.moving.pop_first() else { return Ok(()) };
        if self.random.random_bool(0.5) {
            self.block.abort_move(&to, id)?;
            return Ok(());
        }
        self.block.commit_move(&to, id)?;
        let told = self.active.remove(&from).context("the mover is known")?;
        self.past.push((from, told.sequence));
        self.proven.moves += 1;
        self.arrive(to, told.addresses)
    }

    /// The incoming holder has the address now. It leaves soon, so that the usual holders meet again.
    fn arrive(&mut self, to: u64, addresses: Addresses) -> Result<()> {
        let hold = self.block.find(&to).context("the incoming holder holds nothing")?;
        ensure!(hold.addresses == addresses && hold.slot == Slot::Active, "a move changed the address");
        let did = self.block.release(&to, hold.sequence, self.now);
        ensure!(matches!(did, Release::Freed(_)), "a release after a move did {did:?}");
        self.freed.insert(addresses.to_string(), self.now);
        self.past.push((to, hold.sequence));
        Ok(())
    }

    /// What the engine says of a holder is what the model knows.
    fn check(&self, holder: u64) -> Result<()> {
        let counts = self.block.counts();
        ensure!(
            counts.held == self.active.len() as u128,
            "{} held, {} known",
            counts.held,
            self.active.len()
        );
        ensure!(
            counts.held + counts.cooling + counts.free == counts.capacity,
            "addresses leaked: {counts:?}"
        );
        let (Some(told), Some(hold)) = (self.active.get(&holder), self.block.find(&holder)) else {
            return Ok(());
        };
        for address in hold.addresses.iter() {
            let holds =
                matches!(self.block.state(address)?, State::Held(entry) if *entry.active.key == holder);
            ensure!(holds && told.addresses == hold.addresses, "{address} does not lead back to its holder");
        }
        Ok(())
    }

    /// A restart: what was written is what is read, byte for byte.
    fn restart(&mut self) -> Result<()> {
        let bytes = self.block.snapshot();
        self.block = Block::restore(&bytes)?;
        ensure!(self.block.snapshot() == bytes, "a restart changed the state");
        self.proven.restarts += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::prove;

    #[test]
    fn the_same_seed_proves_the_same_thing() {
        let (one, other) = (prove(11, 20_000).unwrap(), prove(11, 20_000).unwrap());
        assert_eq!(one, other);
        assert!(one.holds > 1_000 && one.moves > 100 && one.late_releases > 100, "{one:?}");
    }
}
