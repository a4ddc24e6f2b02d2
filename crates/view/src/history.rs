//! Who had which address when: the JSON that an agent serves at `/v1/history`, and the form in which its log keeps it.

use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Claim, Holder};

/// The path of the page. Its query names an `address`, a `pod` (`namespace/name`) or a `container` (the beginning of its ID), and
/// optionally `from` and `to` (RFC 3339).
pub const HISTORY_PATH: &str = "/v1/history";

/// An agent's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct History {
    /// The node.
    pub node: String,
    /// When it was asked, by its clock.
    pub time: Timestamp,
    /// When its log begins; `None` if the log is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begins: Option<Timestamp>,
    /// The periods in which somebody had what was asked about, oldest first.
    pub periods: Vec<Period>,
    /// Whether there are more, older ones than one answer may have.
    pub more: bool,
    /// What the log cannot know of the time that was asked about.
    pub gaps: Vec<Gap>,
}

/// A time in which a holder had addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Period {
    /// The holder.
    #[serde(flatten)]
    pub holder: Holder,
    /// Which of several holds of the same interface it is, counted from 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub part: u64,
    /// The pool; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pool: String,
    /// The block's name; empty for addresses of claims, and if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub block: String,
    /// The UID of the block; empty for addresses of claims.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub block_uid: String,
    /// The hold's number in its block.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sequence: u64,
    /// The claim that owns the addresses, if any, and whether packets arrived at this holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
    /// The addresses, IPv4 before IPv6.
    pub addresses: Vec<IpAddr>,
    /// Since when; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// Until when; `None` if it has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Timestamp>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
    /// If nobody saw it end: when it certainly still lasted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Timestamp>,
}

/// How a period ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum End {
    /// The holder's addresses were released.
    Released,
    /// Another holder on the node got the addresses, or the holder got others.
    Replaced,
    /// Of a claim's addresses: the holder keeps them, and packets began or ceased to arrive at it.
    Moved,
    /// Nobody saw it: the agent found at its start that it was over.
    Unseen,
    /// In a way that a newer agent knows.
    #[serde(other)]
    Other,
}

/// A time of which the log cannot know all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gap {
    /// What happened.
    pub kind: GapKind,
    /// From when; `None` for the beginning of time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// Until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Timestamp>,
    /// The same in one sentence.
    pub message: String,
}

/// Why a log cannot know all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum GapKind {
    /// The time is before the log begins.
    Before,
    /// No agent wrote the log.
    Down,
    /// Records were not written.
    Lost,
    /// Records cannot be read any more.
    Damaged,
    /// The agent could not be asked: said by those who ask.
    Unreachable,
    /// In a way that a newer agent knows.
    #[serde(other)]
    Other,
}

/// Whether a holder had addresses at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Had {
    /// It had not.
    No,
    /// It may have had: nobody saw the beginning or the end.
    Maybe,
    /// It had.
    Yes,
}

impl Period {
    /// Whether the holder had the addresses at a moment. A period includes its first moment, and not its last.
    pub fn had(&self, at: Timestamp) -> Had {
        if self.from.is_some_and(|from| at < from) || self.to.is_some_and(|to| at >= to) {
            return Had::No;
        }
        match (self.from, self.end, self.seen) {
            (None, ..) | (_, Some(End::Unseen), None) => Had::Maybe,
            (_, Some(End::Unseen), Some(seen)) if at > seen => Had::Maybe,
            _ => Had::Yes,
        }
    }

    /// Whether it has a moment in common with this time. `None` is the beginning and the end of time.
    pub fn overlaps(&self, from: Option<Timestamp>, to: Option<Timestamp>) -> bool {
        let begins_in_time = to.zip(self.from).is_none_or(|(to, begin)| begin <= to);
        let ends_in_time = from.zip(self.to).is_none_or(|(from, end)| end > from);
        begins_in_time && ends_in_time
    }

    /// Whether packets arrived at the holder. They arrive at only one of a claim's holders.
    pub fn is_reached(&self) -> bool {
        self.claim.as_ref().is_none_or(|claim| claim.reached)
    }
}

impl Gap {
    /// Whether it has a moment in common with this time.
    pub fn overlaps(&self, from: Option<Timestamp>, to: Option<Timestamp>) -> bool {
        to.zip(self.from).is_none_or(|(to, begin)| begin <= to)
            && from.zip(self.to).is_none_or(|(from, end)| end >= from)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_period_has_its_first_moment_and_not_its_last() {
        let period =
            Period { from: Some(at(10)), to: Some(at(20)), end: Some(End::Released), ..Period::default() };
        let had: Vec<Had> = [9, 10, 19, 20].map(|second| period.had(at(second))).into();
        assert_eq!(had, [Had::No, Had::Yes, Had::Yes, Had::No]);
        let open = Period { to: None, end: None, ..period };
        assert_eq!(open.had(at(1_000_000)), Had::Yes);
        assert_eq!(Period { from: None, ..open }.had(at(1)), Had::Maybe, "nobody knows since when");
    }

    #[test]
    fn what_nobody_saw_end_is_certain_only_as_long_as_it_was_seen() {
        let period = Period {
            from: Some(at(10)),
            to: Some(at(30)),
            end: Some(End::Unseen),
            seen: Some(at(20)),
            ..Period::default()
        };
        assert_eq!([20, 21, 30].map(|second| period.had(at(second))), [Had::Yes, Had::Maybe, Had::No]);
    }

    #[test]
    fn what_a_newer_agent_says_is_read() {
        let text = r#"{"node":"n","time":"2026-11-15T09:00:00Z","periods":[{"addresses":["10.0.0.1"],"end":"evaporated",
            "from":"2026-11-15T08:00:00Z"}],"gaps":[{"kind":"eclipse","message":"it was dark"}],"unheardOf":1}"#;
        let history: History = serde_json::from_str(text).unwrap();
        assert_eq!((history.periods[0].end, history.gaps[0].kind), (Some(End::Other), GapKind::Other));
    }
}
