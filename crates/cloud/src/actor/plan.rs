//! The next update of an interface: the difference between what is wanted and what is there, in one direction.

use std::collections::BTreeSet;

use tenure_handles::Timestamp;

use super::planted::Planted;
use super::{Action, Actor, Attachment, Step};
use crate::cloud::Update;
use crate::interface::AliasRange;

impl Actor {
    /// The next step of an actor without an update under way that has just read its interface.
    pub(super) fn plan(
        &mut self,
        now: Timestamp,
        elsewhere: &dyn Fn(&AliasRange) -> bool,
        request: &dyn Fn() -> String,
    ) -> Step {
        if let Some((range, want)) = self.wanted.iter().find(|(_, want)| want.find_owner) {
            return Step::Do(Action::Owner(range.clone(), want.page.clone()));
        }
        let surplus = self.surplus();
        let (missing, later) = self.missing(now, elsewhere);
        if surplus.is_empty() && missing.is_empty() {
            (self.changed, self.failures) = (None, 0);
            return self.look_later(now, later);
        }
        // Whatever else is wanted within this time goes along.
        if let Some(begin) =
            self.changed.map(|changed| changed.plus(self.options.gather)).filter(|begin| now < *begin)
        {
            return Step::Until(begin);
        }
        let room = self.room();
        let remove = !surplus.is_empty() && (missing.is_empty() || self.added_last || room < missing.len());
        if remove {
            return Step::Do(Action::Apply(self.update_with(BTreeSet::new(), surplus, request)));
        }
        let fits = room.min(self.most);
        let added: BTreeSet<AliasRange> = missing.iter().take(fits).cloned().collect();
        if room < missing.len() {
            self.say_full(missing.get(room..).unwrap_or_default());
        }
        if added.is_empty() {
            self.changed = None;
            return self.look_later(now, later);
        }
        Step::Do(Action::Apply(self.update_with(added, BTreeSet::new(), request)))
    }

    /// Ours, there, and not wanted.
    pub(super) fn surplus(&self) -> BTreeSet<AliasRange> {
        let surplus = |range: &&AliasRange| self.is_ours(range) && !self.wanted.contains_key(*range);
        self.known.aliases.iter().filter(surplus).cloned().collect()
    }

    /// Wanted and not there, in the order in which they were asked for; and when more of them may be tried again.
    fn missing(
        &self,
        now: Timestamp,
        elsewhere: &dyn Fn(&AliasRange) -> bool,
    ) -> (Vec<AliasRange>, Option<Timestamp>) {
        let wants = self.wanted.iter().filter(|(range, _)| !self.known.aliases.contains(*range));
        let wants = wants.filter(|(range, _)| self.has(Planted::NoOrder) || !elsewhere(range));
        let (ready, waiting): (Vec<_>, Vec<_>) = wants.partition(|(_, want)| want.not_before <= now);
        let mut ready = ready;
        ready.sort_by_key(|(_, want)| want.number);
        let later = waiting.into_iter().map(|(_, want)| want.not_before).min();
        (ready.into_iter().map(|(range, _)| range.clone()).collect(), later)
    }

    /// The next time at which something can have changed without an event.
    fn look_later(&mut self, now: Timestamp, later: Option<Timestamp>) -> Step {
        let look = self.known.read.unwrap_or(now).plus(self.options.look);
        if look <= now {
            self.known.version = None;
            return Step::Do(Action::Observe);
        }
        Step::Until(later.map_or(look, |later| later.min(look)))
    }

    /// So many ranges the interface takes, as far as is known.
    pub fn limit(&self) -> usize {
        self.known.limit.map_or(self.options.limit, |limit| limit.min(self.options.limit))
    }

    fn room(&self) -> usize {
        if self.has(Planted::NoLimit) {
            return usize::MAX;
        }
        self.limit().saturating_sub(self.known.aliases.len())
    }

    fn say_full(&mut self, without: &[AliasRange]) {
        let others = self.known.aliases.iter().filter(|range| !self.is_ours(range)).count();
        let why = format!(
            "{} takes {} alias ranges at most, and {others} of others and {} of pods fill it: spread the pods over more machines, or \
             attach blocks (attach: block)",
            self.id,
            self.limit(),
            self.limit().saturating_sub(others)
        );
        for range in without {
            if let Some(want) = self.wanted.get_mut(range) {
                want.refused = Some(why.clone());
            }
        }
    }

    fn update_with(
        &self,
        added: BTreeSet<AliasRange>,
        removed: BTreeSet<AliasRange>,
        request: &dyn Fn() -> String,
    ) -> Update {
        let removed = if self.has(Planted::MixedUpdate) { self.surplus() } else { removed };
        let kept = self.known.aliases.iter().filter(|range| !removed.contains(*range));
        let kept = kept.filter(|range| !self.has(Planted::ForgetsOthers) || self.is_ours(range));
        Update {
            interface: self.id.clone(),
            aliases: kept.chain(&added).cloned().collect(),
            added,
            removed,
            version: self.known.version.clone().unwrap_or_default(),
            request: request(),
        }
    }

    /// The same request again.
    pub(super) fn again(&self, update: &Update, request: &dyn Fn() -> String) -> Update {
        let mut again = update.clone();
        if self.has(Planted::NewRequest) {
            again.request = request();
        }
        again
    }

    pub(super) fn is_ours(&self, range: &AliasRange) -> bool {
        self.managed.iter().any(|managed| managed.has(range))
    }

    /// Whether all that is wanted is there, and nothing else of ours.
    pub fn is_settled(&self) -> bool {
        let attached = |range| self.attachment(range) == Attachment::Attached;
        self.wanted.keys().all(attached) && self.surplus().is_empty() && self.update().is_none()
    }
}
