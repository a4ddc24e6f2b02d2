//! The API server's way to agents, which are on hosts that it has no interface to: it asks a proxy (HTTP CONNECT over a
//! unix socket), and the proxy connects from inside the host that has the address.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;
use tenure_testbed::control_plane::{ControlPlaneOptions, Part};
use tenure_testbed::hosts::NetworkNamespace;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, copy_bidirectional};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::runtime::Handle;

use crate::agent::Machine;

/// The hosts by their addresses.
type Hosts = Arc<BTreeMap<IpAddr, NetworkNamespace>>;

/// The proxy, before it knows the hosts.
pub struct Egress {
    listener: StdListener,
    configuration: PathBuf,
}

impl Egress {
    /// Opens it in a directory.
    pub fn open(directory: &Path) -> Self {
        let (socket, configuration) = (directory.join("egress.sock"), directory.join("egress.json"));
        let listener = StdListener::bind(&socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        let selection = json!({
            "apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration",
            "egressSelections": [{"name": "cluster", "connection": {
                "proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": socket}},
            }}],
        });
        std::fs::write(&configuration, selection.to_string()).unwrap();
        Self { listener, configuration }
    }

    /// With an API server that uses it.
    pub fn used_by(&self, options: ControlPlaneOptions) -> ControlPlaneOptions {
        let file = self.configuration.display();
        options.argument(Part::ApiServer, format!("--egress-selector-config-file={file}"))
    }

    /// Serves until the runtime ends.
    pub fn serve(self, runtime: &Handle, machines: &[Machine<'_>]) {
        let host = |machine: &Machine<'_>| {
            let namespace = machine.host.namespace();
            (machine.addresses[0], NetworkNamespace::open(&machine.name, &namespace.path()).unwrap())
        };
        let hosts: Hosts = Arc::new(machines.iter().map(host).collect());
        let _inside = runtime.enter();
        let listener = UnixListener::from_std(self.listener).unwrap();
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(carry(stream, Arc::clone(&hosts)));
            }
        });
    }
}

/// One connection; whoever asks for something else than is there is left without an answer.
async fn carry(stream: UnixStream, hosts: Hosts) -> Option<()> {
    let mut stream = BufReader::new(stream);
    let mut asked = String::new();
    stream.read_line(&mut asked).await.ok()?;
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
    }
    let to: SocketAddr = asked.strip_prefix("CONNECT ")?.split(' ').next()?.parse().ok()?;
    let inside = tokio::task::spawn_blocking(move || {
        hosts.get(&to.ip())?.run(|| std::net::TcpStream::connect(to)).ok()?.ok()
    });
    let inside = inside.await.ok()??;
    inside.set_nonblocking(true).ok()?;
    let mut inside = TcpStream::from_std(inside).ok()?;
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.ok()?;
    copy_bidirectional(&mut stream, &mut inside).await.ok()?;
    Some(())
}
