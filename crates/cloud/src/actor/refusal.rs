//! What the cloud refuses at an interface whatever is tried, until somebody changes something: rights, quotas, ranges of the subnet.
//!
//! It stands until the cloud has done what it refused, or nobody wants that any more.

use std::collections::BTreeSet;

use super::Actor;
use crate::error::{CloudError, ErrorKind};
use crate::interface::AliasRange;

/// What the cloud refuses at an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The ranges that it does not add, remove or read.
    pub ranges: BTreeSet<AliasRange>,
    /// Why not.
    pub error: CloudError,
}

/// The last refusal, and what it was about.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    /// Nothing if the interface could not be read: then it is about all of them.
    ranges: Option<BTreeSet<AliasRange>>,
    error: CloudError,
}

impl Actor {
    /// The cloud has refused a request about these ranges, or a read. What passes by itself is no refusal, nor what one machine has.
    pub(super) fn note_refusal(&mut self, ranges: Option<&BTreeSet<AliasRange>>, error: &CloudError) {
        if matches!(error.kind, ErrorKind::Capacity | ErrorKind::Denied | ErrorKind::Invalid(_)) {
            let mut ranges = ranges.cloned();
            // Bad ranges are found one by one.
            if let (Some(ranges), Some(before)) = (&mut ranges, self.refused.take())
                && before.error.kind.is_like(error.kind)
            {
                ranges.extend(before.ranges.into_iter().flatten());
            }
            self.refused = Some(Refused { ranges, error: error.clone() });
        }
    }

    /// The interface was read.
    pub(super) fn note_read(&mut self) {
        if self.refused.as_ref().is_some_and(|refused| refused.ranges.is_none()) || self.refusal().is_none() {
            self.refused = None;
        }
    }

    /// What the cloud refuses here at present.
    pub fn refusal(&self) -> Option<Refusal> {
        let Refused { ranges, error } = self.refused.as_ref()?;
        let there = |range: &AliasRange| self.known.aliases.contains(range);
        let ranges: BTreeSet<AliasRange> = match ranges {
            None => self.wanted.keys().chain(self.surplus().iter()).cloned().collect(),
            // What was removed by an update that failed may be there.
            Some(ranges) => {
                let undone = |range: &&AliasRange| {
                    there(range) != self.wanted.contains_key(*range) || self.doubt.contains(*range)
                };
                ranges.iter().filter(undone).cloned().collect()
            }
        };
        (!ranges.is_empty()).then(|| Refusal { ranges, error: error.clone() })
    }
}
