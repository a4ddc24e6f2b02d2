//! Traffic between hosts of the bed: streams and datagrams that are answered, with what the other side saw.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::socket::{setsockopt, sockopt};
use tenure_testbed::hosts::Host;

/// Long enough for an answer to arrive that must not.
pub const A_MOMENT: Duration = Duration::from_millis(300);
/// How long to wait for what must come.
const LIMIT: Duration = Duration::from_mins(1);
/// The port that is answered at.
pub const PORT: u16 = 7000;
/// Asks the other side to send a burst.
const SEND_A_BURST: &[u8] = b"send a burst";
/// Datagrams of a burst, and the length of each.
pub const BURST: usize = 40;
pub const SEGMENT: u16 = 1200;

/// Answers streams and datagrams at an address of `host`, until the end of the process.
pub fn answer(host: &Host, address: IpAddr) -> Result<()> {
    let at = SocketAddr::new(address, PORT);
    let (streams, datagrams) =
        host.run(|| io::Result::Ok((TcpListener::bind(at)?, UdpSocket::bind(at)?)))??;
    thread::spawn(move || {
        for stream in streams.incoming().flatten() {
            thread::spawn(move || echo(stream));
        }
    });
    thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        while let Ok((length, from)) = datagrams.recv_from(&mut buffer) {
            if &buffer[..length] == SEND_A_BURST {
                let _ = burst(&datagrams, from);
            } else {
                // Who asked is told as whom it is seen, in front of what it said.
                let seen = format!("{:>40}", from.ip());
                let _ = datagrams.send_to(&[seen.as_bytes(), &buffer[..length]].concat(), from);
            }
        }
    });
    Ok(())
}

fn echo(mut stream: TcpStream) -> io::Result<()> {
    let seen = format!("{:>40}", stream.peer_addr()?.ip());
    stream.write_all(seen.as_bytes())?;
    let mut buffer = vec![0; 65_536];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            length => stream.write_all(&buffer[..length])?,
        }
    }
}

/// Sends this many bytes in a stream and reads them back. Says as whom the other side sees us.
pub fn stream(host: &Host, to: IpAddr, length: usize) -> Result<IpAddr> {
    let to = SocketAddr::new(to, PORT);
    let stream = host.run(|| TcpStream::connect_timeout(&to, LIMIT))?.context("connect")?;
    converse(stream, length)
}

/// The same without waiting for an answer that must not come.
pub fn cannot_stream(host: &Host, to: IpAddr) -> Result<bool> {
    let to = SocketAddr::new(to, PORT);
    Ok(host.run(|| TcpStream::connect_timeout(&to, A_MOMENT))?.is_err())
}

fn converse(mut stream: TcpStream, length: usize) -> Result<IpAddr> {
    stream.set_read_timeout(Some(LIMIT))?;
    let bytes: Vec<u8> = (0..length).map(|at| u8::try_from(at * 31 % 251).unwrap()).collect();
    let mut seen = [0; 40];
    stream.read_exact(&mut seen).context("read as whom we are seen")?;
    let mut writer = stream.try_clone()?;
    let back = thread::scope(|scope| {
        let writing = scope.spawn(|| writer.write_all(&bytes));
        let mut back = vec![0; length];
        stream.read_exact(&mut back)?;
        writing.join().map_err(|_| io::Error::other("writing panicked"))??;
        io::Result::Ok(back)
    });
    ensure!(back.context("read the stream back")? == bytes, "the stream came back changed");
    Ok(std::str::from_utf8(&seen)?.trim().parse()?)
}

/// A socket for datagrams to the other side.
pub fn socket(host: &Host, to: IpAddr) -> Result<UdpSocket> {
    let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
    let socket = host.run(|| {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((to, PORT))?;
        io::Result::Ok(socket)
    })??;
    socket.set_read_timeout(Some(LIMIT))?;
    Ok(socket)
}

/// Sends one datagram of this length and reads it back. Says as whom the other side sees us.
pub fn datagram(socket: &UdpSocket, length: usize) -> Result<IpAddr> {
    let sent: Vec<u8> = (0..length).map(|at| u8::try_from(at * 17 % 251).unwrap()).collect();
    let mut buffer = vec![0; 65_536];
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    // The first of a flow may be lost while neighbours look for each other.
    for _ in 0..20 {
        socket.send(&sent).context("send a datagram")?;
        while let Ok(received) = socket.recv(&mut buffer) {
            // An answer to an earlier datagram of another length may come late.
            if received != 40 + length {
                continue;
            }
            ensure!(buffer[40..received] == sent, "the datagram came back changed");
            return Ok(std::str::from_utf8(&buffer[..40])?.trim().parse()?);
        }
    }
    anyhow::bail!("no answer to a datagram of {length} bytes")
}

/// Sends a burst of datagrams in one call, so that the kernel segments them late. Says how many came back.
pub fn segments(socket: &UdpSocket) -> Result<usize> {
    datagram(socket, 10)?;
    setsockopt(&socket.as_fd(), sockopt::UdpGsoSegment, &i32::from(SEGMENT))?;
    let payload = vec![7; BURST * usize::from(SEGMENT)];
    ensure!(socket.send(&payload)? == payload.len());
    setsockopt(&socket.as_fd(), sockopt::UdpGsoSegment, &0)?;
    Ok(count(socket, usize::from(SEGMENT) + 40))
}

/// Has the other side send such a burst. Says how many datagrams came.
pub fn segments_back(socket: &UdpSocket) -> Result<usize> {
    datagram(socket, 10)?;
    socket.send(SEND_A_BURST)?;
    Ok(count(socket, usize::from(SEGMENT)))
}

fn burst(socket: &UdpSocket, to: SocketAddr) -> io::Result<usize> {
    setsockopt(&socket.as_fd(), sockopt::UdpGsoSegment, &i32::from(SEGMENT))?;
    let sent = socket.send_to(&vec![7; BURST * usize::from(SEGMENT)], to);
    setsockopt(&socket.as_fd(), sockopt::UdpGsoSegment, &0)?;
    sent
}

/// How many datagrams of this length come before nothing comes any more.
fn count(socket: &UdpSocket, length: usize) -> usize {
    let mut buffer = vec![0; 65_536];
    let mut found = 0;
    while found < BURST {
        match socket.recv(&mut buffer) {
            Ok(received) if received == length => found += 1,
            Ok(_) => {}
            Err(_) => break,
        }
    }
    found
}
