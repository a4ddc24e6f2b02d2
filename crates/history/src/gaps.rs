//! The times of which the log cannot know all.

use std::collections::VecDeque;

use jiff::Timestamp;
use tenure_view::{End, Gap, GapKind};

use crate::line::{Entry, What};

/// How many gaps are remembered, and how many an answer has; the youngest.
const MOST: usize = 1_000;
const MOST_IN_ANSWER: usize = 50;

/// The gaps of a log, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    all: VecDeque<Gap>,
    /// When the log was last known to have all that was open, and whether an agent wrote more after it.
    last: Option<Timestamp>,
    running: bool,
    /// Lines since then that cannot be read.
    damaged: u64,
}

impl Gaps {
    /// When the log was last known to have all that was open.
    pub fn last(&self) -> Option<Timestamp> {
        self.last
    }

    /// Notes an entry, in the order in which they were written.
    pub fn entry(&mut self, entry: &Entry) {
        let at = entry.at;
        let damaged = std::mem::take(&mut self.damaged);
        if damaged > 0 {
            let message = format!(
                "{damaged} lines of its log are damaged, which were written {}",
                span(self.last, Some(at))
            );
            self.push(GapKind::Damaged, self.last, at, message);
        }
        match &entry.what {
            What::Started { .. } => {
                if let Some(last) = self.last {
                    let how = if self.running { "was killed, or wrote no history," } else { "did not run" };
                    let message = format!(
                        "its agent {how} {}: what ended then is seen as ended at the end of that time",
                        span(Some(last), Some(at))
                    );
                    self.push(GapKind::Down, Some(last), at, message);
                }
            }
            What::Lost { count, from } => {
                let message = format!("{count} records could not be written {}", span(Some(*from), Some(at)));
                self.push(GapKind::Lost, Some(*from), at, message);
            }
            _ => {}
        }
        self.running = !matches!(entry.what, What::Stopped {});
        // What a start finds to be over says nothing of what it has not found yet.
        if !is_unseen(&entry.what) {
            self.last = self.last.max(Some(at));
        }
    }

    /// Notes a line that cannot be read.
    pub fn damaged(&mut self) {
        self.damaged += 1;
    }

    /// The gaps of a time, oldest first; the log begins at `begins`, and it is `now`.
    pub fn of(
        &self,
        (from, to): (Option<Timestamp>, Option<Timestamp>),
        begins: Option<Timestamp>,
        now: Timestamp,
    ) -> Vec<Gap> {
        let before = Gap {
            kind: GapKind::Before,
            from: None,
            to: begins.or(Some(now)),
            message: match begins {
                Some(begins) => format!("its log begins at {begins}"),
                None => "its log is empty".to_owned(),
            },
        };
        let is_before = from.is_none_or(|from| begins.is_none_or(|begins| from < begins));
        let mut found: Vec<Gap> =
            self.all.iter().rev().filter(|gap| gap.overlaps(from, to)).cloned().collect();
        found.truncate(MOST_IN_ANSWER);
        found.extend(is_before.then_some(before));
        found.reverse();
        found
    }

    fn push(&mut self, kind: GapKind, from: Option<Timestamp>, to: Timestamp, message: String) {
        if self.all.len() == MOST {
            self.all.pop_front();
        }
        self.all.push_back(Gap { kind, from, to: Some(to), message });
    }
}

/// Whether an entry says that nobody saw an end.
pub(crate) fn is_unseen(what: &What) -> bool {
    matches!(what, What::Ended(period) if period.end == Some(End::Unseen))
}

fn span(from: Option<Timestamp>, to: Option<Timestamp>) -> String {
    match (from, to) {
        (Some(from), Some(to)) => format!("between {from} and {to}"),
        (None, Some(to)) => format!("before {to}"),
        (Some(from), None) => format!("after {from}"),
        (None, None) => "at an unknown time".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    fn kinds(gaps: &Gaps, from: i64, to: i64) -> Vec<GapKind> {
        gaps.of((Some(at(from)), Some(at(to))), Some(at(10)), at(100)).iter().map(|gap| gap.kind).collect()
    }

    #[test]
    fn what_a_log_cannot_know_is_said_for_the_time_that_is_asked_about_and_for_no_other() {
        let mut gaps = Gaps::default();
        let started = || What::Started { node: "n".into(), boot: "b".into(), version: "1".into() };
        for (second, what) in [
            (10, started()),
            (20, What::Alive {}),
            (30, started()),
            (50, What::Lost { count: 3, from: at(40) }),
            (60, What::Stopped {}),
            (70, started()),
        ] {
            gaps.entry(&Entry { at: at(second), what });
        }
        gaps.damaged();
        gaps.damaged();
        gaps.entry(&Entry { at: at(80), what: What::Alive {} });
        assert_eq!(kinds(&gaps, 5, 5), [GapKind::Before]);
        assert_eq!(kinds(&gaps, 15, 15), []);
        assert_eq!(kinds(&gaps, 25, 25), [GapKind::Down]);
        assert_eq!(kinds(&gaps, 45, 45), [GapKind::Lost]);
        assert_eq!(kinds(&gaps, 55, 65), [GapKind::Down]);
        assert_eq!(kinds(&gaps, 75, 75), [GapKind::Damaged]);
        assert_eq!(kinds(&gaps, 90, 95), []);
        let all = gaps.of((None, None), Some(at(10)), at(100));
        let said: Vec<&str> = all.iter().map(|gap| gap.message.as_str()).collect();
        assert_eq!(
            said,
            [
                "its log begins at 1970-01-01T00:00:10Z",
                "its agent was killed, or wrote no history, between 1970-01-01T00:00:20Z and 1970-01-01T00:00:30Z: what ended \
                 then is seen as ended at the end of that time",
                "3 records could not be written between 1970-01-01T00:00:40Z and 1970-01-01T00:00:50Z",
                "its agent did not run between 1970-01-01T00:01:00Z and 1970-01-01T00:01:10Z: what ended then is seen as ended \
                 at the end of that time",
                "2 lines of its log are damaged, which were written between 1970-01-01T00:01:10Z and 1970-01-01T00:01:20Z",
            ]
        );
        assert_eq!(Gaps::default().of((None, None), None, at(5))[0].message, "its log is empty");
    }
}
