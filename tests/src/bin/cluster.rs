//! `cargo xtask cluster`: a real cluster of three nodes with the product installed, to try things on.
//!
//! It ends, and everything with it, with Ctrl-C and when it is killed.

use std::io::{self, Write as _};

use tenure_handles::{Clock as _, SystemClock};
use tenure_testbed::binaries::Program;
use tenure_tests::installed::{install, three_nodes};
use tenure_tests::steps::Steps;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let steps = Steps(SystemClock.now());
    let cluster = tokio::select! {
        cluster = three_nodes(&steps) => cluster?,
        _ = tokio::signal::ctrl_c() => return Ok(()),
    };
    tokio::select! {
        installed = install(&cluster) => installed?,
        _ = tokio::signal::ctrl_c() => return Ok(()),
    }
    steps.done("Tenure is installed, and the nodes are ready");
    let kubectl = cluster.control_plane().binaries().path(Program::Kubectl)?;
    let mut out = io::stdout().lock();
    writeln!(out, "\nexport KUBECONFIG={}", cluster.control_plane().kubeconfig().display())?;
    writeln!(out, "{} get nodes,addresspools,addressblocks", kubectl.display())?;
    writeln!(out, "logs are in {}; Ctrl-C ends the cluster and removes it", cluster.logs().display())?;
    out.flush()?;
    drop(out);
    tokio::signal::ctrl_c().await?;
    Ok(())
}
