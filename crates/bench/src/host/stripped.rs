//! How large programs are without their symbols.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

/// The size of a program in bytes, without symbols where this machine has `strip` (binutils).
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub(crate) fn stripped_size(program: &Path) -> Result<f64> {
    let directory = tempfile::tempdir()?;
    let copy = directory.path().join("stripped");
    let strip = Command::new("strip").arg("-o").arg(&copy).arg(program).stderr(Stdio::null()).status();
    let measured = if strip.is_ok_and(|status| status.success()) { &copy } else { program };
    let found = std::fs::metadata(measured);
    Ok(found.with_context(|| format!("there is no {}", program.display()))?.len() as f64)
}
