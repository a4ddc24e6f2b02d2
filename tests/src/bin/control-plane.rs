//! Starts a control plane, says how to reach it, and waits: to try kubectl on, and for the test that kills it.
//!
//! It ends, and everything with it, with Ctrl-C and when it is killed.

use std::io::{self, Write as _};

use tenure_testbed::control_plane::{ControlPlane, ControlPlaneOptions, Part};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let plane = ControlPlane::start(ControlPlaneOptions::default()).await?;
    let mut out = io::stdout().lock();
    for part in Part::ALL {
        if let Some(id) = plane.process_id(part) {
            writeln!(out, "process {id} {part}")?;
        }
    }
    let kubectl = plane.binaries().path(tenure_testbed::binaries::Program::Kubectl)?;
    writeln!(out, "logs {}", plane.logs().display())?;
    writeln!(out, "try KUBECONFIG={} {} get namespaces", plane.kubeconfig().display(), kubectl.display())?;
    writeln!(out, "ready; it ends with Ctrl-C")?;
    out.flush()?;
    drop(out);
    tokio::signal::ctrl_c().await?;
    Ok(())
}
