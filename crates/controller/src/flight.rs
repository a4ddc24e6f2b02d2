//! Writes that are under way: one for each object, so that a slow one delays its own object and nothing else.
//!
//! The API server may take ten seconds for a write and none for the next. What has been under way for [`SLOW`] does not count
//! against the usual number of writes at once, so that others go on; all together are bounded.
//!
//! Objects are independent but for one case: how a range is cut. Whether a range is open for all is one object, who has which
//! slice of it another, and each is decided by a live look at the other. So those of a later plan wait for those of an earlier one.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use kube::ResourceExt;

use crate::act::{Learned, Outcome};
use crate::events::Note;
use crate::write::{ClaimWrite, LedgerWrite, Write};

/// How long a write takes at least that is called slow.
const SLOW: Duration = Duration::from_secs(1);
/// So many times the usual number of writes are under way at most.
const MOST: usize = 8;

/// A write, and what is needed when its answer comes.
pub(crate) struct Sent {
    pub(crate) write: Write,
    /// How often the world had changed when it was planned.
    pub(crate) known: u64,
    /// What it gives to tell once it is done.
    pub(crate) notes: Vec<Note>,
}

/// What became of a write.
pub(crate) struct Landed {
    pub(crate) sent: Sent,
    pub(crate) outcome: Outcome,
    pub(crate) learned: Option<Learned>,
}

struct UnderWay {
    since: Duration,
    /// The number of the plan it is of, if it is about how a range is cut.
    cuts: Option<u64>,
    /// The block that will be there, or be promised, when it is done, and whether it is floating.
    block: Option<(String, bool)>,
}

/// All writes that are under way. Dropping them gives them up.
pub(crate) struct Flights {
    usual: usize,
    under_way: HashMap<String, UnderWay>,
    answers: FuturesUnordered<BoxFuture<'static, Landed>>,
}

impl Flights {
    /// So many at once, unless they are slow.
    pub(crate) fn new(usual: usize) -> Self {
        Self { usual: usual.max(1), under_way: HashMap::new(), answers: FuturesUnordered::new() }
    }

    /// Whether none is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Whether one more may begin.
    pub(crate) fn has_room(&self, now: Duration) -> bool {
        let fresh = self.under_way.values().filter(|it| now.saturating_sub(it.since) < SLOW);
        self.under_way.len() < self.usual * MOST && fresh.count() < self.usual
    }

    /// Whether this write of this plan may begin beside those that are under way.
    pub(crate) fn may_begin(&self, write: &Write, plan: u64) -> bool {
        let earlier = |it: &UnderWay| it.cuts.is_some_and(|of| of != plan);
        let waits = cuts(write) && self.under_way.values().any(earlier);
        !waits && !self.under_way.contains_key(write.subject())
    }

    /// A write begins; `act` makes the calls.
    pub(crate) fn begin<F>(&mut self, sent: Sent, plan: u64, now: Duration, act: impl FnOnce(Write) -> F)
    where
        F: Future<Output = (Outcome, Option<Learned>)> + Send + 'static,
    {
        let cuts = cuts(&sent.write).then_some(plan);
        let under_way = UnderWay { since: now, cuts, block: block(&sent.write) };
        self.under_way.insert(sent.write.subject().to_owned(), under_way);
        let act = act(sent.write.clone());
        let landed = act.map(|(outcome, learned)| Landed { sent, outcome, learned });
        self.answers.push(landed.boxed());
    }

    /// The next that lands; for ever if none is under way.
    pub(crate) async fn next(&mut self) -> Landed {
        loop {
            match self.answers.next().await {
                Some(landed) => {
                    self.under_way.remove(landed.sent.write.subject());
                    return landed;
                }
                None => std::future::pending::<()>().await,
            }
        }
    }

    /// Gives up all of them.
    pub(crate) fn clear(&mut self) {
        self.under_way.clear();
        self.answers.clear();
    }

    /// The blocks that will be there, or be promised, when all is done, and whether they are floating.
    pub(crate) fn blocks(&self) -> BTreeMap<String, bool> {
        self.under_way.values().filter_map(|it| it.block.clone()).collect()
    }
}

fn cuts(write: &Write) -> bool {
    use LedgerWrite::{DropSlices, Guard, Mark, Slices};
    let of_ranges = matches!(
        write,
        Write::Ledger(
            Guard { .. } | Mark { .. } | Slices { .. } | DropSlices { .. } | LedgerWrite::DropLedger { .. }
        )
    );
    of_ranges || matches!(write, Write::Claim(ClaimWrite::Slice { .. } | ClaimWrite::DropLedger { .. }))
}

fn block(write: &Write) -> Option<(String, bool)> {
    match write {
        Write::Reserve { block, .. } => Some((block.clone(), false)),
        Write::Create { block } => Some((block.name_any(), block.is_floating())),
        _ => None,
    }
}
