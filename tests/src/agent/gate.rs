//! The way from a host to an API server: a port on the host's loopback that can be shut or frozen, and that counts.
//!
//! The API server itself goes on, so that other hosts do not notice, and whatever was cut can be looked at meanwhile.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tenure_testbed::hosts::Host;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A port on a host's loopback behind which an API server is.
pub struct Gate {
    address: SocketAddr,
    open: watch::Sender<bool>,
    flowing: watch::Sender<bool>,
    sent: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Gate {
    /// Opens one on `host` to `server`, which listens outside.
    pub fn open(runtime: &Handle, host: &Host, server: SocketAddr) -> Self {
        let listener = host.run(|| std::net::TcpListener::bind("127.0.0.1:0")).unwrap().unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (open, opened) = watch::channel(true);
        let (flowing, flow) = watch::channel(true);
        let sent = Arc::new(AtomicU64::new(0));
        let task = runtime.spawn(accept(listener, server, opened, flow, Arc::clone(&sent)));
        Self { address, open, flowing, sent, task }
    }

    /// Where it is, for the host's programs.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts every connection, and lets none through until it is opened again.
    pub fn shut(&self) {
        self.open.send_replace(false);
    }

    /// Lets connections through again.
    pub fn reopen(&self) {
        self.open.send_replace(true);
    }

    /// Keeps every connection, and lets nothing through until it is thawed: a server that does not answer any more.
    pub fn freeze(&self) {
        self.flowing.send_replace(false);
    }

    /// Lets everything through again, first what was kept.
    pub fn thaw(&self) {
        self.flowing.send_replace(true);
    }

    /// How many bytes the host has sent to the server.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(
    listener: std::net::TcpListener,
    server: SocketAddr,
    mut opened: watch::Receiver<bool>,
    flow: watch::Receiver<bool>,
    sent: Arc<AtomicU64>,
) {
    let listener = TcpListener::from_std(listener).unwrap();
    loop {
        let (inside, _) = listener.accept().await.unwrap();
        if *opened.borrow_and_update() {
            tokio::spawn(carry(inside, server, opened.clone(), flow.clone(), Arc::clone(&sent)));
        }
    }
}

async fn carry(
    inside: TcpStream,
    server: SocketAddr,
    mut opened: watch::Receiver<bool>,
    flow: watch::Receiver<bool>,
    sent: Arc<AtomicU64>,
) {
    let Ok(outside) = TcpStream::connect(server).await else { return };
    let ((from_host, to_host), (from_server, to_server)) = (inside.into_split(), outside.into_split());
    let received = AtomicU64::new(0);
    tokio::select! {
        () = pass(from_host, to_server, flow.clone(), &sent) => {}
        () = pass(from_server, to_host, flow, &received) => {}
        _ = opened.wait_for(|open| !open) => {}
    }
}

/// Passes on what comes, while it may flow, and counts it.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut flow: watch::Receiver<bool>,
    count: &AtomicU64,
) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        count.fetch_add(read as u64, Ordering::SeqCst);
        if flow.wait_for(|flowing| *flowing).await.is_err() || to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
