//! What a node does when its journal was lost while containers run, and when pods are gone whose containers run.

use std::time::Duration;

use tenure_cni::Code;

use super::claim_uses::{claim, claim_use, found};
use super::rig::*;
use crate::journal::{Image, Known, Record};
use crate::key::Pod;
use crate::node::{Action, Attach, Consulted, Event, Job, Report, Settings, Use};

const HALF_A_MINUTE: Duration = Duration::from_secs(30);

fn used(container: &str, address: &str, says_whose: bool) -> Use {
    Use {
        addresses: vec![address.parse().unwrap()],
        key: says_whose.then(|| key(container)),
        pod: Pod::default(),
        netns: format!("/run/netns/{container}"),
    }
}

impl Rig {
    /// A node whose journal was lost, with block 0.
    fn lost() -> Self {
        let mut rig = Self::started(Settings::new(NODE));
        rig.event(Event::PoolChanged { name: "default".into(), facts: facts() });
        rig.event(Event::BlockSeen(block("default", 0)));
        rig.read(Image::lost(), Vec::new());
        rig
    }

    fn consult(&mut self) -> Job {
        match self.questions.pop() {
            Some(Action::Consult { job }) => job,
            other => panic!("{other:?} asks nobody"),
        }
    }

    fn answer(&mut self, complete: bool, uses: Vec<Use>) {
        let job = self.consult();
        self.event(Event::Consulted { job, consulted: Consulted { complete, uses } });
    }
}

/// Another plugin made the interfaces of these containers: the kernel's links say nothing of them.
#[test]
fn what_other_plugins_interfaces_use_is_not_handed_out_again_after_a_journal_was_lost() {
    let mut rig = Rig::lost();
    let early = rig.add("early");
    assert!(rig.is_open(early), "nothing is handed out of a block of before");
    rig.answer(true, vec![used("a", "10.0.7.0", true), used("b", "10.0.7.3", false)]);
    assert!(rig.is_open(early), "once is not enough: an ADD may have been under way");
    rig.grant(1);
    assert_eq!(rig.address(early), "10.0.7.8", "new blocks are handed out of meanwhile");
    rig.pass(HALF_A_MINUTE);
    rig.answer(true, vec![used("a", "10.0.7.0", true), used("b", "10.0.7.3", false)]);
    let given: Vec<String> = (0..13).map(|n| rig.give(&format!("n{n}"))).collect();
    assert!(!given.contains(&"10.0.7.0".to_owned()) && !given.contains(&"10.0.7.3".to_owned()), "{given:?}");
    assert!(given.contains(&"10.0.7.1".to_owned()), "the others can be had again: {given:?}");
    // Of one the runtime said whose it is: its DEL ends it.
    let ticket = rig.ticket();
    rig.event(Event::Del { ticket, key: key("a"), interface: false });
    assert!(rig.removed(ticket));
    assert_eq!(rig.node.pools()[0].counts.cooling, 1);
    // Of the other only its namespace was seen: it ends when that is not seen at two times any more.
    rig.pass(Duration::from_secs(121));
    rig.answer(true, Vec::new());
    assert_eq!(rig.node.pools()[0].counts.cooling, 0, "not seen once is not enough");
    rig.pass(Duration::from_secs(121));
    rig.answer(true, Vec::new());
    assert_eq!(rig.node.pools()[0].counts.cooling, 1, "it cools like any other");
    assert_eq!(rig.records.last(), Some(&Record::Known(Known::All)));
    rig.pass(Duration::from_mins(10));
    assert_eq!(rig.questions, [], "there is no doubt any more");
}

#[test]
fn an_answer_that_is_not_complete_adds_and_takes_nothing_away() {
    let mut rig = Rig::lost();
    let add = rig.add("early");
    for _ in 0..4 {
        rig.answer(false, vec![used("a", "10.0.7.0", false)]);
        rig.pass(HALF_A_MINUTE);
    }
    assert_eq!(rig.failure(add).code, Code::TryAgainLater.number(), "its time is over");
    rig.answer(true, Vec::new());
    rig.pass(HALF_A_MINUTE);
    rig.answer(true, Vec::new());
    let given: Vec<String> = (0..7).map(|n| rig.give(&format!("n{n}"))).collect();
    assert!(given.contains(&"10.0.7.1".to_owned()), "{given:?}");
}

#[test]
fn the_doubt_outlives_a_restart_and_a_doubted_block_goes_back_to_nobody() {
    let mut rig = Rig::lost();
    assert!(rig.records.contains(&Record::Known(Known::Asking)));
    rig.answer(true, vec![used("b", "10.0.7.3", false)]);
    let mut again = rig.restarted(Vec::new());
    again.event(Event::BlockSeen(block("default", 0)));
    again.event(Event::BlockSeen(block("default", 1)));
    again.event(Event::ApiRead);
    let add = again.add("a");
    assert!(again.is_open(add), "nothing is handed out before others were asked again");
    again.answer(true, vec![used("b", "10.0.7.3", false)]);
    assert_eq!(again.address(add), "10.0.7.8", "of the block that nobody doubts");
    again.del("a");
    for _ in 0..8 {
        again.pass(Duration::from_secs(121));
        again.answer(true, vec![used("b", "10.0.7.3", false)]);
    }
    assert!(again.returned.iter().all(|(name, _)| name == "default-1"), "{:?}", again.returned);
}

/// Its link has no route, so that nothing but the journal knew that a claim's pod waits at it.
#[test]
fn a_claims_standby_pod_keeps_its_link_after_the_journal_was_lost() {
    let mut rig = Rig::started(Settings::new(NODE));
    rig.prompt = false;
    rig.read(Image::lost(), vec![found("standby", &[])]);
    for _ in 0..4 {
        rig.pass(HALF_A_MINUTE);
        let Some(Action::Look { job, interfaces, .. }) = rig.looks.pop() else { panic!("no look") };
        assert_eq!(interfaces, [key("standby")]);
        let links = vec![found("standby", &[])];
        let look = crate::node::Look { links, ..crate::node::Look::default() };
        rig.event(Event::Looked { job, look });
    }
    assert_eq!(rig.jobs, [], "its link stays");
    assert!(rig.node.holds().is_empty(), "and nothing is said to be held");
    let mut again = rig.restarted(vec![found("standby", &[])]);
    again.event(Event::ApiRead);
    let add = again.add_of(claim_use("standby", claim("vm")));
    assert_eq!(again.address(add), super::claim_uses::ADDRESS, "its next ADD says what it is");
}

/// A route led to its link when the journal was lost, and went to another pod of the claim before the next start.
#[test]
fn a_link_that_was_found_after_a_loss_is_known_to_the_next_start_with_or_without_a_route() {
    let mut rig = Rig::started(Settings::new(NODE));
    rig.read(Image::lost(), vec![found("a", &[super::claim_uses::ADDRESS])]);
    for addresses in [&[][..], &[super::claim_uses::ADDRESS], &[]] {
        let mut again = rig.restarted(vec![found("a", addresses)]);
        again.event(Event::ApiRead);
        for _ in 0..4 {
            again.pass(HALF_A_MINUTE);
            let Some(Action::Look { job, .. }) = again.looks.pop() else { panic!("no look") };
            let links = vec![found("a", addresses)];
            let look = crate::node::Look { links, ..crate::node::Look::default() };
            again.event(Event::Looked { job, look });
        }
        assert!(!again.reports.iter().any(|it| matches!(it, Report::Leak { .. })), "{:?}", again.reports);
        rig.records.append(&mut again.records);
    }
    let mut last = rig.restarted(vec![found("a", &[])]);
    last.event(Event::ApiRead);
    let del = last.del("a");
    assert!(last.removed(del));
    rig.records.append(&mut last.records);
    let mut image = Image::default();
    rig.records.into_iter().for_each(|record| image.apply(record));
    assert_eq!(image.claim_uses().count(), 0, "its DEL ends it for good");
}

#[test]
fn a_pod_that_is_gone_is_reached_no_more_by_an_address_that_may_be_somebody_elses() {
    let mut rig = Rig::with_blocks([0]);
    let pod = Pod { uid: "pod-uid".into(), ..pod("a") };
    let add = rig.add_of(Attach { pod: pod.clone(), ..attach("a", "default") });
    assert_eq!(rig.address(add), "10.0.7.0");
    rig.pass(HALF_A_MINUTE);
    assert_eq!(rig.questions, [], "while the block is this node's, nobody else can have it");
    rig.event(Event::BlockGone { name: "default-0".into(), uid: "default-0-uid".into() });
    let asked = |rig: &mut Rig, missing: bool| {
        rig.pass(HALF_A_MINUTE);
        let Some(Action::AskAboutPods(holders)) = rig.questions.pop() else { panic!("nobody was asked") };
        assert_eq!(holders, [(key("a"), pod.clone())]);
        let missing = missing.then(|| key("a")).into_iter().collect();
        rig.event(Event::PodsAsked { asked: vec![key("a")], missing });
    };
    for missing in [true, false, true] {
        asked(&mut rig, missing);
        assert_eq!(rig.reaches, [], "seen once is not enough");
    }
    asked(&mut rig, true);
    let [Action::Reach { key: silenced, reached: false, .. }] = &rig.reaches[..] else {
        panic!("{:?}", rig.reaches)
    };
    assert_eq!(*silenced, key("a"));
    assert_eq!(rig.node.holds().len(), 1, "its container has it still");
    rig.pass(HALF_A_MINUTE);
    assert_eq!(rig.questions, []);
    let again = rig.add_of(Attach { pod, ..attach("a", "default") });
    assert_eq!(rig.address(again), "10.0.7.0");
    assert!(!rig.node.holds()[0].silenced, "it is there after all");
}

/// Its claim was deleted with it, and the address may be another claim's by now.
#[test]
fn a_claim_user_whose_claim_and_pod_are_gone_is_reached_no_more() {
    let mut rig = Rig::with_blocks([0]);
    rig.add_of(claim_use("a", claim("vm")));
    rig.event(Event::ClaimSeen { uid: "vm-uid".into(), active_pod: Some("a".into()), contested: false });
    rig.event(Event::ClaimGone { uid: "vm-uid".into() });
    for reached in [true, false] {
        rig.pass(HALF_A_MINUTE);
        let Some(Action::AskAboutPods(_)) = rig.questions.pop() else { panic!("nobody was asked") };
        rig.event(Event::PodsAsked { asked: vec![key("a")], missing: [key("a")].into() });
        assert_eq!(rig.node.holds()[0].claim.clone().unwrap().reached, reached);
    }
    rig.pass(Duration::from_secs(2));
    assert!(rig.exported.iter().all(|network| network.prefix() < 32), "{:?}", rig.exported);
}
