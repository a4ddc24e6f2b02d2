//! Pods that come and go at a steady rate: each has an object in the API, and a call for each network.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::cluster::People;
use super::node::{Node, Sandbox};
use super::order::{Answer, Churn};
use super::worker::Worker;

/// Pods that come or go at once; later ones wait their turn.
const AT_ONCE: usize = 64;

/// Lets pods come and go. The oldest pod of a node goes when a new one comes.
pub(super) fn churn(
    worker: &Worker,
    nodes: &[Arc<Node>],
    churn: &Churn,
    say: &(dyn Fn(usize) + Sync),
) -> Result<Answer> {
    if nodes.is_empty() || churn.rate <= 0.0 {
        return Ok(Answer::default());
    }
    worker.runtime().block_on(async {
        let people = People::new(&worker.way.client().await?, worker.kind, worker.networks.len());
        let mut lives: Vec<VecDeque<usize>> = nodes.iter().map(|_| (0..churn.pods).collect()).collect();
        let (mut next, mut turn, mut answer) = (churn.pods, 0, Answer::default());
        let (mut tasks, done) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
        let began = Instant::now();
        let mut ticks = interval_at(began, Duration::from_secs_f64(1.0 / churn.rate));
        // A machine that is too slow for the rate does less, and the figures say so.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while began.elapsed() < Duration::from_secs(churn.seconds) {
            ticks.tick().await;
            while tasks.len() >= AT_ONCE {
                collect(&mut answer, tasks.join_next().await)?;
            }
            let which = turn % nodes.len();
            if which == 0 {
                next += 1;
                say(done.load(Ordering::Relaxed));
            }
            turn += 1;
            let comes = next;
            let goes = lives[which].pop_front();
            lives[which].push_back(comes);
            let (node, people, done) = (Arc::clone(&nodes[which]), people.clone(), Arc::clone(&done));
            let (kind, networks) = (worker.kind, Arc::clone(&worker.networks));
            tasks.spawn(async move {
                let (comes, goes) =
                    (Sandbox::of(node.number, comes), goes.map(|goes| Sandbox::of(node.number, goes)));
                people.make(node.number, &comes.name).await?;
                let gone = goes.clone();
                let call = move || replace(&node, kind.plugin(), &comes, gone.as_ref(), &networks);
                let answer = tokio::task::spawn_blocking(call).await?;
                if let Some(Sandbox { name, .. }) = goes {
                    people.delete(&name).await?;
                }
                done.fetch_add(1, Ordering::Relaxed);
                anyhow::Ok(answer)
            });
        }
        while let Some(ended) = tasks.join_next().await {
            collect(&mut answer, Some(ended))?;
        }
        Ok(answer)
    })
}

type Ended = Option<Result<Result<Answer>, tokio::task::JoinError>>;

fn collect(answer: &mut Answer, ended: Ended) -> Result<()> {
    if let Some(ended) = ended {
        answer.merge(ended??);
    }
    Ok(())
}

/// DEL for the pod that goes, ADD for the one that comes.
fn replace(node: &Node, plugin: &str, comes: &Sandbox, goes: Option<&Sandbox>, networks: &[Value]) -> Answer {
    let mut answer = Answer::default();
    for network in networks.iter().enumerate() {
        if let Some(goes) = goes
            && let Err(said) = node.call("DEL", plugin, goes, network)
        {
            answer.failed += 1;
            answer.last_failure = Some(said);
        }
        let outcome = node.add(plugin, comes, network);
        answer.calls.extend(outcome.called);
        answer.failed += outcome.failed;
        answer.last_failure = outcome.last_failure.or(answer.last_failure);
    }
    answer
}
