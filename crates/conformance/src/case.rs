//! The format of a case file.

use serde::Deserialize;
use serde_json::Value;

/// A whole file; what else stands in it is for people.
#[derive(Debug, Deserialize)]
pub(crate) struct CaseFile {
    pub(crate) cases: Vec<Case>,
}

/// One input with the answer that a peer gives.
#[derive(Debug, Deserialize)]
pub(crate) struct Case {
    /// Names the case in reports.
    pub(crate) id: String,
    /// What is asked, for example `iterate`.
    pub(crate) kind: String,
    /// What the answer binds us to.
    pub(crate) class: Class,
    /// The question; its fields depend on the kind.
    pub(crate) input: Value,
    /// The peer's answer.
    pub(crate) expect: Value,
}

/// What an answer binds us to.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Class {
    /// We must agree.
    Contract,
    /// We must agree for L2 ranges; with `enable_l3` the answer is another.
    ContractL2Only,
    /// True of the peer, and a defect or wart: we agree with our own decision.
    Quirk,
    /// Semantics of the fork whose extensions we took over: we must agree.
    ForkExtension,
}
