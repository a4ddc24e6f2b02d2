//! The way from a host to an API server that listens on the machine's loopback: a port on the host's own.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tenure_testbed::control_plane::ControlPlane;
use tenure_testbed::hosts::Host;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::machine::Machine;

/// A port of a host's loopback behind which a server of the machine is, as long as this lives.
pub(crate) struct Way {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Way {
    /// Opens one on `machine` to an API server.
    pub(crate) fn to(plane: &ControlPlane, runtime: &Handle, machine: &Machine) -> Result<Self> {
        let server = plane.url();
        let server = server.strip_prefix("https://").context("the API server has no address")?;
        Self::open(runtime, &machine.host, server.parse()?)
    }

    /// Writes a kubeconfig file for programs at this end, whose objects are in `namespace`.
    pub(crate) fn kubeconfig(
        &self,
        plane: &ControlPlane,
        namespace: Option<&str>,
        file: &Path,
    ) -> Result<()> {
        let mut config: Value = serde_json::from_slice(&std::fs::read(plane.kubeconfig())?)?;
        config["clusters"][0]["cluster"]["server"] = json!(format!("https://{}", self.address));
        if let Some(namespace) = namespace {
            config["contexts"][0]["context"]["namespace"] = json!(namespace);
        }
        std::fs::write(file, config.to_string()).with_context(|| format!("cannot write {}", file.display()))
    }

    /// Writes a kubeconfig file for programs at this end, for a server that asks nobody who they are.
    pub(crate) fn plain_kubeconfig(&self, file: &Path) -> Result<()> {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "local",
            "clusters": [{"name": "local", "cluster": {"server": format!("http://{}", self.address)}}],
            "users": [{"name": "local", "user": {}}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": "local"}}],
        });
        std::fs::write(file, config.to_string()).with_context(|| format!("cannot write {}", file.display()))
    }

    /// Opens one on `host` to a server at this address of the machine.
    pub(crate) fn open(runtime: &Handle, host: &Host, server: SocketAddr) -> Result<Self> {
        let listener = host.run(|| std::net::TcpListener::bind("127.0.0.1:0"))??;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let entered = runtime.enter();
        let listener = TcpListener::from_std(listener).context("cannot listen in the host")?;
        drop(entered);
        let task = runtime.spawn(async move {
            while let Ok((inside, _)) = listener.accept().await {
                tokio::spawn(carry(inside, server));
            }
        });
        Ok(Self { address, task })
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(mut inside: TcpStream, server: SocketAddr) {
    let Ok(mut outside) = TcpStream::connect(server).await else { return };
    // Small requests are not to wait for more.
    let _ = (inside.set_nodelay(true), outside.set_nodelay(true));
    // One side has gone: so does the other.
    let _ = tokio::io::copy_bidirectional(&mut inside, &mut outside).await;
}
