//! What was measured of one of them.

use std::collections::BTreeMap;

use crate::host::sampled::Sampled;

/// All of it; times in nanoseconds, memory in bytes.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) add: Sampled,
    pub(super) del: Sampled,
    pub(super) add_at_once: Sampled,
    pub(super) del_at_once: Sampled,
    /// From the first DEL of many until the last interface was gone.
    pub(super) gone: Vec<f64>,
    /// Many ADDs at once on a node without blocks.
    pub(super) crowd: Sampled,
    /// One ADD on a node without blocks.
    pub(super) single: Sampled,
    /// ADD and DEL by how many pods were there already.
    pub(super) beside: BTreeMap<usize, (Sampled, Sampled)>,
    /// Of the agent, before and after pods came to other nodes.
    pub(super) memory: Option<(f64, f64)>,
}
