//! The thread that makes interfaces of other plugins announce their addresses or stay silent. It waits for
//! interfaces that do not exist yet and repeats announcements, and nothing else should wait for that.
//!
//! It promises that the latest announcement for an interface wins. A failure here fails nothing else and is
//! logged.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use tenure_handles::{Clock, Timestamp};
use tenure_linux::chain;
use tenure_linux::netns::NetNs;
use tenure_linux::{announce, answering};
use tracing::{info, warn};

use crate::key::HoldKey;

/// The delays between announcements. The first one matters; the others are for hosts that missed it.
const AGAIN_AFTER: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(250), Duration::from_millis(650)];
/// How often an announcement is repeated while another interface has the addresses as well: how long a host
/// that heard that one is wrong.
const CONTESTED: Duration = Duration::from_millis(500);
/// How long after a failed search for an interface the next one follows.
const RETRY: Duration = Duration::from_millis(50);
/// How many searches: ten seconds, in which a runtime has created the interface or given up.
const RETRIES: u32 = 200;

/// What an interface should do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Announcement {
    pub(super) key: HoldKey,
    /// The path of its namespace.
    pub(super) netns: String,
    pub(super) addresses: Vec<IpAddr>,
    /// Whether it has the addresses; otherwise it stays silent.
    pub(super) reached: bool,
    /// Whether it repeats the announcement until there is another one.
    pub(super) contested: bool,
}

/// The handle to the thread. The thread ends when this is dropped.
#[derive(Debug)]
pub(super) struct Announcer {
    wishes: Sender<Announcement>,
}

impl Announcer {
    pub(super) fn start(clock: impl Clock) -> io::Result<Self> {
        let (wishes, received) = mpsc::channel();
        thread::Builder::new().name("announcer".into()).spawn(move || run(&clock, &received))?;
        Ok(Self { wishes })
    }

    /// Makes an interface announce its addresses or stay silent, soon.
    pub(super) fn announce(&self, announcement: Announcement) {
        let _ = self.wishes.send(announcement);
    }
}

fn run(clock: &impl Clock, wishes: &Receiver<Announcement>) {
    let mut schedule = Schedule::default();
    loop {
        let now = clock.now();
        while let Some(wish) = schedule.due(now) {
            let outcome = carry_out(&wish);
            schedule.done(&wish.key, outcome, clock.now());
        }
        let received = match schedule.next() {
            None => wishes.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(at) => wishes.recv_timeout(at.since(clock.now()).max(Duration::from_millis(1))),
        };
        match received {
            Ok(wish) => schedule.take(wish, clock.now()),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn carry_out(wish: &Announcement) -> Outcome {
    let link = wish.key.interface();
    let try_it = || -> Result<bool, Box<answering::Error>> {
        let namespace = NetNs::open(&wish.netns)
            .map_err(|source| answering::Error::Namespace { link: link.to_owned(), source })?;
        if !wish.reached {
            answering::stop_answering(&namespace, link)?;
            return Ok(answering::mute(&namespace, link, &wish.addresses)?);
        }
        answering::start_answering(&namespace, link)?;
        let mac = answering::mac(&namespace, link)?;
        announce::announce(&namespace, link, mac, &wish.addresses).map_err(answering::Error::from)?;
        Ok(true)
    };
    match try_it() {
        Ok(true) => Outcome::Done,
        Ok(false) => Outcome::Incomplete,
        Err(error) if error.is_gone() => Outcome::Gone,
        Err(error) if error.is_early() => Outcome::Early(chain(&error)),
        Err(error) => Outcome::Failed(chain(&error)),
    }
}

/// The result of an attempt.
#[derive(Debug)]
enum Outcome {
    Done,
    /// It does not answer, but it does not have its addresses yet, or no longer.
    Incomplete,
    /// The interface is gone.
    Gone,
    /// The interface does not exist yet.
    Early(String),
    Failed(String),
}

/// Decides when each announcement is made.
#[derive(Debug, Default)]
struct Schedule {
    rounds: BTreeMap<HoldKey, Round>,
}

#[derive(Debug)]
struct Round {
    wish: Announcement,
    at: Timestamp,
    /// How often it worked.
    said: usize,
    missed: u32,
}

impl Schedule {
    fn take(&mut self, wish: Announcement, now: Timestamp) {
        self.rounds.insert(wish.key.clone(), Round { wish, at: now, said: 0, missed: 0 });
    }

    fn next(&self) -> Option<Timestamp> {
        self.rounds.values().map(|round| round.at).min()
    }

    fn due(&self, now: Timestamp) -> Option<Announcement> {
        self.rounds.values().find(|round| round.at <= now).map(|round| round.wish.clone())
    }

    fn done(&mut self, key: &HoldKey, outcome: Outcome, now: Timestamp) {
        let Some(round) = self.rounds.get_mut(key) else { return };
        let reached = round.wish.reached;
        let next = match outcome {
            Outcome::Done if reached => {
                round.said += 1;
                if round.said == 1 {
                    info!(%key, addresses = ?round.wish.addresses, "announced a claim's addresses");
                }
                AGAIN_AFTER.get(round.said - 1).copied().or(round.wish.contested.then_some(CONTESTED))
            }
            // It existed, and is gone.
            Outcome::Early(_) if round.said > 0 => None,
            Outcome::Early(_) | Outcome::Incomplete if round.missed < RETRIES => {
                round.missed += 1;
                Some(RETRY)
            }
            // An interface that never gets the addresses cannot announce them: a virtual machine may have
            // taken them from its pod.
            Outcome::Done | Outcome::Gone | Outcome::Incomplete => None,
            Outcome::Early(error) | Outcome::Failed(error) => {
                let what = if reached { "announce a claim's addresses" } else { "keep an interface quiet" };
                warn!(%key, addresses = ?round.wish.addresses, error, "cannot {what}");
                None
            }
        };
        match next {
            Some(after) => round.at = now.plus(after),
            None => drop(self.rounds.remove(key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(reached: bool) -> Announcement {
        let key = HoldKey::new("net", "c1", "net1").unwrap();
        Announcement { key, netns: "/run/netns/c1".into(), addresses: Vec::new(), reached, contested: false }
    }

    /// Runs the schedule with an interface that exists from `there` on; returns when each announcement
    /// worked.
    fn play(mut schedule: Schedule, there: u64) -> Vec<(u64, bool)> {
        let mut worked = Vec::new();
        while let Some(at) = schedule.next() {
            let wish = schedule.due(at).unwrap();
            let early = at.as_millis() < there;
            if !early {
                worked.push((at.as_millis(), wish.reached));
            }
            let outcome = if early { Outcome::Early("no link".into()) } else { Outcome::Done };
            schedule.done(&wish.key, outcome, at);
        }
        worked
    }

    fn moment(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn an_address_is_announced_a_few_times_within_a_second_as_soon_as_its_interface_is_there() {
        let mut schedule = Schedule::default();
        schedule.take(wish(true), moment(0));
        assert_eq!(play(schedule, 120), [150, 250, 500, 1150].map(|at| (at, true)));
    }

    #[test]
    fn an_address_that_another_interface_has_as_well_is_announced_until_it_has_it_no_longer() {
        let mut schedule = Schedule::default();
        schedule.take(Announcement { contested: true, ..wish(true) }, moment(0));
        for at in [0, 100, 350, 1000, 1500, 2000, 2500] {
            assert_eq!(schedule.next(), Some(moment(at)));
            let wish = schedule.due(moment(at)).unwrap();
            schedule.done(&wish.key, Outcome::Done, moment(at));
        }
        schedule.take(wish(true), moment(2600));
        assert_eq!(play(schedule, 0), [2600, 2700, 2950, 3600].map(|at| (at, true)));
    }

    #[test]
    fn an_interface_that_never_gets_its_addresses_is_left_alone_after_a_while() {
        let mut schedule = Schedule::default();
        schedule.take(wish(false), moment(0));
        let mut looks = 0;
        while let Some(at) = schedule.next() {
            let wish = schedule.due(at).unwrap();
            schedule.done(&wish.key, Outcome::Incomplete, at);
            looks += 1;
        }
        assert_eq!(looks, RETRIES + 1);
    }

    #[test]
    fn an_interface_is_made_quiet_once_and_the_latest_wish_counts() {
        let mut schedule = Schedule::default();
        schedule.take(wish(true), moment(0));
        schedule.take(wish(false), moment(0));
        assert_eq!(play(schedule, 0), [(0, false)]);
    }

    #[test]
    fn an_interface_that_never_comes_is_given_up() {
        let mut schedule = Schedule::default();
        schedule.take(wish(false), moment(0));
        assert_eq!(play(schedule, u64::MAX), []);
    }
}
