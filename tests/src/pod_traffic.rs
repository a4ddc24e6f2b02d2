//! Packets between pods, sent and received in the pods' own network namespaces.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tenure_handles::{Clock as _, SystemClock};
use tenure_testbed::cluster::Cluster;
use tenure_testbed::hosts::{Host, Mounts};
use tenure_testbed::wait::PATIENCE;

/// A port that no pod listens on.
const PORT: u16 = 7000;

/// The pods' network namespaces, by their addresses.
pub struct Namespaces(BTreeMap<Ipv4Addr, Host>);

impl Namespaces {
    /// Those of all pods that run on the nodes and have an interface.
    pub fn find(cluster: &Cluster) -> Result<Self> {
        let mut found = BTreeMap::new();
        for node in cluster.nodes() {
            for entry in std::fs::read_dir(node.path("/run/netns")?)? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                let namespace = tenure_testbed::hosts::NetworkNamespace::open(&name, &entry.path())?;
                let shown = namespace.ip_json(&["-4", "address", "show", "dev", "eth0"])?;
                let address = shown[0]["addr_info"][0]["local"].as_str().context("an address")?.parse()?;
                found.insert(address, Host::in_namespace(namespace, Mounts::default()));
            }
        }
        Ok(Self(found))
    }

    pub fn addresses(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.0.keys().copied()
    }

    fn of(&self, address: Ipv4Addr) -> Result<&Host> {
        self.0.get(&address).with_context(|| format!("a pod with the address {address}"))
    }

    /// Every pod pings every pod.
    pub fn all_reach_all(&self) -> Result<usize> {
        let mut count = 0;
        for (from, pod) in &self.0 {
            for to in self.0.keys() {
                pod.ping(IpAddr::V4(*to), PATIENCE).with_context(|| format!("from {from} to {to}"))?;
                count += 1;
            }
        }
        Ok(count)
    }

    /// What a pod gets over HTTP.
    pub fn get(&self, from: Ipv4Addr, server: SocketAddr) -> Result<String> {
        let got = self.of(from)?.run(|| get(server, "/"))?;
        got.with_context(|| format!("from {from} to {server}"))
    }

    /// Opens a connection between two pods and keeps it busy.
    pub fn connect(&self, from: Ipv4Addr, to: Ipv4Addr) -> Result<Connection> {
        let address = SocketAddr::from((to, PORT));
        let listener = self.of(to)?.run(|| TcpListener::bind(address))??;
        let client = self.of(from)?.run(|| TcpStream::connect_timeout(&address, PATIENCE))??;
        let (server, _) = listener.accept()?;
        ensure!(server.peer_addr()?.ip() == from, "{from} is seen as {}", server.peer_addr()?.ip());
        for stream in [&client, &server] {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
        }
        thread::spawn(move || echo(server));
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let task = thread::spawn(move || exchange(client, &stopped));
        Ok(Connection { name: format!("{from} to {to}"), stop, task })
    }
}

/// A connection on which something is said and answered all the time.
pub struct Connection {
    name: String,
    stop: Arc<AtomicBool>,
    task: JoinHandle<io::Result<Exchanged>>,
}

/// What was said on it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Exchanged {
    pub rounds: u64,
    /// The longest that an answer took.
    pub longest: Duration,
}

impl Connection {
    /// Ends it; an error if it had broken.
    pub fn end(self) -> Result<Exchanged> {
        self.stop.store(true, Ordering::Relaxed);
        let outcome = self.task.join().map_err(|_| anyhow::anyhow!("the exchange panicked"))?;
        outcome.with_context(|| format!("the connection from {}", self.name))
    }
}

fn echo(mut server: TcpStream) -> io::Result<()> {
    let mut word = [0; 8];
    loop {
        server.read_exact(&mut word)?;
        server.write_all(&word)?;
    }
}

fn exchange(mut client: TcpStream, stop: &AtomicBool) -> io::Result<Exchanged> {
    let mut exchanged = Exchanged::default();
    let mut answer = [0; 8];
    while !stop.load(Ordering::Relaxed) {
        let (word, sent) = (exchanged.rounds.to_be_bytes(), SystemClock.now());
        client.write_all(&word)?;
        client.read_exact(&mut answer)?;
        if answer != word {
            return Err(io::Error::other(format!("{word:?} was answered by {answer:?}")));
        }
        exchanged.rounds += 1;
        exchanged.longest = exchanged.longest.max(SystemClock.now().since(sent));
        thread::sleep(Duration::from_millis(5));
    }
    Ok(exchanged)
}

/// The body of what a server answers over HTTP, from the calling thread's namespace.
pub fn get(server: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&server, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {server}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.split(' ').nth(1) == Some("200") => Ok(body.trim().to_owned()),
        _ => Err(io::Error::other(answer)),
    }
}
