//! `tenure drain BLOCK`: its node assigns nothing more from a block, and returns it when it is empty.
//!
//! It sets the annotation `tenure/drain` on the version that was read. The agent that owns the block does the rest, and pods keep their
//! addresses.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde::Serialize;
use serde_json::json;
use tenure_api::coil::AddressBlock;
use tenure_api::drain::{DRAIN, is_draining};
use tenure_handles::{Clock, SystemClock};

use crate::query::{QueryOptions, Source};
use crate::repair::{and, users};
use crate::snapshot::{Snapshot, now};
use crate::table::{Format, Output};

/// How often progress is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// The exit code if the block is not empty in time.
const NOT_YET: u8 = 1;

/// The options of the verb.
#[derive(Args, Debug)]
pub(crate) struct DrainOptions {
    #[command(flatten)]
    query: QueryOptions,
    /// The block, as `tenure blocks` names it
    block: String,
    /// Assign from it again
    #[arg(long, conflicts_with = "wait")]
    undo: bool,
    /// How long to wait until it is returned, showing progress; without it nothing is waited for
    #[arg(long, value_name = "DURATION", value_parser = tenure_daemon::duration)]
    wait: Option<Duration>,
}

/// The output of `tenure drain -o json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Progress {
    block: String,
    node: String,
    draining: bool,
    /// Whether its node has returned it.
    returned: bool,
    /// Who still has an address of it.
    holders: Vec<String>,
    /// How many addresses cool.
    cooling: Option<u64>,
}

/// Runs the verb.
pub(crate) async fn run(options: DrainOptions) -> Result<Output> {
    let source = options.query.source().await?;
    let blocks: Api<AddressBlock> = Api::all(source.client()?.clone());
    let name = options.block.as_str();
    let act = || format!("reading AddressBlock {name}");
    let Some(block) = blocks.get_opt(name).await.with_context(act)? else {
        bail!(
            "there is no AddressBlock {name}; accepted is a name that `tenure blocks` prints. Slices of ranges cannot be drained"
        );
    };
    if let Some(why) = refusal(&block).filter(|_| !options.undo) {
        bail!("AddressBlock {name} cannot be drained: {why}");
    }
    if is_draining(&block) == options.undo {
        let value = (!options.undo).then_some("true");
        let metadata = json!({"resourceVersion": block.resource_version(), "annotations": {DRAIN: value}});
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let act = || {
            format!(
                "annotating AddressBlock {name} with {DRAIN}; if it has changed meanwhile, run this again"
            )
        };
        blocks.patch(name, &PatchParams::default(), &patch).await.with_context(act)?;
    }
    let uid = block.uid().unwrap_or_default();
    let began = SystemClock.elapsed();
    let patience = options.wait.unwrap_or_default();
    let (mut shown, mut progress) = (None, look(&source, &blocks, name, &uid).await?);
    while !progress.returned && SystemClock.elapsed().saturating_sub(began) < patience {
        if options.query.output == Format::Table && shown.as_ref() != Some(&progress) {
            let _ = io::stderr().lock().write_all(text(&progress).as_bytes());
            shown = Some(progress.clone());
        }
        tokio::time::sleep(LOOK).await;
        progress = look(&source, &blocks, name, &uid).await?;
    }
    let said = Output::either(options.query.output, &progress, || text(&progress))?;
    let late = options.wait.is_some() && !progress.returned;
    Ok(Output { code: if late { NOT_YET } else { 0 }, ..said })
}

/// Why nobody could empty and return the block.
fn refusal(block: &AddressBlock) -> Option<&'static str> {
    match block.node() {
        _ if block.is_floating() => Some(
            "it is for claims, whose addresses stay when pods end; the controller gives it up when it is empty",
        ),
        _ if block.is_reserved() => {
            Some("it is reserved (coil.cybozu.com/reserved), so nothing is assigned from it anyway")
        }
        _ if block.is_withheld() => {
            Some("nobody owns it: it keeps addresses of an older pool from being carved twice")
        }
        None => Some("it names no node that could return it; see `tenure repair block-without-node`"),
        Some(_) => None,
    }
}

/// What is left of the block.
async fn look(source: &Source, blocks: &Api<AddressBlock>, name: &str, uid: &str) -> Result<Progress> {
    let found = blocks.get_opt(name).await.with_context(|| format!("reading AddressBlock {name}"))?;
    let block = name.to_owned();
    let Some(found) = found.filter(|it| it.uid().as_deref() == Some(uid)) else {
        let (node, holders) = (String::new(), Vec::new());
        return Ok(Progress { block, node, draining: false, returned: true, holders, cooling: None });
    };
    let node = found.node().unwrap_or_default().to_owned();
    let mut snapshot = Snapshot::empty(now());
    let told = source.agents.one(&node).await;
    let told = told.map(|mut told| {
        // A single host has one agent, whatever the name that was asked for.
        told.node.clone_from(&node);
        told
    });
    snapshot.agents.insert(node.clone(), told);
    let cooling = snapshot.counts(&found).ok().map(|counts| counts.cooling);
    let holders = users(&snapshot, &found);
    Ok(Progress { block, node, draining: is_draining(&found), returned: false, holders, cooling })
}

fn text(it: &Progress) -> String {
    let Progress { block, node, .. } = it;
    if it.returned {
        return format!("block {block} is returned\n");
    }
    if !it.draining {
        return format!("block {block} is not drained: node {node} assigns from it\n");
    }
    let cooling = it.cooling.map_or_else(String::new, |cooling| format!(", {cooling} addresses cool"));
    let holders = it.holders.len();
    format!("block {block} of node {node} drains: {holders} holders{cooling}{}\n", and(&it.holders))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::example::{block, floating, system};

    #[test]
    fn only_a_block_that_a_node_owns_is_drained() {
        assert_eq!(refusal(&block("default", 0, "node1", "10.64.0.0/28")), None);
        assert!(refusal(&floating()).unwrap().starts_with("it is for claims"));
        let mut reserved = block("default", 0, "node1", "10.64.0.0/28");
        reserved.labels_mut().insert("coil.cybozu.com/reserved".into(), String::new());
        assert!(refusal(&reserved).unwrap().starts_with("it is reserved"));
        let mut nobodys = block("default", 0, "node1", "10.64.0.0/28");
        nobodys.labels_mut().remove("coil.cybozu.com/node");
        assert!(refusal(&nobodys).unwrap().starts_with("it names no node"));
    }

    #[test]
    fn progress_names_who_still_has_an_address() {
        let snapshot = system();
        let holders = users(&snapshot, &snapshot.blocks[0]);
        let progress = Progress {
            block: "default-0".into(),
            node: "node1".into(),
            draining: true,
            returned: false,
            holders,
            cooling: Some(1),
        };
        assert_eq!(
            text(&progress),
            "block default-0 of node node1 drains: 2 holders, 1 addresses cool: ns/web-0 has an address; ns/web-1 has an address\n"
        );
    }
}
