//! A target outside of the cluster: addresses of both families that one node's network leads to, and that answer HTTP.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tenure_testbed::cluster::Cluster;

/// Its addresses: such that nobody has.
pub const TARGETS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, 9)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x51, 0, 0, 0, 0, 9)),
];

/// How a target is asked for.
pub fn url(target: IpAddr) -> String {
    format!("http://{}/", SocketAddr::new(target, 8080))
}

/// The target, until this is dropped.
pub struct Outside {
    ended: Arc<AtomicBool>,
}

impl Outside {
    /// Gives the first node's network the addresses, and tells the others the way.
    pub fn start(cluster: &Cluster) -> Result<Self> {
        let first = cluster.node(0);
        let ended = Arc::new(AtomicBool::new(false));
        let ways: [IpAddr; 2] = [first.address().into(), first.ipv6().into()];
        for (target, way) in TARGETS.into_iter().zip(ways) {
            let network = format!("{target}/{}", if target.is_ipv4() { 32 } else { 128 });
            first.host().address("lo", &[&network])?;
            for node in cluster.nodes().skip(1) {
                node.host().route(&network, way)?;
            }
            let address = SocketAddr::new(target, 8080);
            let listener = first.host().run(move || TcpListener::bind(address))?.context("listen outside")?;
            listener.set_nonblocking(true)?;
            let told = Arc::clone(&ended);
            std::thread::spawn(move || {
                while !told.load(Ordering::Relaxed) {
                    match listener.accept() {
                        Ok((stream, peer)) => drop(std::thread::spawn(move || answer(&stream, peer))),
                        Err(_) => std::thread::sleep(Duration::from_millis(5)),
                    }
                }
            });
        }
        Ok(Self { ended })
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// GET: who asks. POST: what was sent.
fn answer(mut stream: &TcpStream, peer: SocketAddr) -> Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.set_write_timeout(Some(Duration::from_secs(30)))?;
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().context("a length")?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    if body.is_empty() {
        body = format!("{}\n", peer.ip()).into_bytes();
    }
    write!(stream, "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", body.len())?;
    stream.write_all(&body)?;
    Ok(())
}
