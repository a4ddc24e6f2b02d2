//! Why a policy is not carried out: where the problem is, what it is, and what would be accepted.

/// A refusal repeats no more characters than this of what it refuses: it becomes a condition's message.
const LONGEST: usize = 300;

/// A part of a policy that is not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}; accepted {accepted}")]
pub struct Refusal {
    /// The part, as a path such as `desiredState.interfaces[0].ipv4.dhcp`.
    pub place: String,
    /// What is wrong with it, with its value.
    pub problem: String,
    /// What would be accepted.
    pub accepted: String,
    /// Whether the same policy may be carried out later.
    pub kind: Kind,
}

/// Whether trying again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The policy itself is not understood.
    Invalid,
    /// The policy is understood, and the node does not have what it refers to, at present.
    NotFound,
}

impl Refusal {
    /// A policy that is not understood.
    pub fn new(place: impl Into<String>, problem: impl Into<String>, accepted: impl Into<String>) -> Self {
        Self {
            place: shortened(place.into()),
            problem: shortened(problem.into()),
            accepted: accepted.into(),
            kind: Kind::Invalid,
        }
    }

    /// A policy that refers to what the node does not have.
    pub fn not_found(
        place: impl Into<String>,
        problem: impl Into<String>,
        accepted: impl Into<String>,
    ) -> Self {
        Self { kind: Kind::NotFound, ..Self::new(place, problem, accepted) }
    }
}

fn shortened(text: String) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text,
    }
}
