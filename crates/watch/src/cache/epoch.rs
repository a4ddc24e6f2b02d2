//! When lists of a kind began and ended, to tell whether the answer to a call may be older than a list.
//!
//! After a list, the watch shows every later change. So an answer is needed only to learn of a change early, and it must not count if
//! it may be older than what the list left out: the object may be gone, and no event would say so again. An answer counts if no
//! list was under way from the call until the answer. Then the deletion of its object is still to come, or was heard.

/// How many lists began and ended so far, counted together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(u64);

impl Epoch {
    /// A list begins. One that was under way failed.
    pub fn begin(&mut self) {
        self.0 += if self.is_list() { 2 } else { 1 };
    }

    /// The list is complete.
    pub fn finish(&mut self) {
        self.0 += u64::from(self.is_list());
    }

    /// Whether no list was under way at any time from `call` until now.
    pub fn is_quiet_since(self, call: Self) -> bool {
        self == call && !self.is_list()
    }

    fn is_list(self) -> bool {
        self.0 % 2 == 1
    }
}
