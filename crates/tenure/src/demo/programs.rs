//! The programs that the demo runs: finding and starting them.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use tenure_linux::netns::NetNs;

/// The paths of the programs.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) agent: PathBuf,
    pub(crate) controller: PathBuf,
    pub(crate) plugin: PathBuf,
    /// Of egress gateways.
    pub(crate) gateway: PathBuf,
}

impl Programs {
    /// Those in the directory of this program.
    pub(crate) fn beside_this_one() -> Result<Self> {
        let own = std::env::current_exe().context("cannot find this program")?;
        Self::in_directory(own.parent().unwrap_or(Path::new("/")))
    }

    fn in_directory(directory: &Path) -> Result<Self> {
        let [agent, controller, plugin, gateway] =
            ["tenured", "tenure-controller", "tenure-cni", "tenure-egress"].map(|name| directory.join(name));
        for program in [&agent, &controller, &plugin, &gateway] {
            ensure!(
                program.is_file(),
                "there is no {}; the demo runs the programs that are beside `tenure`: \
                 install all five in one directory, or use `cargo xtask demo`, which builds them",
                program.display()
            );
        }
        Ok(Self { agent, controller, plugin, gateway })
    }
}

/// Starts a program that keeps running in a network namespace and logs to a file.
pub(crate) fn start_daemon(command: &mut Command, namespace: &NetNs, log: &Path) -> Result<Child> {
    let program = PathBuf::from(command.get_program());
    let log = File::options().create(true).append(true).open(log).context("cannot open a log")?;
    // The user's environment is not meant for these programs.
    let command = command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    // Ctrl-C is for the demo, which ends everything.
    let command = command.process_group(0);
    let started = namespace.run(|| command.spawn())?;
    started.with_context(|| format!("cannot start {}", program.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_what_would_help() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["tenured", "tenure-controller"] {
            File::create(directory.path().join(name)).unwrap();
        }
        let error = Programs::in_directory(directory.path()).unwrap_err().to_string();
        assert!(error.contains("/tenure-cni; ") && error.contains("cargo xtask demo"), "{error}");
    }
}
