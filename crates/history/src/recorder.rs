//! What is logged: which holds are open, and what each change means for them.
//!
//! A change may be told twice, as after a restart, or never, as when it was dropped. So a holder's change is compared with what is
//! open: what is said again is not logged again, and what is open and cannot be any more is closed.
//!
//! An open hold is known by its key: network, container, interface and part have one hold at a time. The addresses of a block
//! have one holder at a time. Those of a claim may have two during a move, and packets arrive at one of them: whenever that
//! changes, a period ends and another begins.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use tenure_view::{End, Period};

use crate::line::{Entry, What};

/// What happened to a holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// When.
    pub at: Timestamp,
    /// The hold. It ended if it has an end.
    pub period: Period,
}

/// The open holds.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    open: BTreeMap<Key, Period>,
    /// Who has the addresses of a block.
    holders: BTreeMap<Place, Key>,
}

/// Network, container, interface and part.
type Key = (String, String, String, u64);
/// Addresses of a block.
type Place = (String, Vec<IpAddr>);

fn key(period: &Period) -> Key {
    let holder = &period.holder;
    (holder.network.clone(), holder.container.clone(), holder.interface.clone(), period.part)
}

fn place(period: &Period) -> Option<Place> {
    period.claim.is_none().then(|| (period.block_uid.clone(), period.addresses.clone()))
}

impl Recorder {
    /// The open holds.
    pub fn open(&self) -> impl Iterator<Item = &Period> {
        self.open.values()
    }

    /// Reads an entry of the log again.
    pub fn replay(&mut self, what: What) {
        match what {
            What::Held(period) => self.insert(period),
            What::Ended(period) => {
                let key = key(&period);
                if self.open.get(&key).is_some_and(|open| open.from == period.from || is_of(open, &period)) {
                    self.remove(&key);
                }
            }
            _ => {}
        }
    }

    /// Takes a change; returns what to log.
    pub fn take(&mut self, change: Change) -> Vec<Entry> {
        let Change { at, period } = change;
        let mut logged = Vec::new();
        if period.end.is_some() {
            logged.push(What::Ended(self.end(period)));
        } else {
            self.begin(period, at, &mut logged);
        }
        logged.into_iter().map(|what| Entry { at, what }).collect()
    }

    /// Compares with all that is held now, as an agent knows at its start. `seen` is when the log was last written.
    pub fn compare(&mut self, held: Vec<Period>, at: Timestamp, seen: Option<Timestamp>) -> Vec<Entry> {
        let mut logged = Vec::new();
        let now: BTreeMap<Key, &Period> = held.iter().map(|period| (key(period), period)).collect();
        let over = |(key, open): (&Key, &Period)| {
            now.get(key).is_none_or(|held| !is_of(open, held)).then(|| key.clone())
        };
        let over: Vec<Key> = self.open.iter().filter_map(over).collect();
        for key in over {
            let Some(open) = self.remove(&key) else { continue };
            // The hold may be younger than what was last written.
            let seen = seen.max(open.from).map(|seen| seen.min(at));
            logged.push(What::Ended(Period { to: Some(at), end: Some(End::Unseen), seen, ..open }));
        }
        for period in held {
            self.begin(period, at, &mut logged);
        }
        logged.into_iter().map(|what| Entry { at, what }).collect()
    }

    fn begin(&mut self, mut period: Period, at: Timestamp, logged: &mut Vec<What>) {
        let key = key(&period);
        if let Some(open) = self.open.get_mut(&key) {
            if is_same(open, &period) {
                // It is said again, perhaps by somebody who knows more.
                let from = open.from.or(period.from);
                let open = std::mem::replace(open, Period { from, ..period });
                self.moved(&key, &open);
                return;
            }
            let moved = open.claim.is_some() && is_of(open, &period);
            if moved {
                // The claim's holder stays, and a new period begins.
                period.from = Some(at);
            }
            let end = if moved { End::Moved } else { End::Replaced };
            self.close(&key, end, period.from.unwrap_or(at), logged);
        }
        let holder = place(&period).and_then(|place| self.holders.get(&place).cloned());
        if let Some(other) = holder {
            self.close(&other, End::Replaced, period.from.unwrap_or(at), logged);
        }
        self.insert(period.clone());
        logged.push(What::Held(period));
    }

    /// The whole period of a hold that ended. What is told may know less of its beginning.
    fn end(&mut self, ended: Period) -> Period {
        let key = key(&ended);
        match self.open.get(&key) {
            Some(open) if is_of(open, &ended) => {
                let open = self.remove(&key).unwrap_or_default();
                Period { to: ended.to.max(open.from), end: ended.end, ..open }
            }
            // A late end never touches a successor.
            _ => ended,
        }
    }

    fn close(&mut self, key: &Key, end: End, to: Timestamp, logged: &mut Vec<What>) {
        // The same hold under another name has not ended.
        if let Some(open) = self.remove(key).filter(|open| open.from.is_none_or(|from| from < to)) {
            logged.push(What::Ended(Period { to: Some(to), end: Some(end), ..open }));
        }
    }

    fn insert(&mut self, period: Period) {
        let key = key(&period);
        self.remove(&key);
        if let Some(other) = place(&period).and_then(|place| self.holders.insert(place, key.clone())) {
            self.open.remove(&other);
        }
        self.open.insert(key, period);
    }

    fn remove(&mut self, key: &Key) -> Option<Period> {
        let open = self.open.remove(key)?;
        if let Some(place) = place(&open)
            && self.holders.get(&place) == Some(key)
        {
            self.holders.remove(&place);
        }
        Some(open)
    }

    /// An open hold has another block than before: one that was lost and is known by another name.
    fn moved(&mut self, key: &Key, before: &Period) {
        if let Some(place) = place(before) {
            self.holders.remove(&place);
        }
        if let Some(place) = self.open.get(key).and_then(place) {
            self.holders.insert(place, key.clone());
        }
    }
}

/// Whether both are the same period of the same key, as far as can be told.
fn is_same(open: &Period, said: &Period) -> bool {
    is_of(open, said) && open.is_reached() == said.is_reached()
}

/// Whether both are of the same hold of the same key.
fn is_of(open: &Period, said: &Period) -> bool {
    let uid = |period: &Period| period.claim.as_ref().map(|claim| claim.uid.clone());
    let numbered = open.block_uid != said.block_uid || open.sequence == said.sequence;
    uid(open) == uid(said) && open.addresses == said.addresses && numbered
}

#[cfg(test)]
mod tests;
