//! `tenure import finish`: removes reserved blocks that were imported, as the pods in them go.
//!
//! ```text
//!  used ◀──a pod has an address──┐
//!   │                            │
//!   └──no pod has one──▶ unused since t ──rested, and unused again by a live read──▶ deleted (UID and version as read)
//! ```
//!
//! A deleted block is carved again at once, and its addresses do not cool on the node that gets it. So they rest before:
//! a block goes only if no pod had an address of it from the first observation to the last one, at least one cooling time
//! later. A pod that is gone from the API proves nothing about a node that does not answer: blocks of such a node stay.

mod plan;

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use serde::Serialize;
use tenure_api::coil::{AddressBlock, AddressPool, EnginePool};
use tenure_handles::{Clock as _, SystemClock};

use self::plan::{State, Verdict};
use super::IMPORTED;
use crate::table::{self, Format, Output};

/// Objects of a page.
const PAGE: u32 = 500;
/// The exit code when blocks are left.
const LEFT: u8 = 1;

/// The options of `import finish`.
#[derive(Args, Clone, Debug)]
pub(super) struct FinishOptions {
    /// Kubeconfig file of the cluster; without it the usual places
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long)]
    context: Option<String>,
    /// Show which blocks are in use, and remove none
    #[arg(long)]
    dry_run: bool,
    /// Do not ask before removing blocks
    #[arg(short, long)]
    yes: bool,
    /// Go on until every reserved block is gone
    #[arg(long)]
    wait: bool,
    /// How long a block has to be unused before it goes; longer if its pool's cooling is
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = tenure_daemon::duration)]
    rest: Duration,
    /// How often to look
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = tenure_daemon::duration)]
    poll: Duration,
    /// How the answer looks
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

/// A reserved block, as `tenure import finish -o json` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    name: String,
    node: Option<String>,
    addresses: Vec<String>,
    state: &'static str,
    /// Who uses it, or why it is kept.
    because: Vec<String>,
}

/// The answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    dry_run: bool,
    removed: Vec<String>,
    left: Vec<Row>,
}

/// Runs the verb.
pub(super) async fn run(options: FinishOptions) -> Result<Output> {
    let client = tenure_daemon::connect(options.kubeconfig.as_deref(), options.context.as_deref()).await?;
    let state = observe(&client).await?;
    let rows = rows(&state);
    let unused = rows.iter().filter(|row| row.state == Verdict::Unused.word()).count();
    if options.dry_run || rows.is_empty() || (unused == 0 && !options.wait) {
        return answer(&options, Vec::new(), rows);
    }
    say(text(&rows).trim_end());
    if !options.yes && !asks(unused)? {
        bail!("nothing was removed");
    }
    let removed = remove(&client, &options, state).await?;
    let left = self::rows(&observe(&client).await?);
    answer(&options, removed, left)
}

/// Asks whoever is at the terminal.
fn asks(unused: usize) -> Result<bool> {
    let _ = write!(io::stderr(), "Remove {unused} blocks, and others as their pods go? [y/N] ");
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line).context("reading the answer")?;
    if read == 0 {
        bail!("nobody answers; accepted is --yes");
    }
    Ok(matches!(line.trim(), "y" | "Y" | "yes" | "Yes" | "YES"))
}

/// Removes blocks until none that was unused is left, or with `--wait` until there is none at all.
async fn remove(client: &Client, options: &FinishOptions, mut state: State) -> Result<Vec<String>> {
    let (mut unused, mut removed) = (BTreeMap::<String, Duration>::new(), Vec::new());
    let mut told = 0;
    loop {
        let now = SystemClock.elapsed();
        let verdicts = state.verdicts();
        let is_unused = |block: &AddressBlock| verdicts.get(&block.name_any()) == Some(&Verdict::Unused);
        let uids: Vec<String> =
            state.blocks.iter().filter(|block| is_unused(block)).filter_map(ResourceExt::uid).collect();
        unused.retain(|uid, _| uids.contains(uid));
        for block in state.blocks.iter().filter(|block| is_unused(block)) {
            let since = *unused.entry(block.uid().unwrap_or_default()).or_insert(now);
            if now > since && now.saturating_sub(since) >= state.rest_of(block, options.rest) {
                let name = block.name_any();
                if delete(client, block).await? {
                    say(&format!("removed {name} ({})", addresses(block).join(", ")));
                    removed.push(name);
                }
            }
        }
        state.blocks.retain(|block| !removed.contains(&block.name_any()));
        if state.blocks.is_empty() || (!options.wait && unused.keys().all(|uid| !state.has(uid))) {
            return Ok(removed);
        }
        if told != state.blocks.len() {
            told = state.blocks.len();
            let resting = state.blocks.iter().filter(|block| is_unused(block)).count();
            say(&format!("{told} reserved blocks are left, {resting} of them unused"));
        }
        tokio::time::sleep(options.poll).await;
        state = observe(client).await?;
    }
}

/// Deletes a block exactly as it was read. `false` if somebody has changed it since: it is looked at again.
async fn delete(client: &Client, block: &AddressBlock) -> Result<bool> {
    let blocks: Api<AddressBlock> = Api::all(client.clone());
    let as_read = Preconditions { uid: block.uid(), resource_version: block.resource_version() };
    let params = DeleteParams { preconditions: Some(as_read), ..DeleteParams::background() };
    match blocks.delete(&block.name_any(), &params).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(false),
        Err(error) => Err(error).with_context(|| format!("deleting AddressBlock {}", block.name_any())),
    }
}

/// Reads everything live: blocks first, so that a pod that comes later is seen.
async fn observe(client: &Client) -> Result<State> {
    let of_import = ListParams::default().labels(IMPORTED);
    let blocks: Vec<AddressBlock> = every(client, &of_import).await?;
    let pods: Vec<Pod> = every(client, &ListParams::default()).await?;
    let nodes: Vec<Node> = every(client, &ListParams::default()).await?;
    let pools: Vec<AddressPool> = every(client, &ListParams::default()).await?;
    let engines =
        pools.iter().filter_map(|pool| Some((pool.name_any(), EnginePool::try_from(&pool.spec).ok()?)));
    let rests = engines.filter_map(|(name, engine)| Some((name, engine.rest()?))).collect();
    Ok(State::of(blocks, &pods, &nodes, rests))
}

async fn every<K>(client: &Client, params: &ListParams) -> Result<Vec<K>>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let api: Api<K> = Api::all(client.clone());
    let mut params = params.clone().limit(PAGE);
    let mut found = Vec::new();
    loop {
        let page = api.list(&params).await.with_context(|| format!("cannot list {}", K::plural(&())))?;
        let next = page.metadata.continue_.clone().filter(|token| !token.is_empty());
        found.extend(page.items);
        match next {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

fn rows(state: &State) -> Vec<Row> {
    let verdicts = state.verdicts();
    let row = |block: &AddressBlock| {
        let verdict = verdicts.get(&block.name_any())?;
        Some(Row {
            name: block.name_any(),
            node: block.node().map(str::to_owned),
            addresses: addresses(block),
            state: verdict.word(),
            because: verdict.because().to_vec(),
        })
    };
    state.blocks.iter().filter_map(row).collect()
}

fn addresses(block: &AddressBlock) -> Vec<String> {
    crate::snapshot::networks(block).map(|network| network.to_string()).collect()
}

fn answer(options: &FinishOptions, removed: Vec<String>, left: Vec<Row>) -> Result<Output> {
    let answer = Answer { dry_run: options.dry_run, removed, left };
    let mut output = Output::either(options.output, &answer, || {
        let removed = match answer.removed.len() {
            0 => String::new(),
            count => format!("{count} reserved blocks are removed.\n"),
        };
        if answer.left.is_empty() {
            removed + "No reserved block is left.\n"
        } else {
            removed + &text(&answer.left)
        }
    })?;
    if !options.dry_run && !answer.left.is_empty() {
        output.code = LEFT;
    }
    Ok(output)
}

fn text(rows: &[Row]) -> String {
    table::columns(
        ["BLOCK", "NODE", "ADDRESSES", "STATE", "BECAUSE OF"],
        rows.iter().map(|row| {
            let more = row.because.len().saturating_sub(3);
            let mut because: Vec<String> = row.because.iter().take(3).cloned().collect();
            because.extend((more > 0).then(|| format!("{more} more")));
            [
                row.name.clone(),
                row.node.clone().unwrap_or_else(|| "-".to_owned()),
                table::list(row.addresses.iter().cloned()),
                row.state.to_owned(),
                table::list(because),
            ]
        }),
    )
}

/// A line of progress.
fn say(line: &str) {
    // Nobody reads it: no reason to stop.
    let _ = writeln!(io::stderr(), "{line}");
}
