//! The way from a host to an API server that listens on the machine's loopback: a port on the host's own.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use tenure_testbed::hosts::Host;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// A port of a host's loopback behind which a server of the machine is, as long as this lives.
pub(super) struct Way {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Way {
    /// Opens one on `host` to `server`.
    pub(super) fn open(runtime: &Handle, host: &Host, server: SocketAddr) -> Result<Self> {
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

    /// Where it is, for the host's programs.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
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
