//! Which kernel parameters Tenure has changed on this node: a file in the state directory, by which the removal changes them back.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use tenure_linux::sysctl::Changed;

const NAME: &str = "parameters.json";

/// Adds what was changed just now. Of a parameter that was changed before, what it was this time counts: a reboot has set it back.
pub(crate) fn note(state: &Path, changed: &[Changed]) {
    if changed.is_empty() {
        return;
    }
    let mut all = read(state).unwrap_or_default();
    all.retain(|earlier| !changed.iter().any(|it| it.name == earlier.name));
    all.extend_from_slice(changed);
    if let Err(error) = write(state, &all) {
        let path = state.join(NAME);
        tracing::warn!(path = %path.display(), %error, "cannot record which kernel parameters were changed; a removal will leave them");
    }
}

/// What was changed; nothing if nobody knows.
pub(crate) fn read(state: &Path) -> io::Result<Vec<Changed>> {
    match fs::read(state.join(NAME)) {
        Ok(text) => Ok(serde_json::from_slice(&text)?),
        Err(missing) if missing.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn write(state: &Path, all: &[Changed]) -> io::Result<()> {
    fs::create_dir_all(state)?;
    let beside = state.join(format!("{NAME}.new"));
    fs::write(&beside, serde_json::to_vec_pretty(all)?)?;
    fs::rename(&beside, state.join(NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(name: &str, before: &str) -> Changed {
        Changed { name: name.to_owned(), before: before.to_owned(), after: "9".to_owned() }
    }

    #[test]
    fn the_last_value_before_a_change_counts() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        assert_eq!(read(&state).unwrap(), []);
        note(&state, &[changed("a", "1"), changed("b", "2")]);
        note(&state, &[]);
        note(&state, &[changed("a", "3")]);
        assert_eq!(read(&state).unwrap(), [changed("b", "2"), changed("a", "3")]);
    }
}
