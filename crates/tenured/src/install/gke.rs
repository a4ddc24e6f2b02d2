//! Has the network of Google Kubernetes Engine use alias addresses.
//!
//! Its agents write the network's configuration themselves, write it again when they are updated, and delete it while their network is ill:
//! `10-containerd-net.conflist` or `10-gke-ptp.conflist`, with `ptp` and `host-local`. Here theirs is never touched. Beside it is a file
//! of ours that the runtime finds first, with the same values except one: the type of the IPAM plugin.
//!
//! ```text
//!  05-tenure-gke.conflist      ◀── made of theirs, again whenever theirs changes; deleted while theirs is gone
//!  10-containerd-net.conflist      theirs
//! ```
//!
//! Two programs that change one file would lose each other's changes; this way undoing is deleting. The values are the same, but not the
//! order of keys in an object, which has no meaning in JSON.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use serde_json::Value;
use tenure_agent::run::Progress;
use tokio_util::sync::CancellationToken;

use super::{InstallError, Installed, error, put};
use crate::watching::DirectoryWatch;

/// The name of the IPAM plugin.
pub const PLUGIN: &str = "gcp-ipam";
/// What it replaces.
const REPLACED: &str = "host-local";
/// Our file. A runtime uses the first in alphabetical order.
pub(super) const OURS: &str = "05-tenure-gke.conflist";
/// The files of the cloud's agents, depending on their version.
const THEIRS: [&str; 2] = ["10-containerd-net.conflist", "10-gke-ptp.conflist"];
/// What a runtime reads.
const ENDINGS: [&str; 3] = ["conf", "conflist", "json"];
/// On nodes with this label Cilium alone makes the network.
const UNIFIED: &str = "cloud.google.com/gke-dpv2-unified-cni";
/// How often to check without a change.
const LOOK: Duration = Duration::from_secs(10);
/// The files are not kept waiting for the API server longer than this.
const ANSWER: Duration = Duration::from_secs(3);
/// What an error is about.
const WHAT: &str = "the configuration with alias addresses";

/// How things are.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// Our file is in place.
    InPlace {
        /// The file that it was made of.
        of: String,
    },
    /// Theirs already names our plugin: somebody changed it.
    AlreadyTheirs(String),
    /// There is no configuration. Without theirs there is none of ours.
    Missing,
    /// Theirs cannot be read, perhaps because it is just being written. Ours stays as it was.
    Unreadable(String),
    /// This node's network cannot use alias addresses.
    Impossible(String),
}

/// The labels of this node.
#[derive(Debug)]
pub struct Labels {
    nodes: Option<Api<Node>>,
    name: String,
    unified: bool,
}

impl Labels {
    /// The labels of the node of this name.
    pub fn new(client: Client, name: String) -> Self {
        Self { nodes: Some(Api::all(client)), name, unified: false }
    }

    /// Whether Cilium alone makes this node's network. Until the API server has answered once, the files say it.
    async fn are_unified(&mut self) -> bool {
        if let Some(nodes) = &self.nodes
            && let Ok(Ok(node)) = tokio::time::timeout(ANSWER, nodes.get_metadata(&self.name)).await
        {
            let label = node.metadata.labels.unwrap_or_default().remove(UNIFIED);
            self.unified = label.is_some_and(|value| value != "false");
            self.nodes = None;
        }
        self.unified
    }
}

/// Keeps our file in place from when the agent serves until it stops.
pub async fn keep(directory: &Path, labels: Labels, mut progress: Progress, stop: CancellationToken) {
    if progress.serving().await {
        keep_in_place(directory, labels, &stop).await;
    }
}

async fn keep_in_place(directory: &Path, mut labels: Labels, stop: &CancellationToken) {
    let mut watch = DirectoryWatch::new(directory);
    let mut last = None;
    loop {
        watch.renew();
        let outcome = apply(directory, labels.are_unified().await).map_err(|error| say_all(&error));
        if last.as_ref() != Some(&outcome) {
            report(directory, &outcome);
        }
        last = Some(outcome);
        tokio::select! {
            () = stop.cancelled() => return,
            () = watch.changed() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

fn report(directory: &Path, outcome: &Result<Outcome, String>) {
    let directory = directory.display();
    match outcome {
        Ok(Outcome::InPlace { of }) => {
            tracing::info!(%directory, "{OURS} is in place: {of} with {PLUGIN} instead of {REPLACED}");
        }
        Ok(Outcome::AlreadyTheirs(name)) => {
            tracing::info!(%directory, "{name} names {PLUGIN} already; it stays as it is");
        }
        Ok(Outcome::Missing) => tracing::warn!(
            %directory,
            "there is no network configuration of the cloud's agents, so there is none of ours; waiting for {} or {}",
            THEIRS[0],
            THEIRS[1]
        ),
        Ok(Outcome::Unreadable(why)) => {
            tracing::warn!(%directory, "{why}; what is in place stays until it can be read");
        }
        Ok(Outcome::Impossible(why)) => tracing::error!(
            %directory,
            "this node's network cannot use alias addresses: {why}; use nodes whose network is made by ptp (docs/gcp.md)"
        ),
        Err(why) => tracing::error!(%directory, "{why}; trying again"),
    }
}

fn say_all(error: &InstallError) -> String {
    format!("{error}: {}", error.source)
}

/// Makes our file of theirs, or takes it away.
fn apply(directory: &Path, unified: bool) -> Result<Outcome, InstallError> {
    if unified {
        undo(directory)?;
        return Ok(Outcome::Impossible(format!("the node has the label {UNIFIED}")));
    }
    let Some(first) = first_of_others(directory)? else {
        undo(directory)?;
        return Ok(Outcome::Missing);
    };
    if !THEIRS.contains(&first.as_str()) {
        undo(directory)?;
        let why = format!("the container runtime uses {first}, which is not of the cloud's agents");
        return Ok(Outcome::Impossible(why));
    }
    let path = directory.join(&first);
    let text = match fs::read(&path) {
        Ok(text) => text,
        // Between the list and now. The next look sees it.
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => {
            undo(directory)?;
            return Ok(Outcome::Missing);
        }
        Err(failed) => return Err(error(WHAT, "read", &path)(failed)),
    };
    let theirs: Value = match serde_json::from_slice(&text) {
        Ok(theirs) => theirs,
        Err(problem) => return Ok(Outcome::Unreadable(format!("{first} is no JSON: {problem}"))),
    };
    match rewritten(theirs) {
        Rewritten::Changed(ours) => {
            let path = directory.join(OURS);
            let installed = put(WHAT, &path, format!("{ours:#}\n").as_bytes(), 0o644)?;
            if installed == Installed::Written {
                tracing::debug!(path = %path.display(), "written");
            }
            Ok(Outcome::InPlace { of: first })
        }
        Rewritten::Already => {
            undo(directory)?;
            Ok(Outcome::AlreadyTheirs(first))
        }
        Rewritten::Impossible(why) => {
            undo(directory)?;
            Ok(Outcome::Impossible(format!("{first} {why}")))
        }
    }
}

/// Takes our file away whenever it is there, until it is stopped: an agent that is about to stop may write it once more.
pub async fn keep_away(directory: &Path, stop: &CancellationToken) {
    let mut watch = DirectoryWatch::new(directory);
    let mut last = None;
    loop {
        watch.renew();
        let undone = undo(directory).map_err(|error| say_all(&error));
        if last.as_ref() != Some(&undone) {
            match &undone {
                Ok(true) => tracing::info!(directory = %directory.display(), "{OURS} was taken away"),
                Ok(false) => tracing::info!(directory = %directory.display(), "there is no {OURS}"),
                Err(why) => tracing::error!(directory = %directory.display(), "{why}; trying again"),
            }
        }
        last = Some(undone);
        tokio::select! {
            () = stop.cancelled() => return,
            () = watch.changed() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

/// Takes our file away. Tells whether there was one.
pub fn undo(directory: &Path) -> Result<bool, InstallError> {
    let path = directory.join(OURS);
    match fs::remove_file(&path) {
        Ok(()) => {
            let synced = fs::File::open(directory).and_then(|open| open.sync_all());
            synced.map_err(error(WHAT, "sync", directory))?;
            Ok(true)
        }
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(failed) => Err(error(WHAT, "remove", &path)(failed)),
    }
}

/// The file that the runtime would use without ours.
fn first_of_others(directory: &Path) -> Result<Option<String>, InstallError> {
    let failed = |failed| error(WHAT, "list", directory)(failed);
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(problem) => return Err(failed(problem)),
    };
    let mut first: Option<String> = None;
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        let Some(name) = name.to_str() else { continue };
        let ending = Path::new(name).extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let counts = name != OURS && ENDINGS.contains(&ending);
        if counts && first.as_deref().is_none_or(|first| name < first) {
            first = Some(name.to_owned());
        }
    }
    Ok(first)
}

enum Rewritten {
    Changed(Value),
    Already,
    Impossible(String),
}

/// Their configuration with our IPAM plugin, and everything else as it is.
fn rewritten(mut theirs: Value) -> Rewritten {
    let plugins = theirs.get_mut("plugins").and_then(Value::as_array_mut);
    let Some(plugins) = plugins else { return Rewritten::Impossible("has no list of plugins".to_owned()) };
    let names: Vec<String> =
        plugins.iter().map(|plugin| plugin["type"].as_str().unwrap_or("?").to_owned()).collect();
    let ptp = plugins.iter_mut().find(|plugin| plugin["type"] == "ptp");
    let Some(ptp) = ptp else {
        return Rewritten::Impossible(format!("has no ptp plugin, but {} (unified CNI?)", names.join(", ")));
    };
    let Some(ipam) = ptp.get_mut("ipam").and_then(|ipam| ipam.get_mut("type")) else {
        return Rewritten::Impossible("has a ptp plugin without ipam".to_owned());
    };
    match ipam.as_str() {
        Some(REPLACED) => {
            *ipam = PLUGIN.into();
            Rewritten::Changed(theirs)
        }
        Some(PLUGIN) => Rewritten::Already,
        _ => Rewritten::Impossible(format!("gets addresses from {ipam}, not from {REPLACED}")),
    }
}

#[cfg(test)]
mod tests;
