//! Which pods have a claim now: the state machine of moves.
//!
//! ```text
//!              a pod comes                     another comes (the move begins)
//!   ┌───────┐ ────────────▶ ┌────────────────┐ ────────────▶ ┌──────────────────────────────┐
//!   │ empty │               │   active: A    │               │  active: A     incoming: B   │
//!   └───────┘ ◀──────────── └────────────────┘ ◀──────────── └──────────────────────────────┘
//!             A is gone or         ▲    B is gone or finished (abort)     │
//!             has finished         │                                     │ commit: B's signal is newer than A's and than
//!                                  │                                     ▼ the last, or A is leaving: one swap
//!                                  │                          ┌──────────────────────────────┐
//!                                  └───────────────────────── │  active: B     incoming: A   │
//!                                   A is gone or finished     └──────────────────────────────┘
//! ```
//!
//! The slots are one annotation of the claim, written with its resource version, so a swap is one write and there are never two
//! active pods. [`Slots::next`] looks at the present state, not at what happened: any leader may call it again at any time, and
//! it repeats nothing. A signal is a stamp that grows; one that is not newer than that of the last commit does nothing, however
//! often it comes and goes. A pod whose arrival is the signal ([`PodFacts::arrives`]) gives it once, when it has not been active yet:
//! times of creation are whole seconds of several clocks, so they do not say which of two pods came later.

use serde::{Deserialize, Serialize};

use crate::pod::PodFacts;
use crate::stamp::Stamp;

/// A pod that has the claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// Its name, in the namespace of the claim.
    pub pod: String,
    /// Its UID: a pod of the same name with another UID is another pod.
    pub uid: String,
    /// Its node.
    pub node: String,
    /// The newest signal for it when it became active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamp: Option<Stamp>,
}

/// Which pods have a claim now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slots {
    /// The pod that traffic arrives at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<Slot>,
    /// The pod that it will arrive at next; after a commit the previous one, until that is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incoming: Option<Slot>,
    /// How often another pod became the active one.
    #[serde(default)]
    pub number: u64,
    /// The newest stamp of a commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Stamp>,
}

/// An unreadable annotation. It counts as empty: the slots are computed again from the pods.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "annotation tenure/holders cannot be read: {problem}; it is taken for empty, and written again from the pods that are there"
)]
pub struct SlotsError {
    /// What is wrong.
    pub problem: String,
}

impl Slots {
    /// The next slots, if they differ from the present ones. `users` are all existing pods of the claim's
    /// namespace that refer to the claim **or are in its slots**: one that is not in the list is gone. A pod
    /// whose node is not known yet is not admitted.
    ///
    /// All consequences of the present state follow at once: calling this again with the result returns
    /// `None`.
    #[must_use]
    pub fn next(&self, users: &[&PodFacts]) -> Option<Self> {
        let mut next = self.clone();
        // Each commit is to a pod that stays, by a stamp newer than all before, so this settles after at most
        // four rounds.
        for _ in 0..8 {
            let before = next.clone();
            next.abort(users);
            next.commit(users);
            next.empty(users);
            next.admit(users);
            if next == before {
                break;
            }
        }
        let active = |slots: &Self| slots.active.as_ref().map(|slot| slot.uid.clone());
        if next.active.is_some() && active(&next) != active(self) {
            next.number = next.number.saturating_add(1);
        }
        (next != *self).then_some(next)
    }

    /// Reads the annotation. One that names a pod twice, or a pod without a UID, is invalid.
    pub fn from_annotation(text: &str) -> Result<Self, SlotsError> {
        let failed = |problem: String| SlotsError { problem };
        if !text.trim_start().starts_with('{') {
            return Err(failed("it is no JSON object".to_owned()));
        }
        let slots: Self = serde_json::from_str(text).map_err(|error| failed(error.to_string()))?;
        let uids: Vec<&str> = slots.both().map(|slot| slot.uid.as_str()).collect();
        if uids.contains(&"") {
            return Err(failed("a pod has no UID".to_owned()));
        }
        if let [one, other] = uids[..]
            && one == other
        {
            return Err(failed(format!("pod UID \"{one}\" is in both slots")));
        }
        Ok(slots)
    }

    /// The annotation.
    pub fn to_annotation(&self) -> String {
        // A struct of texts and numbers can always be written; an empty text would count as unreadable.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether a pod is in one of the slots, by its UID.
    pub fn has(&self, uid: &str) -> bool {
        self.both().any(|slot| slot.uid == uid)
    }

    /// Whether a pod is the active one, by its UID.
    pub fn is_active(&self, uid: &str) -> bool {
        self.active.as_ref().is_some_and(|slot| slot.uid == uid)
    }

    /// The pods that have it, the active one first.
    pub fn both(&self) -> impl Iterator<Item = &Slot> {
        self.active.iter().chain(&self.incoming)
    }

    /// The incoming pod is gone.
    fn abort(&mut self, users: &[&PodFacts]) {
        if self.incoming.as_ref().is_some_and(|slot| find(users, slot).is_none_or(|pod| pod.finished)) {
            self.incoming = None;
        }
    }

    /// Swaps the two: only with an admitted pod that stays.
    fn commit(&mut self, users: &[&PodFacts]) {
        let Some(target) =
            self.incoming.as_ref().and_then(|slot| find(users, slot)).filter(|pod| !pod.is_leaving())
        else {
            return;
        };
        let source = self.active.as_ref().map(|slot| (slot, find(users, slot)));
        let leaving = source.as_ref().is_none_or(|(_, pod)| pod.is_none_or(PodFacts::is_leaving));
        let arrived = source.as_ref().is_some_and(|(_, pod)| pod.is_some_and(|pod| pod.arrives));
        let arrivals = target.arrives || arrived;
        let of_source = source.and_then(|(slot, pod)| slot.stamp.max(pod.and_then(signal)));
        let of_target = signal(target);
        let newer = of_target.is_some() && of_target > of_source.max(self.last);
        // Only a pod that was active has a stamp in its slot.
        let arrives = target.arrives && self.incoming.as_ref().is_some_and(|slot| slot.stamp.is_none());
        if !newer && !leaving && !arrives {
            return;
        }
        std::mem::swap(&mut self.active, &mut self.incoming);
        if let Some(active) = &mut self.active {
            active.stamp = active.stamp.max(of_target);
        }
        self.last = self.last.max(of_target);
        // The arrival of the previous one is over, too.
        if let Some(previous) = self.incoming.as_mut().filter(|_| arrivals) {
            previous.stamp = previous.stamp.max(self.last);
        }
        self.abort(users);
    }

    /// The active pod is gone, and no staying pod can follow. An admitted one is still better than none.
    fn empty(&mut self, users: &[&PodFacts]) {
        if self.active.as_ref().is_some_and(|slot| find(users, slot).is_none_or(|pod| pod.finished)) {
            self.active = self.incoming.take();
        }
    }

    /// Admits the oldest pods first, and one that is being deleted only if nobody else would be active. The
    /// others wait for a slot.
    fn admit(&mut self, users: &[&PodFacts]) {
        let mut waiting: Vec<(&PodFacts, &String)> = users
            .iter()
            .filter(|pod| !pod.finished && !pod.uid.is_empty() && !self.has(&pod.uid))
            .filter_map(|pod| pod.node.as_ref().filter(|node| !node.is_empty()).map(|node| (*pod, node)))
            .collect();
        waiting.sort_by_key(|(pod, _)| (pod.deleting, pod.created, &pod.name, &pod.uid));
        for (pod, node) in waiting {
            let slot = Slot { pod: pod.name.clone(), uid: pod.uid.clone(), node: node.clone(), stamp: None };
            if self.has(&pod.uid) {
                continue;
            }
            if self.active.is_none() {
                self.active = Some(Slot { stamp: signal(pod), ..slot });
            } else if self.incoming.is_none() && !pod.deleting {
                self.incoming = Some(slot);
            }
        }
    }
}

fn find<'p>(users: &[&'p PodFacts], slot: &Slot) -> Option<&'p PodFacts> {
    users.iter().copied().find(|pod| pod.uid == slot.uid)
}

/// The signal that a pod should be active, with its time: KubeVirt's that the machine is ready there, or else
/// another mover's.
fn signal(pod: &PodFacts) -> Option<Stamp> {
    pod.launcher.as_ref().and_then(|launcher| launcher.ready_at).or(pod.mover_stamp)
}

#[cfg(test)]
mod proptests;
#[cfg(test)]
mod tests;
