//! Takes everything of Tenure off a node: `tenured --remove-from-node`.
//!
//! ```text
//!  an agent runs, pods have addresses, or interfaces have those of policies ──▶ refused: nothing is changed
//!      │ none of these, or --force
//!      ▼
//!  configuration, plugin ──▶ links, routes, rule ──▶ kernel parameters ──▶ state
//! ```
//!
//! A step that fails does not keep it from the others, and what could not be removed is told. It can be repeated at any time: what is
//! gone is no failure. State goes last, and only if all else went, because it says what else there is.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tenure_agent::remains::Remains;
use tenure_agent::run::Paths;
use tenure_daemon::{Pages, listen, serve, stop_on_signals};
use tenure_linux::{Host, chain, removal};

use crate::flags::{Flags, Removal};
use crate::{install, parameters};

/// How often to look whether what kept it from removing is gone.
const AGAIN: Duration = Duration::from_secs(2);
/// Not the agent's, which may still run.
const PORT: u16 = 9388;

/// The program with `--remove-from-node`.
pub async fn run(flags: &Flags, when: Removal) -> Result<()> {
    if when == Removal::Once {
        return once(flags);
    }
    let stop = stop_on_signals().context("listening for signals")?;
    let done = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&done);
    let pages = Pages::default().verdict("/healthz", || async { (true, "ok\n".to_owned()) });
    let pages = pages.verdict("/readyz", move || {
        let done = told.load(Ordering::Relaxed);
        async move { (done, if done { "nothing is left\n" } else { "not removed yet\n" }.to_owned()) }
    });
    let serving = tokio::spawn(serve(listen(flags.metrics_address, PORT).await?, pages));
    let mut last = None;
    while !done.load(Ordering::Relaxed) {
        match once(flags) {
            Ok(()) => done.store(true, Ordering::Relaxed),
            Err(error) => {
                let why = format!("{error:#}");
                if last.as_ref() != Some(&why) {
                    tracing::warn!("{why}; trying again");
                }
                last = Some(why);
                tokio::select! {
                    () = stop.cancelled() => break,
                    () = tokio::time::sleep(AGAIN) => {}
                }
            }
        }
    }
    stop.cancelled().await;
    serving.abort();
    Ok(())
}

/// Removes everything, or says what keeps it from that.
fn once(flags: &Flags) -> Result<()> {
    let (run, state) = (&flags.run_dir, &flags.state_dir);
    let kernel = flags.kernel()?;
    let remains = Remains::find(&Paths::in_directory(run), state).context("Tenure stays on this node")?;
    if !remains.node_addresses.is_empty() {
        bail!(
            "Tenure stays on this node: its interfaces have {}; delete the policies while the agents run (docs/install.md)",
            list(&remains.node_addresses)
        );
    }
    if !remains.users.is_empty() {
        if !flags.force {
            bail!(
                "Tenure stays on this node: {} still uses addresses; move the pods to other nodes first, or use --force, by which \
                 they lose their network",
                list(&remains.users)
            );
        }
        tracing::warn!(users = list(&remains.users), "pods lose their network");
    }
    let mut host = Host::open(kernel)?;
    let links = removal::in_service(&mut host).context("looking for pods' links")?;
    if !links.is_empty() && !flags.force {
        bail!("Tenure stays on this node: there are links of pods ({}); --force removes them", list(&links));
    }
    let mut failed = Vec::new();
    let (files, left, problems) = install::remove(&flags.cni_bin_dir, &flags.cni_config_dir);
    failed.extend(problems.iter().map(|problem| chain(problem)));
    let removed = removal::remove(&mut host);
    failed.extend(removed.failed.iter().cloned());
    let (changed_back, problems) = change_back(state);
    failed.extend(problems);
    if failed.is_empty() {
        for directory in [state, run] {
            if let Err(error) = empty(directory) {
                failed.push(format!("remove {}: {error}", directory.display()));
            }
        }
    }
    tracing::info!(kernel = %removed, ?files, ?left, kept = ?removed.kept, parameters = ?changed_back, "removed");
    if failed.is_empty() { Ok(()) } else { bail!("not everything could be removed: {}", failed.join("; ")) }
}

/// Gives kernel parameters the values that they had before. Returns which, and what failed.
fn change_back(state: &Path) -> (Vec<String>, Vec<String>) {
    let all = match parameters::read(state) {
        Ok(all) => all,
        Err(error) => return (Vec::new(), vec![format!("read which parameters were changed: {error}")]),
    };
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    for changed in all.iter().rev() {
        match changed.undo() {
            Ok(true) => done.push(format!("{}={}", changed.name, changed.before)),
            Ok(false) => {}
            Err(error) => failed.push(chain(&error)),
        }
    }
    (done, failed)
}

/// Removes a directory and all that is in it. Of one that is mounted, nothing but the place stays.
fn empty(directory: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Err(missing) if missing.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    match fs::remove_dir(directory) {
        Err(error) if error.kind() == ErrorKind::ResourceBusy => Ok(()),
        removed => removed,
    }
}

/// The first few of them, for people.
fn list<'a>(all: impl IntoIterator<Item = &'a String>) -> String {
    const FEW: usize = 5;
    let all: Vec<&str> = all.into_iter().map(String::as_str).collect();
    let more = all.len().saturating_sub(FEW);
    let first = all[..all.len() - more].join(", ");
    if more > 0 { format!("{first} and {more} more") } else { first }
}
