//! `tenure demo`: pools, blocks, holds, moves and cooling on the embedded API, each step in one line and a table,
//! then the invariants over random operations.

mod blocks;
mod proof;
mod screen;

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use kube::api::PostParams;
use kube::{Api, Client};
use tenure_api::coil::{AddressPool, AddressPoolSpec, SubnetSet};
use tenure_handles::{Clock, Entropy, ManualClock, SystemClock, SystemEntropy};
use tenure_ipam::{Choice, MoveId, Release};
use tenure_localapi::LocalApi;

use blocks::{Holder, NodeBlock, carve};
use screen::Screen;

/// What a demo may be told.
#[derive(Args)]
pub(crate) struct Options {
    /// Replays the random operations of an earlier run
    #[arg(long)]
    seed: Option<u64>,
    /// How many random operations the invariants are proven over
    #[arg(long, default_value_t = 100_000)]
    operations: u64,
}

/// How long a freed address cools in the demo.
const COOLING: Duration = Duration::from_secs(30);
const POOL: &str = "default";

/// Plays all scenes.
pub(crate) async fn run(options: Options, out: &mut impl Write) -> Result<()> {
    let entropy = SystemEntropy::new().context("cannot get randomness from the operating system")?;
    let seed = options.seed.unwrap_or_else(|| entropy.next_u64());
    let clock = Arc::new(ManualClock::at(SystemClock.now()));
    let mut screen = Screen::new(out);

    screen
        .step("Start a Kubernetes API inside this process: no cluster, no socket, one embedded database.")?;
    let server = LocalApi::temporary(Arc::clone(&clock), entropy);
    let client = server.client();
    install(&client).await?;
    screen.say(&format!(
        "{} kinds installed; the same code talks to kube-apiserver in a cluster.",
        tenure_api::crds().len()
    ))?;

    screen.step("Create a pool of IPv4 and IPv6 pairs, cut into blocks of 16.")?;
    let pool = create_pool(&client).await?;
    screen.pool(&pool)?;
    screen.step("A pool that would never work is refused by rules in its schema; no webhook is needed.")?;
    screen.say(&refused_pool(&client).await?)?;

    screen.step(
        "Carve blocks: a block's name is the lock on its number, so two nodes never get the same one.",
    )?;
    let mut nodes = Vec::new();
    for node in ["node-a", "node-b", "node-c"] {
        nodes.push(carve(&client, &pool, node, COOLING).await?);
    }
    screen.blocks(&nodes)?;

    screen.step("Start pods: each node decides out of its own block, in memory, with no API call.")?;
    start_pods(&mut nodes, &clock)?;
    screen.holds(&nodes)?;
    screen.blocks(&nodes)?;

    screen.step("Delete a pod: its address cools, and the next pod gets another one.")?;
    cool(&mut nodes, &clock, &mut screen)?;

    screen
        .step("Move an address: for a moment it has two slots, active and incoming, swapped by one write.")?;
    move_address(&client, &pool, &clock, &mut screen).await?;

    screen.step(&format!(
        "Prove the invariants over {} random operations (replay with --seed {seed}).",
        options.operations
    ))?;
    let proven = proof::prove(seed, options.operations)?;
    screen.say(&proven.to_string())?;
    Ok(())
}

async fn install(client: &Client) -> Result<()> {
    let definitions = Api::all(client.clone());
    for definition in tenure_api::crds() {
        definitions.create(&PostParams::default(), &definition).await.context("cannot install a kind")?;
    }
    Ok(())
}

fn subnet(ipv4: &str, ipv6: &str) -> SubnetSet {
    SubnetSet { ipv4: Some(ipv4.into()), ipv6: Some(ipv6.into()) }
}

async fn create_pool(client: &Client) -> Result<AddressPool> {
    let subnets = vec![subnet("10.64.0.0/24", "fd64::/120")];
    let spec = AddressPoolSpec { block_size_bits: 4, subnets, ..AddressPoolSpec::default() };
    let pools: Api<AddressPool> = Api::all(client.clone());
    pools
        .create(&PostParams::default(), &AddressPool::new(POOL, spec))
        .await
        .context("cannot create the pool")
}

/// Tries to create a pool whose families have different sizes; gives the words of the refusal.
async fn refused_pool(client: &Client) -> Result<String> {
    let spec = AddressPoolSpec {
        block_size_bits: 4,
        subnets: vec![subnet("10.65.0.0/24", "fd65::/64")],
        ..AddressPoolSpec::default()
    };
    let pools: Api<AddressPool> = Api::all(client.clone());
    match pools.create(&PostParams::default(), &AddressPool::new("unequal", spec)).await {
        Err(kube::Error::Api(status)) => Ok(status.message.clone()),
        Err(error) => Err(error).context("the API did not answer"),
        Ok(_) => anyhow::bail!("a pool with families of different sizes was accepted"),
    }
}

fn start_pods(nodes: &mut [NodeBlock], clock: &ManualClock) -> Result<()> {
    for (number, node) in nodes.iter_mut().enumerate() {
        for pod in 0..=number {
            node.hold(&Holder::pod(&node.node.clone(), pod), clock.now())?;
        }
    }
    Ok(())
}

fn cool(nodes: &mut [NodeBlock], clock: &ManualClock, screen: &mut Screen<'_, impl Write>) -> Result<()> {
    let node = nodes.last_mut().context("there are nodes")?;
    let old = Holder::pod(&node.node.clone(), 0);
    let freed = node.release(&old, clock.now())?;
    screen.say(&format!("{old} gave back {freed}: {}", node.counts()))?;
    let next = Holder::pod(&node.node.clone(), 7);
    let hold = node.hold(&next, clock.now())?;
    ensure!(hold.addresses != freed, "{freed} was handed out again while it cooled");
    screen.say(&format!("{next} got {} instead: {}", hold.addresses, node.counts()))?;
    clock.advance(COOLING);
    node.block.advance(clock.now());
    screen.say(&format!("{} s later: {}", COOLING.as_secs(), node.counts()))
}

async fn move_address(
    client: &Client,
    pool: &AddressPool,
    clock: &ManualClock,
    screen: &mut Screen<'_, impl Write>,
) -> Result<()> {
    let mut floating = carve(client, pool, "controller", COOLING).await?;
    let (source, target) = (Holder::new("vm-7 on node-a"), Holder::new("vm-7 on node-b"));
    let hold = floating.hold(&source, clock.now())?;
    screen
        .say(&format!("{} out of the floating block {}: active on node-a", hold.addresses, floating.name))?;
    let incoming = floating.block.begin_move(&source, hold.sequence, target.clone(), MoveId(1))?.hold();
    screen.say(&format!(
        "begin:  node-a active (hold {}), node-b incoming (hold {})",
        hold.sequence, incoming.sequence
    ))?;
    floating.block.commit_move(&target, MoveId(1))?;
    screen.say("commit: node-b active, in one step; repeating the commit changes nothing")?;
    floating.block.commit_move(&target, MoveId(1))?;
    let late = floating.block.release(&source, hold.sequence, clock.now());
    ensure!(late == Release::Nothing, "a late release touched the successor");
    screen.say(&format!(
        "late release of hold {} by node-a: nothing happens, node-b keeps the address",
        hold.sequence
    ))?;
    let again = floating.block.hold(target, Choice::NextAfterLast, clock.now())?;
    ensure!(again.hold().addresses == hold.addresses, "the address changed during the move");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_demo_plays_every_scene_and_says_how_to_replay_it() {
        let mut out = Vec::new();
        run(Options { seed: Some(5), operations: 2_000 }, &mut out).await.unwrap();
        let text = String::from_utf8(out).unwrap();
        for shown in [
            "default-2",
            "node-c",
            "1 cooling",
            "equally many addresses",
            "commit: node-b active",
            "--seed 5",
        ] {
            assert!(text.contains(shown), "{shown:?} is missing in {text}");
        }
    }
}
