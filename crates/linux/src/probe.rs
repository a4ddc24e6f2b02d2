//! Asks the hosts of an Ethernet segment whether one of them has an IPv4 address, before an interface gets it (RFC 5227, section
//! 2.1). IPv6 has this in the kernel: duplicate address detection.
//!
//! A probe is an ARP request without a sender's address, so it changes nothing in anybody's neighbour table. A host that has the
//! address answers it, and no router does for others. The RFC waits for up to nine seconds, for hosts that are slow to wake up and for
//! lost frames; a node's interface waits a fifth of a second, because hosts on a wire answer within a millisecond.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, MsgFlags, bind, recv, send};
use socket2::{Domain, Protocol, Socket, Type};
use tenure_handles::Clock;

use crate::Mac;
use crate::announce::{arp, place_of};
use crate::netns::{self, NetNs};

/// When probes are sent, and when the last answer is waited for.
const SENT: [Duration; 3] = [Duration::ZERO, Duration::from_millis(60), Duration::from_millis(120)];
const END: Duration = Duration::from_millis(200);
/// `SOCK_RAW` and `ETH_P_ARP`, see packet(7).
const RAW: i32 = 3;
const ARP: u16 = 0x0806;
/// Ethernet's header and ARP's message.
const FRAME: usize = 42;

/// Addresses that an interface is to get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The interface.
    pub link: String,
    /// Its Ethernet address.
    pub mac: Mac,
    /// The addresses.
    pub addresses: BTreeSet<Ipv4Addr>,
}

/// A host that has one of the addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The interface on whose segment it is.
    pub link: String,
    /// The address.
    pub address: Ipv4Addr,
    /// The Ethernet address that answered.
    pub mac: Mac,
}

/// A segment that could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The namespace cannot be entered.
    #[error("ask a segment who has addresses")]
    Namespace(#[from] netns::Error),
    /// There is no such link.
    #[error("ask on {link} who has addresses: there is no such link")]
    NoLink {
        /// Its name.
        link: String,
    },
    /// The kernel refused.
    #[error("{act} to ask on {link} who has addresses: {errno}")]
    Kernel {
        /// The step that failed.
        act: &'static str,
        /// On which link.
        link: String,
        /// The cause.
        errno: Errno,
    },
}

/// Asks all segments at once, and returns as soon as somebody answers, or when the time is over. Answers of `own`, the Ethernet
/// addresses of this host, do not count.
pub fn probe(
    namespace: &NetNs,
    questions: &[Question],
    own: &BTreeSet<Mac>,
    clock: &dyn Clock,
) -> Result<Option<Answer>, Error> {
    namespace.run(|| ask(questions, own, clock))?
}

fn ask(questions: &[Question], own: &BTreeSet<Mac>, clock: &dyn Clock) -> Result<Option<Answer>, Error> {
    let sockets: Vec<Socket> = questions.iter().map(|it| listen(&it.link)).collect::<Result<_, _>>()?;
    let began = clock.elapsed();
    let mut sent = 0;
    loop {
        let passed = clock.elapsed().saturating_sub(began);
        if passed >= END {
            return Ok(None);
        }
        if SENT.get(sent).is_some_and(|at| passed >= *at) {
            sent += 1;
            for (question, socket) in questions.iter().zip(&sockets) {
                for address in &question.addresses {
                    let frame = arp(1, (question.mac, Ipv4Addr::UNSPECIFIED), (Mac([0; 6]), *address));
                    send(socket.as_raw_fd(), &frame, MsgFlags::empty())
                        .map_err(failed("send a frame", &question.link))?;
                }
            }
            continue;
        }
        let next = SENT.get(sent).copied().unwrap_or(END);
        let wait = next.saturating_sub(passed).max(Duration::from_millis(1));
        let mut ready: Vec<PollFd<'_>> =
            sockets.iter().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)).collect();
        let timeout = PollTimeout::try_from(wait).unwrap_or(PollTimeout::ZERO);
        match poll(&mut ready, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => {
                let link = questions.first().map(|it| it.link.as_str()).unwrap_or_default();
                return Err(failed("wait for answers", link)(errno));
            }
        }
        for (question, socket) in questions.iter().zip(&sockets) {
            if let Some(answer) = read(question, socket, own)? {
                return Ok(Some(answer));
            }
        }
    }
}

/// A socket that gets the ARP messages of one link from now on.
fn listen(link: &str) -> Result<Socket, Error> {
    let place = place_of(link).map_err(failed("list links", link))?;
    let place = place.ok_or_else(|| Error::NoLink { link: link.to_owned() })?;
    let opened = Socket::new(
        Domain::from(AddressFamily::Packet as i32),
        Type::from(RAW),
        Some(Protocol::from(i32::from(ARP.to_be()))),
    );
    let refused = |error: &std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or_default());
    let socket = opened.map_err(|error| failed("open a socket", link)(refused(&error)))?;
    socket.set_nonblocking(true).map_err(|error| failed("open a socket", link)(refused(&error)))?;
    bind(socket.as_raw_fd(), &place).map_err(failed("bind a socket", link))?;
    // Until it was bound it got what other links received.
    while next(&socket, link)?.is_some() {}
    Ok(socket)
}

fn failed(act: &'static str, link: &str) -> impl Fn(Errno) -> Error {
    let link = link.to_owned();
    move |errno| Error::Kernel { act, link: link.clone(), errno }
}

fn next(socket: &Socket, link: &str) -> Result<Option<[u8; FRAME]>, Error> {
    let mut frame = [0; FRAME];
    match recv(socket.as_raw_fd(), &mut frame, MsgFlags::empty()) {
        Ok(_) => Ok(Some(frame)),
        Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
        Err(errno) => Err(failed("read an answer", link)(errno)),
    }
}

fn read(question: &Question, socket: &Socket, own: &BTreeSet<Mac>) -> Result<Option<Answer>, Error> {
    while let Some(frame) = next(socket, &question.link)? {
        if let Some((address, mac)) = contradicts(&frame, question)
            && !own.contains(&mac)
        {
            return Ok(Some(Answer { link: question.link.clone(), address, mac }));
        }
    }
    Ok(None)
}

/// Whether a message says that somebody has an address, or asks for it in order to get it.
fn contradicts(frame: &[u8; FRAME], question: &Question) -> Option<(Ipv4Addr, Mac)> {
    let is_arp = frame[12..20] == [0x08, 0x06, 0, 1, 0x08, 0, 6, 4];
    let (operation, mac) = (frame[21], Mac::from_bytes(&frame[22..28])?);
    let address = |at: usize| Ipv4Addr::new(frame[at], frame[at + 1], frame[at + 2], frame[at + 3]);
    let (sender, target) = (address(28), address(38));
    if !is_arp || mac == question.mac {
        return None;
    }
    let has = question.addresses.contains(&sender).then_some(sender);
    let wants = operation == 1 && sender.is_unspecified() && question.addresses.contains(&target);
    has.or(wants.then_some(target)).map(|address| (address, mac))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Mac = Mac([0x0a, 1, 2, 3, 4, 5]);
    const OTHER: Mac = Mac([0x0a, 9, 9, 9, 9, 9]);

    fn heard(operation: u8, sender: (Mac, &str), target: &str) -> Option<(Ipv4Addr, Mac)> {
        let addresses = ["192.0.2.9".parse().unwrap()].into();
        let question = Question { link: "eth1".to_owned(), mac: OURS, addresses };
        let frame = arp(operation, (sender.0, sender.1.parse().unwrap()), (OURS, target.parse().unwrap()));
        contradicts(&frame.try_into().unwrap(), &question)
    }

    #[test]
    fn an_answer_an_announcement_and_another_probe_contradict_and_nothing_else_does() {
        let ours = "192.0.2.9".parse().unwrap();
        assert_eq!(heard(2, (OTHER, "192.0.2.9"), "0.0.0.0"), Some((ours, OTHER)), "an answer");
        assert_eq!(heard(1, (OTHER, "192.0.2.9"), "192.0.2.9"), Some((ours, OTHER)), "an announcement");
        assert_eq!(heard(1, (OTHER, "0.0.0.0"), "192.0.2.9"), Some((ours, OTHER)), "a probe");
        assert_eq!(heard(1, (OURS, "0.0.0.0"), "192.0.2.9"), None, "our own probe");
        assert_eq!(heard(1, (OTHER, "192.0.2.7"), "192.0.2.9"), None, "somebody who looks for it");
        assert_eq!(heard(2, (OTHER, "192.0.2.7"), "192.0.2.8"), None, "others");
    }

    #[test]
    fn frames_of_other_protocols_are_not_read() {
        let question = Question { link: "eth1".to_owned(), mac: OURS, addresses: BTreeSet::new() };
        assert_eq!(contradicts(&[0; FRAME], &question), None);
        assert_eq!(contradicts(&[0xff; FRAME], &question), None);
    }
}
