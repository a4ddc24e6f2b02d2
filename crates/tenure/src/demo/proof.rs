//! The invariants over random operations: the code by which agent and controller decide, beside a model that
//! only counts.
//!
//! [`Block`] holds and releases addresses, [`Slots`] moves claims from pod to pod, and a restart replays what
//! a journal keeps into an empty block, as an agent does.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tenure_claims::{PodFacts, Slots, Stamp};
use tenure_handles::Timestamp;
use tenure_ipam::{Addresses, Block, Choice, Hold, Notation, Range, Release, Sequence, Space, State};

/// What was checked.
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

/// What the model knows of a holder: the answers that it got.
#[derive(Clone, Copy)]
struct Told {
    addresses: Addresses,
    sequence: Sequence,
}

/// The pods of a claim, the active one first.
#[derive(Default)]
struct Claim {
    slots: Slots,
    pods: Vec<PodFacts>,
}

struct Run {
    random: StdRng,
    now: Timestamp,
    block: Block<u64>,
    /// Holders by number. Each may be a claim.
    held: BTreeMap<u64, Told>,
    /// Those of them that are claims with a pod.
    claims: BTreeMap<u64, Claim>,
    /// When an address was freed, to check that it cooled.
    freed: BTreeMap<String, Timestamp>,
    past: Vec<(u64, Sequence)>,
    /// The hold with the highest number, which a journal keeps even after its end.
    youngest: Option<(u64, Hold)>,
    next_pod: u64,
    proven: Proven,
}

/// Performs `operations` random operations, with a check after each.
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
            held: BTreeMap::new(),
            claims: BTreeMap::new(),
            freed: BTreeMap::new(),
            past: Vec::new(),
            youngest: None,
            next_pod: 1,
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
            _ => self.move_claim(holder),
        }?;
        self.check(holder)
    }

    fn hold(&mut self, holder: u64) -> Result<()> {
        let before = self.block.counts();
        let granted = match self.block.hold(holder, Choice::NextAfterLast, self.now) {
            Ok(granted) => granted,
            Err(error) => {
                ensure!(before.held == before.capacity, "refused with {} held: {error}", before.held);
                return Ok(());
            }
        };
        let hold = granted.hold();
        ensure!(granted.is_new() != self.held.contains_key(&holder), "a repeated hold gave another answer");
        if granted.is_new() {
            let others = self.held.values().find(|told| told.addresses == hold.addresses);
            ensure!(others.is_none(), "{} has two holders", hold.addresses);
            let youngest = self.youngest.replace((holder, hold));
            let grew = youngest.is_none_or(|(_, youngest)| hold.sequence > youngest.sequence);
            ensure!(grew, "number {} was given twice", hold.sequence);
            let freed = self.freed.remove(&hold.addresses.to_string());
            let cooled = freed.is_none_or(|freed| self.now.since(freed) >= COOLING);
            ensure!(cooled || before.free == 0, "{} was reused before it had cooled", hold.addresses);
            self.proven.holds += 1;
        }
        self.held.insert(holder, Told { addresses: hold.addresses, sequence: hold.sequence });
        Ok(())
    }

    fn release(&mut self, holder: u64) -> Result<()> {
        let Some(told) = self.held.remove(&holder) else { return Ok(()) };
        let did = self.block.release(&holder, told.sequence, self.now);
        ensure!(matches!(did, Release::Freed(_)), "a release did {did:?}");
        self.claims.remove(&holder);
        self.past.push((holder, told.sequence));
        self.freed.insert(told.addresses.to_string(), self.now);
        self.proven.releases += 1;
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

    /// Another pod comes for a held claim. It becomes the active one with its signal, or ends before that.
    fn move_claim(&mut self, holder: u64) -> Result<()> {
        let Some(told) = self.held.get(&holder).copied() else { return Ok(()) };
        let number = self.next_pod;
        self.next_pod += 1;
        let claim = self.claims.entry(holder).or_default();
        let before = claim.slots.active.as_ref().map(|slot| slot.uid.clone());
        claim.pods.push(pod(number, self.now));
        claim.settle()?;
        let uid = uid(number);
        match &before {
            None => ensure!(claim.slots.is_active(&uid), "the only pod of a claim is not the active one"),
            Some(before) => ensure!(claim.slots.is_active(before), "a move took place without a signal"),
        }
        if before.is_some() && self.random.random_bool(0.5) {
            claim.pods.retain(|pod| pod.uid != uid);
            claim.settle()?;
            ensure!(claim.slots.incoming.is_none(), "a pod that is gone is still coming in");
            return Ok(());
        }
        if let Some(coming) = claim.pods.iter_mut().find(|pod| pod.uid == uid) {
            coming.mover_stamp = Some(Stamp::new(number.into()));
        }
        claim.settle()?;
        ensure!(claim.slots.is_active(&uid), "a signal moved nothing");
        claim.pods.retain(|pod| pod.uid == uid);
        claim.settle()?;
        ensure!(claim.slots.is_active(&uid) && claim.slots.incoming.is_none(), "the end of a move undid it");
        let hold = self.block.find(&holder).context("a claim that moved holds nothing")?;
        ensure!(hold.addresses == told.addresses, "a move changed the address");
        self.proven.moves += u64::from(before.is_some());
        Ok(())
    }

    /// Checks that the engine and the model agree on a holder.
    fn check(&self, holder: u64) -> Result<()> {
        let counts = self.block.counts();
        ensure!(counts.held == self.held.len() as u128, "{} held, {} known", counts.held, self.held.len());
        ensure!(
            counts.held + counts.cooling + counts.free == counts.capacity,
            "addresses leaked: {counts:?}"
        );
        let (Some(told), Some(hold)) = (self.held.get(&holder), self.block.find(&holder)) else {
            return Ok(());
        };
        for address in hold.addresses.iter() {
            let holds =
                matches!(self.block.state(address)?, State::Held(entry) if *entry.active.key == holder);
            ensure!(holds && told.addresses == hold.addresses, "{address} does not lead back to its holder");
        }
        Ok(())
    }

    /// A restart: an empty block that replays what a journal keeps. Nothing is lost and nothing is added.
    fn restart(&mut self) -> Result<()> {
        self.block.advance(self.now);
        let mut next = Block::new(self.block.space().clone(), self.block.rest());
        let over =
            self.youngest.map(|(key, hold)| (key, hold.addresses, hold.sequence, Timestamp::default()));
        let cooling = self.block.cooling().map(|it| {
            let freed_at = self.freed.get(&it.addresses.to_string()).copied().unwrap_or_default();
            (*it.last.key, it.addresses, it.last.sequence, freed_at)
        });
        for (key, addresses, sequence, freed_at) in over.into_iter().chain(cooling) {
            next.replay(key, first(addresses)?, Some(sequence))?;
            next.release(&key, sequence, freed_at);
        }
        for it in self.block.holds() {
            next.replay(*it.active.key, first(it.addresses)?, Some(it.active.sequence))?;
        }
        next.advance(self.now);
        ensure!(next.holds().eq(self.block.holds()), "a restart changed who holds what");
        ensure!(next.cooling().eq(self.block.cooling()), "a restart changed what cools");
        self.block = next;
        self.proven.restarts += 1;
        Ok(())
    }
}

impl Claim {
    /// Decides which pod has the claim, as the controller does at each run. One run is enough.
    fn settle(&mut self) -> Result<()> {
        let users: Vec<&PodFacts> = self.pods.iter().collect();
        if let Some(next) = self.slots.next(&users) {
            self.slots = Slots::from_annotation(&next.to_annotation())?;
        }
        ensure!(self.slots.next(&users).is_none(), "a second look decided something else");
        let both: Vec<&str> = self.slots.both().map(|slot| slot.uid.as_str()).collect();
        ensure!(both.len() <= 2 && both.first() != both.get(1), "one pod is in both slots");
        Ok(())
    }
}

fn uid(number: u64) -> String {
    format!("pod-{number}")
}

fn pod(number: u64, created: Timestamp) -> PodFacts {
    let node = Some(format!("node-{}", number % 3));
    PodFacts { name: uid(number), uid: uid(number), created, node, ..PodFacts::default() }
}

fn first(addresses: Addresses) -> Result<tenure_ipam::Address> {
    addresses.iter().next().context("a hold has no address")
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
