//! Somebody else's CNI plugin for the networks of Whereabouts, called as Multus calls it: a process for each network of a pod, one
//! after the other, and all nodes at once.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, stream};
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::Plan;
use super::cluster::Cluster;
use super::counted::now;
use super::kind::{self, NAMESPACE};
use super::order::{Answer, Called};
use crate::whereabouts::peer::{flat, point};

/// The namespace of its objects.
const OBJECTS: &str = "peer";
/// Programs that run at once.
const AT_ONCE: usize = 512;
/// Nothing more is begun after this.
const LIMIT: Duration = Duration::from_mins(5);
/// How long one call may take: after that a kubelet has given up.
const PATIENCE: Duration = Duration::from_mins(4);

/// A pod on each node asks for an address on each network. A call that fails is not repeated, and the pod's other networks are.
pub(super) async fn burst(cluster: &Cluster, plan: &Plan, program: &Path) -> Result<Answer> {
    ensure!(
        program.is_file(),
        "{} is no file; accepted by --peer is a directory with whereabouts",
        program.display()
    );
    let directory = tempfile::tempdir()?;
    let (kubeconfig, flat_file) = (directory.path().join("kubeconfig"), directory.path().join("flat.conf"));
    cluster.administrator(OBJECTS, &kubeconfig).await?;
    std::fs::write(&flat_file, flat(&kubeconfig).to_string())?;
    let mut networks = plan.kind.networks(plan.networks, plan.nodes)?;
    for config in &mut networks {
        point(config, &kubeconfig, &flat_file);
    }
    let (networks, began) = (&networks, Instant::now());
    let each = (0..plan.nodes).map(|node| async move {
        let mut answer = Answer::default();
        for network in networks.iter().enumerate() {
            if began.elapsed() > LIMIT {
                answer.failed += 1;
                answer.last_failure = Some(format!("it was not asked within {LIMIT:?}"));
                continue;
            }
            let asked = Instant::now();
            let outcome = tokio::time::timeout(PATIENCE, add(program, node, network)).await;
            match outcome.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer within {PATIENCE:?}"))) {
                Ok(()) => {
                    let took = u64::try_from(asked.elapsed().as_micros()).unwrap_or(u64::MAX);
                    answer.calls.push(Called { at: now(), took });
                }
                Err(error) => {
                    answer.failed += 1;
                    answer.last_failure = Some(format!("{error:#}"));
                }
            }
        }
        answer.served = vec![now()];
        answer
    });
    let all = stream::iter(each).buffer_unordered(AT_ONCE);
    Ok(all
        .fold(Answer::default(), |mut all, answer| async {
            all.merge(answer);
            all
        })
        .await)
}

async fn add(program: &Path, node: usize, (number, config): (usize, &Value)) -> Result<()> {
    let pod = kind::pod(node, 0);
    let mut child = Command::new(program)
        .env_clear()
        .env("CNI_COMMAND", "ADD")
        .env("CNI_CONTAINERID", format!("{pod}-peer"))
        .env("CNI_IFNAME", kind::interface(number))
        .env("CNI_NETNS", "/proc/self/ns/net")
        .env("CNI_PATH", "/nonexistent")
        .env("CNI_ARGS", format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={NAMESPACE};K8S_POD_NAME={pod}"))
        .env("NODENAME", kind::node(node))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let mut input = child.stdin.take().context("the program has no input")?;
    input.write_all(config.to_string().as_bytes()).await?;
    drop(input);
    let output = child.wait_with_output().await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}
