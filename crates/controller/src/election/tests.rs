//! Candidates and a lease in a variable, with late and lost answers.

use proptest::prelude::*;

use super::*;

const TIMING: Timing = Timing {
    duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry: Duration::from_secs(2),
};

/// The API server: one lease, replaced by compare-and-swap.
#[derive(Default)]
struct Server {
    lease: Option<Lease>,
    version: u64,
}

impl Server {
    fn write(&mut self, mut lease: Lease) -> Option<Lease> {
        let current = self.lease.as_ref().and_then(ResourceExt::resource_version);
        if lease.resource_version() != current {
            return None;
        }
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        self.lease = Some(lease.clone());
        Some(lease)
    }
}

fn ms(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// Lets a candidate do its next step with an API that answers at once.
fn serve(elector: &mut Elector, server: &mut Server, now: Timestamp) {
    for _ in 0..4 {
        match elector.step(now) {
            Step::Read => elector.saw(server.lease.clone(), now),
            Step::Write(lease) => {
                let stored = server.write(*lease);
                elector.wrote(stored, now, now);
            }
            Step::Wait(until) => {
                assert!(until > now, "waiting for the past would never end");
                return;
            }
        }
    }
    panic!("a candidate does not come to rest");
}

fn leads(elector: &mut Elector, now: Timestamp) -> bool {
    matches!(elector.role(now), Role::Leader(_))
}

#[test]
fn the_first_candidate_leads_and_renews_and_the_second_stands_by() {
    let mut server = Server::default();
    let (mut a, mut b) = (Elector::new("a", TIMING), Elector::new("b", TIMING));
    for second in 1..120 {
        serve(&mut a, &mut server, ms(second * 1000));
        serve(&mut b, &mut server, ms(second * 1000));
        assert!(leads(&mut a, ms(second * 1000)) && !leads(&mut b, ms(second * 1000)), "at {second} s");
    }
    assert_eq!(b.holder(), Some("a"));
    let spec = server.lease.unwrap().spec.unwrap();
    assert_eq!((spec.lease_transitions, spec.lease_duration_seconds), (Some(0), Some(15)));
    assert_ne!(spec.acquire_time, spec.renew_time, "it was renewed and not acquired again");
}

#[test]
fn a_leader_that_cannot_renew_steps_down_before_its_lease_runs_out() {
    let mut server = Server::default();
    let mut a = Elector::new("a", TIMING);
    serve(&mut a, &mut server, ms(1_000));
    for now in (1_000..11_000).step_by(100) {
        if !matches!(a.step(ms(now)), Step::Wait(_)) {
            a.failed(ms(now));
        }
        assert!(leads(&mut a, ms(now)), "at {now} ms it is still within its deadline");
    }
    assert!(!leads(&mut a, ms(11_000)), "10 s after the last renewal was sent, while the lease lasts 15 s");
}

#[test]
fn a_term_counts_from_when_its_write_was_sent_and_not_from_its_answer() {
    let mut server = Server::default();
    let mut a = Elector::new("a", TIMING);
    a.saw(None, ms(1_000));
    let Step::Write(lease) = a.step(ms(1_000)) else { panic!("the lease is free") };
    let stored = server.write(*lease);
    a.wrote(stored.clone(), ms(1_000), ms(9_000));
    assert_eq!(a.role(ms(9_000)), Role::Leader(Term { number: 0, until: ms(11_000) }));
    let mut late = Elector::new("a", TIMING);
    late.wrote(stored, ms(1_000), ms(12_000));
    assert_eq!(late.role(ms(12_000)), Role::Standby, "an answer that late makes no leader");
}

#[test]
fn a_dead_leaders_lease_is_taken_over_after_it_ran_out_and_not_before() {
    let mut server = Server::default();
    let (mut a, mut b) = (Elector::new("a", TIMING), Elector::new("b", TIMING));
    serve(&mut a, &mut server, ms(1_000));
    let mut taken = None;
    for now in (1_500..40_000).step_by(500) {
        serve(&mut b, &mut server, ms(now));
        if taken.is_none() && leads(&mut b, ms(now)) {
            taken = Some(now);
        }
    }
    let taken = taken.expect("somebody leads again");
    assert!((16_500..=19_000).contains(&taken), "taken over at {taken} ms");
    assert_eq!(server.lease.unwrap().spec.unwrap().lease_transitions, Some(1));
}

#[test]
fn a_released_lease_is_free_at_once() {
    let mut server = Server::default();
    let (mut a, mut b) = (Elector::new("a", TIMING), Elector::new("b", TIMING));
    serve(&mut a, &mut server, ms(1_000));
    serve(&mut b, &mut server, ms(1_500));
    let lease = a.release(ms(2_000)).expect("it led");
    assert!(!leads(&mut a, ms(2_000)), "it stops leading before it says so");
    assert!(server.write(lease).is_some());
    serve(&mut b, &mut server, ms(3_600));
    assert!(leads(&mut b, ms(3_600)));
    assert!(matches!(a.step(ms(60_000)), Step::Wait(_)), "and does not come back");
    assert!(b.release(ms(4_000)).is_some() && b.release(ms(4_000)).is_none(), "one is released once");
}

#[test]
fn a_renewal_whose_answer_was_lost_does_not_end_the_term() {
    let mut server = Server::default();
    let mut a = Elector::new("a", TIMING);
    serve(&mut a, &mut server, ms(1_000));
    let Step::Write(lease) = a.step(ms(3_000)) else { panic!("time to renew") };
    server.write(*lease).expect("it was stored");
    a.wrote(None, ms(3_000), ms(3_500));
    serve(&mut a, &mut server, ms(5_600));
    assert_eq!(a.role(ms(5_600)), Role::Leader(Term { number: 0, until: ms(15_600) }));
}

#[test]
fn a_clock_that_is_set_back_ends_the_term() {
    let mut server = Server::default();
    let mut a = Elector::new("a", TIMING);
    serve(&mut a, &mut server, ms(100_000));
    assert!(!leads(&mut a, ms(50_000)), "nobody knows how long the term would last");
    serve(&mut a, &mut server, ms(50_000));
    assert!(leads(&mut a, ms(50_000)), "but the lease is still ours to renew");
}

#[test]
fn timing_that_lets_two_lead_is_refused() {
    let good = TIMING;
    assert_eq!(good.check(), Ok(good));
    for bad in [
        Timing { renew_deadline: good.duration, ..good },
        Timing { retry: Duration::from_secs(6), ..good },
        Timing { retry: Duration::ZERO, ..good },
        Timing { duration: Duration::from_millis(15_500), ..good },
    ] {
        let error = bad.check().expect_err("not safe").to_string();
        assert!(error.contains("accepted is a deadline shorter than the lease"), "{error}");
    }
}

/// What happens to a candidate at one moment.
#[derive(Clone, Debug)]
enum Fate {
    /// The API answers after this many milliseconds.
    Answered(u64),
    /// The request arrives; its answer does not.
    AnswerLost(u64),
    /// The request never arrives.
    RequestLost,
    /// The candidate does nothing: its machine is busy.
    Asleep,
    /// The process ends; another one starts with another name.
    Reborn,
    /// It is told to stop; another starts with another name.
    Stopped,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        8 => (0_u64..3_000).prop_map(Fate::Answered),
        2 => (0_u64..3_000).prop_map(Fate::AnswerLost),
        2 => Just(Fate::RequestLost),
        4 => Just(Fate::Asleep),
        1 => Just(Fate::Reborn),
        1 => Just(Fate::Stopped),
    ]
}

/// A running candidate, with what it waits for.
struct Candidate {
    elector: Elector,
    /// An answer in flight: when it arrives, and its content.
    coming: Option<(Timestamp, Coming)>,
    name: String,
}

enum Coming {
    Saw(Option<Lease>),
    Wrote(Option<Lease>, Timestamp),
    Failed,
}

impl Candidate {
    fn new(name: String) -> Self {
        Self { elector: Elector::new(&name, TIMING), coming: None, name }
    }

    fn advance(&mut self, server: &mut Server, fate: &Fate, now: Timestamp, births: &mut u32) {
        if let Some((_, coming)) = self.coming.take_if(|(at, _)| *at <= now) {
            match coming {
                Coming::Saw(lease) => self.elector.saw(lease, now),
                Coming::Wrote(lease, sent) => self.elector.wrote(lease, sent, now),
                Coming::Failed => self.elector.failed(now),
            }
        }
        match fate {
            Fate::Asleep => return,
            Fate::Reborn | Fate::Stopped => {
                if matches!(fate, Fate::Stopped)
                    && let Some(lease) = self.elector.release(now)
                {
                    server.write(lease);
                }
                *births += 1;
                *self = Self::new(format!("{}+{births}", self.name));
                return;
            }
            _ if self.coming.is_some() => return,
            _ => {}
        }
        let step = self.elector.step(now);
        if matches!(step, Step::Wait(_)) {
            return;
        }
        let (delay, lost) = match fate {
            Fate::Answered(delay) => (*delay, false),
            Fate::AnswerLost(delay) => (*delay, true),
            _ => return self.coming = Some((now.plus(Duration::from_secs(1)), Coming::Failed)),
        };
        let coming = match step {
            Step::Read => Coming::Saw(server.lease.clone()),
            Step::Write(lease) => Coming::Wrote(server.write(*lease), now),
            Step::Wait(_) => return,
        };
        let at = now.plus(Duration::from_millis(delay));
        self.coming = Some(if lost {
            (at, if let Coming::Wrote(_, sent) = coming { Coming::Wrote(None, sent) } else { Coming::Failed })
        } else {
            (at, coming)
        });
    }
}

proptest! {
    #[test]
    fn two_never_lead_at_once(
        fates in proptest::collection::vec((fate(), fate(), fate(), 50_u64..1_500), 50..400)
    ) {
        let mut server = Server::default();
        let mut candidates: Vec<_> = ["a", "b", "c"].map(|name| Candidate::new(name.to_owned())).into();
        let (mut now, mut births) = (ms(1_000_000), 0);
        for (a, b, c, pause) in fates {
            for (candidate, fate) in candidates.iter_mut().zip([&a, &b, &c]) {
                candidate.advance(&mut server, fate, now, &mut births);
            }
            now = now.plus(Duration::from_millis(pause));
            let leaders: Vec<_> = candidates
                .iter_mut()
                .filter_map(|candidate| matches!(candidate.elector.role(now), Role::Leader(_)).then_some(&candidate.name))
                .collect();
            prop_assert!(leaders.len() <= 1, "{leaders:?} lead at {now:?}");
        }
        // Without disturbance, somebody leads within a lease and two attempts.
        let end = now.plus(Duration::from_secs(15 + 2 * 2 + 4));
        while now < end {
            for candidate in &mut candidates {
                candidate.advance(&mut server, &Fate::Answered(10), now, &mut births);
            }
            now = now.plus(Duration::from_millis(100));
        }
        let leaders = candidates.iter_mut().map(|c| leads(&mut c.elector, now)).filter(|leads| *leads).count();
        prop_assert_eq!(leaders, 1, "nobody leads");
    }
}
