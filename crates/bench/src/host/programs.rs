//! Our own programs, as they are installed.

use std::path::PathBuf;

use anyhow::Result;

use super::stripped::stripped_size;

/// Where they are.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    /// `tenured`.
    pub(crate) agent: PathBuf,
    /// `tenure-controller`.
    pub(crate) controller: PathBuf,
    /// `tenure-cni`.
    pub(crate) plugin: PathBuf,
}

impl Programs {
    /// The sizes of plugin, agent and controller, in bytes.
    pub(crate) fn sizes(&self) -> Result<[f64; 3]> {
        Ok([stripped_size(&self.plugin)?, stripped_size(&self.agent)?, stripped_size(&self.controller)?])
    }
}
