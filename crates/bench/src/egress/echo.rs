//! Who answers outside: sends back what it is sent.

use std::collections::BTreeSet;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::socket::{Shutdown, setsockopt, shutdown, sockopt};
use tenure_testbed::hosts::Host;

const PORT: u16 = 7000;
/// How many bytes are sent and received with one call.
pub(super) const CHUNK: usize = 65_536;
/// How long to wait for what takes no time.
pub(super) const SOON: Duration = Duration::from_secs(10);

/// Answers at an address, until it is dropped.
pub(super) struct Echo {
    pub(super) address: SocketAddr,
    /// Who asked.
    pub(super) seen: Arc<Mutex<BTreeSet<IpAddr>>>,
    listener: Arc<TcpListener>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
    open: Arc<AtomicUsize>,
    accepting: Option<JoinHandle<()>>,
}

impl Echo {
    pub(super) fn start(host: &Host, address: IpAddr) -> Result<Self> {
        let address = SocketAddr::new(address, PORT);
        let listener = host.run(|| TcpListener::bind(address))?.with_context(|| format!("bind {address}"))?;
        usual_congestion_control(&listener)?;
        let listener = Arc::new(listener);
        let seen = Arc::<Mutex<BTreeSet<IpAddr>>>::default();
        let streams = Arc::<Mutex<Vec<TcpStream>>>::default();
        let open = Arc::<AtomicUsize>::default();
        let accepting = thread::spawn({
            let (listener, seen) = (Arc::clone(&listener), Arc::clone(&seen));
            let (streams, open) = (Arc::clone(&streams), Arc::clone(&open));
            move || {
                while let Ok((stream, from)) = listener.accept() {
                    seen.lock().unwrap_or_else(PoisonError::into_inner).insert(from.ip());
                    let Ok(other) = stream.try_clone() else { continue };
                    streams.lock().unwrap_or_else(PoisonError::into_inner).push(other);
                    open.fetch_add(1, Ordering::Relaxed);
                    let open = Arc::clone(&open);
                    thread::spawn(move || {
                        // Whoever asks ends it as it likes.
                        let _ = echo(stream);
                        open.fetch_sub(1, Ordering::Relaxed);
                    });
                }
            }
        });
        Ok(Self { address, seen, listener, streams, open, accepting: Some(accepting) })
    }

    /// Answers nobody any more of those who asked, so that the next round has the machine for itself.
    ///
    /// The other side has ended, and need not have been heard: the last packet of a connection can be lost.
    pub(super) fn settle(&self) -> Result<()> {
        for stream in self.streams.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // One that has ended is as good.
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        let start = Instant::now();
        while self.open.load(Ordering::Relaxed) > 0 {
            ensure!(start.elapsed() < SOON, "connections to {} do not end", self.address);
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        // Ends the waiting for others.
        let _ = shutdown(self.listener.as_raw_fd(), Shutdown::Both);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

/// Has a socket, and those that come of it, back off as kernels do by themselves, whatever this machine was tuned for.
pub(super) fn usual_congestion_control(socket: &impl AsFd) -> io::Result<()> {
    Ok(setsockopt(socket, sockopt::TcpCongestion, &"cubic".into())?)
}

fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; CHUNK];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            length => stream.write_all(&buffer[..length])?,
        }
    }
}
