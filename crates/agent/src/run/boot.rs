//! Whether an agent already ran on this boot of the machine.
//!
//! The journal disappears at a reboot, and so do the containers that it describes. If it is missing, either
//! that happened, or somebody removed it while containers run. Only a mark outside of `/run` can tell: it
//! names the boot of the last start.

use std::fs;
use std::io;
use std::path::Path;

use tracing::warn;

use crate::journal::Missing;

const NAME: &str = "boot";

/// What a missing journal means, by the mark in `state`. Also marks this boot. If no mark names another boot,
/// or this boot cannot be marked, an agent may have run.
pub(super) fn mark(state: Option<&Path>, boot: &str) -> Missing {
    let Some(state) = state else { return Missing::Unknown };
    let path = state.join(NAME);
    let before = fs::read_to_string(&path).ok().map(|text| text.trim().to_owned());
    if before.as_deref() == Some(boot) {
        return Missing::Lost;
    }
    match put(state, boot) {
        Ok(()) if before.is_some() => Missing::FirstOfBoot,
        Ok(()) => Missing::Unknown,
        Err(error) => {
            warn!(path = %path.display(), %error, "cannot record on which boot the agent ran; if the journal is missing at \
                   its next start, addresses are assigned again only after other sources were asked who uses them");
            Missing::Unknown
        }
    }
}

/// Whether an agent ran on this boot, as far as its mark tells.
pub(crate) fn ran_on(state: &Path, boot: &str) -> bool {
    fs::read_to_string(state.join(NAME)).is_ok_and(|text| text.trim() == boot)
}

fn put(state: &Path, boot: &str) -> io::Result<()> {
    fs::create_dir_all(state)?;
    let beside = state.join(format!("{NAME}.new"));
    fs::write(&beside, boot)?;
    fs::rename(&beside, state.join(NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_mark_of_another_boot_says_that_nothing_ran_on_this_one() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        assert_eq!(mark(None, "one"), Missing::Unknown);
        assert_eq!(mark(Some(&state), "one"), Missing::Unknown, "nobody knows what was before");
        assert_eq!(mark(Some(&state), "one"), Missing::Lost, "an agent ran before");
        assert_eq!(mark(Some(&state), "two"), Missing::FirstOfBoot, "the machine was rebooted");
        assert_eq!(mark(Some(&state), "two"), Missing::Lost);
        fs::remove_dir_all(&state).unwrap();
        fs::write(&state, "no directory").unwrap();
        assert_eq!(mark(Some(&state), "three"), Missing::Unknown, "it could not be marked");
    }
}
