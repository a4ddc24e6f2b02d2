//! The exchanges of a scenario with a server, without values that the server chose.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One scenario's exchanges, step by step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Transcript {
    /// The scenario's area.
    pub area: String,
    /// The scenario's name.
    pub scenario: String,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Why the scenario stopped, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Step {
    /// A request and its answer.
    Exchange(Exchange),
    /// Events of a watch between two other steps.
    Events(Events),
    /// An observation of the scenario itself.
    Note(Note),
}

/// A request and its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exchange {
    /// Method and path with query.
    pub request: String,
    /// Headers that the scenario set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// The body that was sent.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub sent: Value,
    /// The HTTP status of the answer.
    pub status: u16,
    /// The media type of the answer.
    pub content_type: String,
    /// The server's warnings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The body of the answer.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub answer: Value,
}

/// Events of a watch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Events {
    /// The watch's request.
    pub watch: String,
    /// Its events, in order.
    pub events: Vec<Value>,
    /// Whether the server ended the watch after them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
}

/// An observation of the scenario itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Note {
    /// What was observed.
    pub note: String,
    /// The result.
    pub value: Value,
}

impl Step {
    /// The step in a few words, for people.
    pub fn title(&self) -> String {
        match self {
            Self::Exchange(exchange) => exchange.request.clone(),
            Self::Events(events) => format!("events of {}", events.watch),
            Self::Note(note) => note.note.clone(),
        }
    }
}
