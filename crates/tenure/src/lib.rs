//! `tenure`, the command line: flags, and each verb as a module.
//!
//! | module | owns |
//! |---|---|
//! | `demo` | the main job, shown without a cluster |
//! | `pools`, `blocks`, `claims`, `who`, `node` | looking: a pool's use, a block's owner, a claim's pods, an address's holder, a node |
//! | `history`, `pod` | the past: who had an address when, and what a pod had |
//! | `ui` | the same and maps of pools, as pages in a browser |
//! | `watch`, `top` | events as they come; use, rates and the slowest ADDs on a terminal |
//! | `import` | manifests of what other systems have assigned; removing the blocks reserved for it |
//! | `check`, `explain` | comparing everything with everything; what an error means |
//! | `repair`, `release`, `drain` | guarded writes: what `check` advises, an address without a holder, a block to be returned |
//! | `completions` | scripts by which shells and kubectl complete command lines |
//! | `provision` | making the addresses of alias pools in a cloud |
//! | `offset` | the offsets in the records of pools of node addresses |
//! | `query`, `agents`, `snapshot`, `ranges`, `node_pools` | the source, reading agents, and what was read, Whereabouts' ranges and node addresses too |
//! | `table`, `conditions` | the output |
//!
//! The output of a verb is a pure function of a `snapshot::Snapshot`. Only `provision`, `import finish`, `repair`, `release` and
//! `drain` change anything.

mod agents;
mod aliases;
mod blocks;
mod check;
mod claims;
mod completions;
mod conditions;
mod demo;
mod drain;
mod explain;
mod history;
mod import;
mod node;
mod node_pools;
mod offset;
mod pod;
mod pools;
mod provision;
mod query;
mod ranges;
mod release;
mod repair;
mod snapshot;
mod table;
mod top;
mod ui;
mod watch;
mod who;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{CommandFactory as _, Parser, Subcommand};

use table::Output;

/// One IP address engine for Kubernetes.
#[derive(Parser)]
#[command(
    name = "tenure",
    version,
    after_help = "Also works as a plugin of kubectl: linked as kubectl-tenure in the PATH, it is `kubectl tenure`."
)]
struct Command {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Show the main job on three hosts made of namespaces, without a cluster
    Demo(demo::DemoOptions),
    /// List pools: size, use, blocks and conditions
    Pools(pools::PoolsOptions),
    /// List blocks: whose they are, and how full
    Blocks(blocks::BlocksOptions),
    /// List claims: their addresses, and which pods have them now
    Claims(claims::ClaimsOptions),
    /// Say who has an address, who had it at another time, or why nobody has it
    Who(who::WhoOptions),
    /// Say which addresses a pod or a container had when
    Pod(pod::PodOptions),
    /// Say which address of a NodeIPPool an offset stands for, or which offset an address has
    Offset(offset::OffsetOptions),
    /// Show a node: its blocks, who holds what, and what it waits for
    Node(node::NodeOptions),
    /// Convert another system's pools and used addresses into manifests, and remove what was reserved for its pods
    Import(import::ImportOptions),
    /// Show all of this, and maps of pools, in a browser on this machine
    Ui(ui::UiOptions),
    /// Show pools, rates and the slowest ADDs, live
    Top(top::TopOptions),
    /// Print a line for each event, as it happens
    Watch(watch::WatchOptions),
    /// Make the addresses of an alias pool in a cloud, and the pool
    Provision(provision::ProvisionOptions),
    /// Compare pools, blocks, requests, holds, kernels and pods; exit with 1 if anything differs, with 2 if not all could be seen
    Check(check::CheckOptions),
    /// Repair what check finds, where that is safe; shows the plan, and asks
    Repair(repair::RepairOptions),
    /// Release an address whose holder is gone, if nothing shows that it is in use
    Release(release::ReleaseOptions),
    /// Have a block emptied and returned: its node assigns nothing more from it
    Drain(drain::DrainOptions),
    /// Say what an error means, and what to do about it
    Explain(explain::ExplainOptions),
    /// Write the script by which a shell completes command lines
    Completions(completions::CompletionsOptions),
    /// Complete the last word for kubectl
    #[command(name = "__complete", hide = true)]
    Complete(completions::CompleteOptions),
}

/// The command line's definition: what shows, checks or completes command lines reads it.
pub fn command() -> clap::Command {
    Command::command()
}

/// Every kind of finding that `check` knows, and what `repair` does about it: `repairs`, `waits` or `explains`.
pub fn findings() -> impl Iterator<Item = (&'static str, &'static str)> {
    repair::all_kinds()
}

/// The whole program, from its arguments to its exit code.
pub fn main() -> ExitCode {
    match run(Command::parse().verb) {
        Ok(said) => {
            // A reader that stops after the first lines, such as `head`, is no error.
            let _ = io::stdout().write_all(table::visible(&said.text).as_bytes());
            let _ = io::stderr().write_all(table::visible(&said.notes).as_bytes());
            said.code.into()
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "tenure: {}", table::visible(&format!("{error:#}")));
            table::COULD_NOT_LOOK.into()
        }
    }
}

fn run(verb: Verb) -> Result<Output> {
    // It leaves this process's namespaces, which only a process with a single thread can.
    if let Verb::Demo(options) = &verb {
        return demo::run(options);
    }
    let runtime = tokio::runtime::Runtime::new().context("cannot start threads")?;
    runtime.block_on(async {
        match verb {
            Verb::Demo(_) => Ok(Output::nothing()),
            Verb::Pools(options) => pools::run(options).await,
            Verb::Blocks(options) => blocks::run(options).await,
            Verb::Claims(options) => claims::run(options).await,
            Verb::Who(options) => who::run(options).await,
            Verb::Pod(options) => pod::run(options).await,
            Verb::Offset(options) => offset::run(options).await,
            Verb::Node(options) => node::run(options).await,
            Verb::Import(options) => import::run(options).await,
            Verb::Ui(options) => ui::run(options).await,
            Verb::Top(options) => top::run(options).await,
            Verb::Watch(options) => watch::run(options).await,
            Verb::Provision(options) => provision::run(options).await,
            Verb::Check(options) => check::run(options).await,
            Verb::Repair(options) => repair::run(options).await,
            Verb::Release(options) => release::run(options).await,
            Verb::Drain(options) => drain::run(options).await,
            Verb::Explain(options) => explain::run(&options),
            Verb::Completions(options) => Ok(completions::run(&options)),
            Verb::Complete(options) => completions::words(options),
        }
    })
}
