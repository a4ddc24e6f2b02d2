//! `tenure demo`: three hosts made of namespaces, with the programs that run in a cluster, on the embedded
//! API.
//!
//! | module | owns |
//! |---|---|
//! | `enclosure` | the demo's own namespaces, which end with it however it ends |
//! | `scenes` | what is shown, in order |
//! | `lab` | API, controller, Ethernet, hosts |
//! | `host` | a host with its agent and pods, and calls of the CNI plugin |
//! | `programs` | finding and starting the programs |
//! | `moving` | the scene in which an address moves to another host |
//! | `leaving` | the scene in which pods leave from the address of an egress gateway |
//! | `second` | the scene in which hosts get static addresses on a second network |
//! | `alias` | the scene in which an alias address of a cloud moves to another machine |
//! | `cloud` | the cloud that the hosts are machines of |
//! | `ping`, `traffic` | echo requests, once and continuously |
//! | `asking` | which host answers at an address that several have |
//! | `proof` | the invariants over random operations |
//! | `screen` | the output |

mod alias;
mod asking;
mod cloud;
mod enclosure;
mod host;
mod lab;
mod leaving;
mod moving;
mod ping;
mod programs;
mod proof;
mod scenes;
mod screen;
mod second;
mod traffic;

use std::io;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use tenure_handles::{Entropy, SystemEntropy};

use crate::table::Output;
use programs::Programs;
use screen::Screen;

/// The options of the verb.
#[derive(Args, Clone, Debug)]
pub(crate) struct DemoOptions {
    /// Replays the random operations of an earlier run
    #[arg(long)]
    seed: Option<u64>,
    /// How many random operations the invariants are proven over
    #[arg(long, default_value_t = 20_000)]
    operations: u64,
    /// The directory of the demo, for the process that plays it
    #[arg(long, hide = true, value_name = "DIRECTORY")]
    inside: Option<PathBuf>,
}

/// Plays all scenes, in a process of its own with its own namespaces. There must be no other threads yet.
pub(crate) fn run(options: &DemoOptions) -> Result<Output> {
    // Missing programs are reported before anything starts.
    let programs = Programs::beside_this_one()?;
    let Some(directory) = &options.inside else {
        let mut arguments = vec!["demo".to_owned(), format!("--operations={}", options.operations)];
        arguments.extend(options.seed.map(|seed| format!("--seed={seed}")));
        return Ok(Output { code: enclosure::enclose(&arguments)?, ..Output::nothing() });
    };
    enclosure::live_as_long_as_asked()?;
    let entropy = SystemEntropy::new().context("cannot get randomness from the operating system")?;
    let seed = options.seed.unwrap_or_else(|| entropy.next_u64());
    let runtime = tokio::runtime::Runtime::new().context("cannot start threads")?;
    let mut out = io::stdout();
    let mut screen = Screen::new(&mut out);
    let stage = scenes::Stage { programs, directory, entropy, seed, operations: options.operations };
    let played = runtime.block_on(stage.play(&mut screen));
    // Whatever still runs ends with this process.
    runtime.shutdown_background();
    played.map(|()| Output::nothing()).map_err(|error| match lab::last_words(directory) {
        words if words.is_empty() => error,
        words => anyhow::anyhow!("{error:#}\n{words}"),
    })
}
