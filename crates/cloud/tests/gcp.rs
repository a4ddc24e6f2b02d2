//! The client of Google's cloud, and the actors on it, against the test bed's fake of that cloud.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by failing")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tenure_cloud::gcp::{Addresses, Endpoints, Gcp, Metadata, SecondaryRange, TokenSource, Tokens};
use tenure_cloud::{
    Action, AliasRange, Answer, Attachment, Budget, Cloud, CloudError, ErrorKind, InterfaceId, Managed,
    Options, Owner, Progress, Quota, Region, Ticket, Update,
};
use tenure_handles::{Clock, Entropy, SeededEntropy, SystemClock};
use tenure_ipam::{Cidr, Notation};
use tenure_testbed::compute::{Call, FakeCloud, Fault, Harm, PROJECT, Settings};
use tenure_testbed::wait::eventually;

const ZONE: &str = "europe-west4-a";
const OTHER_ZONE: &str = "europe-west4-b";

fn cidr(text: &str) -> Cidr {
    Notation::Strict.cidr(text).unwrap()
}

fn range(number: usize) -> AliasRange {
    AliasRange {
        cidr: cidr(&format!("10.111.{}.{}/32", number / 256, number % 256)),
        range: "live".to_owned(),
    }
}

fn ranges(numbers: impl IntoIterator<Item = usize>) -> BTreeSet<AliasRange> {
    numbers.into_iter().map(range).collect()
}

fn id(zone: &str, name: &str) -> InterfaceId {
    InterfaceId::first(zone, name)
}

/// A cloud with two machines in two zones, and a client with rights.
struct Bed {
    cloud: FakeCloud,
    gcp: Gcp,
    metadata: Metadata,
    entropy: SeededEntropy,
}

impl Bed {
    async fn new(settings: Settings) -> Self {
        let cloud = FakeCloud::start(settings).await.unwrap();
        cloud.add_subnet("europe-west4", "default", "10.0.0.0/24").unwrap();
        cloud.add_instance(ZONE, "a", "default");
        cloud.add_instance(OTHER_ZONE, "b", "default");
        let metadata = Metadata::at(&cloud.metadata(ZONE, "a").await.unwrap());
        let endpoints = Endpoints { compute: cloud.compute(), connectivity: cloud.connectivity() };
        let tokens = Tokens::new(TokenSource::Metadata(metadata.clone()), Arc::new(SystemClock));
        let gcp = Gcp::new(PROJECT, endpoints, tokens).unwrap();
        let bed = Self { cloud, gcp, metadata, entropy: SeededEntropy::new(7) };
        bed.add_range("live", "10.111.0.0/16").await;
        bed.add_range("pods", "10.8.0.0/16").await;
        bed.cloud.set_aliases(ZONE, "a", &[("10.8.3.0/24", "pods")]).unwrap();
        bed
    }

    async fn add_range(&self, name: &str, cidr: &str) {
        let subnet = self.gcp.subnetwork("europe-west4", "default").await.unwrap();
        let range = SecondaryRange {
            range_name: name.to_owned(),
            ip_cidr_range: cidr.to_owned(),
            ..SecondaryRange::default()
        };
        let ticket = self
            .gcp
            .add_secondary_range("europe-west4", "default", &subnet, range, &self.entropy.uuid())
            .await
            .unwrap();
        let ended = async || match self.gcp.subnetwork_change("europe-west4", &ticket).await? {
            Progress::Running => Ok(None),
            ended => Ok(Some(ended)),
        };
        assert_eq!(eventually("the range", ended).await.unwrap(), Progress::Done);
    }

    /// An update of what is there.
    async fn update(
        &self,
        interface: &InterfaceId,
        added: BTreeSet<AliasRange>,
        removed: BTreeSet<AliasRange>,
    ) -> Update {
        let observed = self.gcp.observe(interface).await.unwrap();
        Update {
            interface: interface.clone(),
            aliases: observed.aliases.difference(&removed).chain(&added).cloned().collect(),
            added,
            removed,
            version: observed.version,
            request: self.entropy.uuid(),
        }
    }

    async fn ended(&self, interface: &InterfaceId, ticket: &Ticket) -> Progress {
        let ended = async || match self.gcp.poll(interface, ticket).await? {
            Progress::Running => Ok(None),
            ended => Ok(Some(ended)),
        };
        eventually("the end of an operation", ended).await.unwrap()
    }
}

fn kind<T: std::fmt::Debug>(result: Result<T, CloudError>) -> ErrorKind {
    result.unwrap_err().kind
}

#[tokio::test]
async fn ranges_are_added_and_the_last_one_is_removed_by_an_empty_list() {
    let bed = Bed::new(Settings::default()).await;
    let b = id(OTHER_ZONE, "b");
    let added = bed.update(&b, ranges([1, 2]), BTreeSet::new()).await;
    let ticket = bed.gcp.apply(&added).await.unwrap();
    assert_eq!(bed.gcp.apply(&added).await.unwrap(), ticket, "the same request is one operation");
    assert_eq!(bed.ended(&b, &ticket).await, Progress::Done);
    assert_eq!(bed.gcp.observe(&b).await.unwrap().aliases, ranges([1, 2]));
    let removed = bed.update(&b, BTreeSet::new(), ranges([1, 2])).await;
    let ticket = bed.gcp.apply(&removed).await.unwrap();
    assert_eq!(bed.ended(&b, &ticket).await, Progress::Done);
    assert!(bed.gcp.observe(&b).await.unwrap().aliases.is_empty());
    assert!(bed.cloud.aliases(OTHER_ZONE, "b").is_empty());
}

#[tokio::test]
async fn an_owner_on_a_later_page_is_found_by_one_request_for_each_page() {
    let bed = Bed::new(Settings { page_size: 1, ..Settings::default() }).await;
    bed.cloud.set_aliases(OTHER_ZONE, "b", &[("10.111.0.1/32", "live")]).unwrap();
    let (mut page, mut pages) = (None::<String>, 0);
    let found = loop {
        pages += 1;
        match bed.gcp.owner("europe-west4", &range(1), page.as_deref()).await.unwrap() {
            Owner::NextPage(next) => page = Some(next),
            found => break found,
        }
    };
    assert_eq!(found, Owner::Interface(id(OTHER_ZONE, "b")));
    assert!(pages > 1, "it is not on the first");
    assert_eq!(bed.cloud.accepted(Call::ListInstances), pages);
    assert_eq!(
        kind(bed.gcp.owner("europe-west4", &range(1), Some("no-token")).await),
        ErrorKind::Invalid(None)
    );
}

#[tokio::test]
async fn each_refusal_of_the_cloud_has_its_kind() {
    let bed = Bed::new(Settings { ranges_per_interface: 3, ..Settings::default() }).await;
    let a = id(ZONE, "a");
    let stale =
        Update { version: "c3RhbGU=".to_owned(), ..bed.update(&a, ranges([1]), BTreeSet::new()).await };
    assert_eq!(kind(bed.gcp.apply(&stale).await), ErrorKind::Conflict);
    let many = bed.update(&a, ranges(1..5), BTreeSet::new()).await;
    assert_eq!(kind(bed.gcp.apply(&many).await), ErrorKind::Capacity);
    let outside = AliasRange { cidr: cidr("10.112.0.1/32"), range: "live".to_owned() };
    let wrong = bed.update(&a, BTreeSet::from([outside.clone()]), BTreeSet::new()).await;
    assert_eq!(kind(bed.gcp.apply(&wrong).await), ErrorKind::Invalid(Some(outside.cidr)));
    assert_eq!(kind(bed.gcp.observe(&id(ZONE, "gone")).await), ErrorKind::NotFound);
    assert_eq!(kind(bed.gcp.poll(&a, &Ticket("operation-none".to_owned())).await), ErrorKind::NotFound);

    bed.cloud.set_aliases(OTHER_ZONE, "b", &[("10.111.0.1/32", "live")]).unwrap();
    let taken = bed.update(&a, ranges([1]), BTreeSet::new()).await;
    let ticket = bed.gcp.apply(&taken).await.unwrap();
    let Progress::Failed(error) = bed.ended(&a, &ticket).await else { panic!("it is on another machine") };
    assert_eq!(error.kind, ErrorKind::InUse(Some(range(1).cidr)));
    assert_eq!(
        bed.gcp.owner("europe-west4", &range(1), None).await.unwrap(),
        Owner::Interface(id(OTHER_ZONE, "b"))
    );
    assert_eq!(bed.gcp.owner("europe-west4", &range(2), None).await.unwrap(), Owner::Nobody);

    for (status, reason, expected) in [
        (403, "rateLimitExceeded", ErrorKind::Throttled(None)),
        (403, "forbidden", ErrorKind::Denied),
        (400, "resourceNotReady", ErrorKind::NotReady),
        (503, "backendError", ErrorKind::Transient),
    ] {
        bed.cloud.harm(Fault::refused(Call::GetInstance, status, reason, "said the cloud"));
        assert_eq!(kind(bed.gcp.observe(&a).await), expected, "{status} {reason}");
    }
    bed.cloud.harm(Fault::once(Call::GetInstance, Harm::LostAnswer));
    assert_eq!(kind(bed.gcp.observe(&a).await), ErrorKind::Transient);
}

#[tokio::test]
async fn an_operation_of_the_leader_before_is_found() {
    let bed = Bed::new(Settings::default()).await;
    let a = id(ZONE, "a");
    assert_eq!(bed.gcp.unfinished(&a).await.unwrap(), None);
    bed.cloud.harm(Fault::once(Call::UpdateInterface, Harm::Endless));
    let update = bed.update(&a, ranges([1]), BTreeSet::new()).await;
    let ticket = bed.gcp.apply(&update).await.unwrap();
    assert_eq!(bed.gcp.unfinished(&a).await.unwrap(), Some(ticket));
    assert_eq!(bed.gcp.unfinished(&id(ZONE, "other")).await.unwrap(), None);
    let next = bed.update(&a, ranges([2]), BTreeSet::new()).await;
    assert_eq!(kind(bed.gcp.apply(&next).await), ErrorKind::NotReady);
}

#[tokio::test]
async fn the_metadata_server_says_who_the_machine_is_and_what_has_arrived() {
    let bed = Bed::new(Settings::default()).await;
    assert_eq!(bed.metadata.project().await.unwrap(), PROJECT);
    assert_eq!(bed.metadata.instance().await.unwrap(), "a");
    assert_eq!(bed.metadata.zone().await.unwrap(), ZONE);
    assert_eq!(bed.metadata.cluster().await.unwrap().as_deref(), Some("test-cluster"));
    let known = bed.metadata.aliases(0, None, Duration::ZERO).await.unwrap();
    assert_eq!(known.ranges, BTreeSet::from([cidr("10.8.3.0/24")]));
    let unchanged = bed.metadata.aliases(0, Some(&known), Duration::from_secs(1)).await.unwrap();
    assert_eq!(unchanged, known);
    let a = id(ZONE, "a");
    let update = bed.update(&a, ranges([1]), BTreeSet::new()).await;
    let waits = bed.metadata.aliases(0, Some(&known), Duration::from_mins(1));
    let (changed, _) = tokio::join!(waits, bed.gcp.apply(&update));
    assert!(changed.unwrap().ranges.contains(&range(1).cidr), "the question is answered by the change");
}

#[tokio::test]
async fn a_range_is_reserved_and_added_to_the_subnet() {
    let bed = Bed::new(Settings::default()).await;
    assert_eq!(bed.gcp.internal_range("tenure").await.unwrap(), None);
    let subnet = bed.gcp.subnetwork("europe-west4", "default").await.unwrap();
    let any = Addresses::Any { prefix: 16, within: "10.0.0.0/8".to_owned() };
    let ticket = bed.gcp.reserve_internal_range("tenure", &subnet.network, &any).await.unwrap();
    let reserved = async || Ok((bed.gcp.reservation(&ticket).await? == Progress::Done).then_some(()));
    eventually("the reservation", reserved).await.unwrap();
    let reserved = bed.gcp.internal_range("tenure").await.unwrap().unwrap();
    assert_eq!(reserved.ip_cidr_range, "10.1.0.0/16");
    let range = SecondaryRange {
        range_name: "more".to_owned(),
        reserved_internal_range: format!("//networkconnectivity.googleapis.com/{}", reserved.name),
        ..SecondaryRange::default()
    };
    let request = bed.entropy.uuid();
    let ticket =
        bed.gcp.add_secondary_range("europe-west4", "default", &subnet, range, &request).await.unwrap();
    let done = async || {
        Ok((bed.gcp.subnetwork_change("europe-west4", &ticket).await? == Progress::Done).then_some(()))
    };
    eventually("the range", done).await.unwrap();
    let after = bed.gcp.subnetwork("europe-west4", "default").await.unwrap();
    let names: Vec<_> = after
        .secondary_ip_ranges
        .iter()
        .map(|range| (range.range_name.as_str(), range.ip_cidr_range.as_str()))
        .collect();
    assert_eq!(names, [("live", "10.111.0.0/16"), ("pods", "10.8.0.0/16"), ("more", "10.1.0.0/16")]);
}

#[tokio::test]
async fn a_client_without_a_valid_token_is_refused_and_its_token_is_in_no_message() {
    let bed = Bed::new(Settings::default()).await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    std::fs::write(&path, "ya29.somebody-elses").unwrap();
    let endpoints = Endpoints { compute: bed.cloud.compute(), connectivity: bed.cloud.connectivity() };
    let tokens = Tokens::new(TokenSource::File(path), Arc::new(SystemClock));
    let gcp = Gcp::new(PROJECT, endpoints, tokens).unwrap();
    let error = gcp.observe(&id(ZONE, "a")).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Denied);
    assert!(!format!("{error:?} {error} {gcp:?}").contains("ya29"), "{error:?}");
}

/// Drives a region on a cloud until the condition holds.
async fn drive(bed: &Bed, region: &mut Region, done: impl Fn(&Region) -> bool) {
    let mut running = FuturesUnordered::new();
    let start = SystemClock.elapsed();
    while !done(region) {
        assert!(
            SystemClock.elapsed().saturating_sub(start) < tenure_testbed::wait::PATIENCE,
            "it does not come to an end"
        );
        let now = SystemClock.now();
        for (interface, action) in region.next(now, &bed.entropy) {
            running.push(async move {
                let answer = match &action {
                    Action::Unfinished => Answer::Unfinished(bed.gcp.unfinished(&interface).await),
                    Action::Observe => Answer::Observed(bed.gcp.observe(&interface).await),
                    Action::Apply(update) => Answer::Applied(bed.gcp.apply(update).await),
                    Action::Poll(ticket) => Answer::Polled(bed.gcp.poll(&interface, ticket).await),
                    Action::Owner(range, page) => {
                        Answer::Owner(bed.gcp.owner(interface.region(), range, page.as_deref()).await)
                    }
                };
                (interface, answer)
            });
        }
        let look = region.next_look().map_or(Duration::from_millis(50), |look| look.since(SystemClock.now()));
        tokio::select! {
            Some((interface, answer)) = running.next() => region.answer(&interface, answer, SystemClock.now()),
            () = tokio::time::sleep(look.min(Duration::from_millis(50))) => {}
        }
    }
}

fn region() -> Region {
    let quota = Quota { per_minute: 1_500, burst: 100 };
    let options =
        Options { poll: Duration::from_millis(50), rest: Duration::from_millis(20), ..Options::default() };
    Region::new(vec![Managed::addresses(cidr("10.111.0.0/16"), "live")], Budget::new(quota, quota), options)
}

#[tokio::test]
async fn a_hundred_pods_cost_two_updates_at_most_and_so_does_their_move_to_another_zone() {
    let update = Duration::from_millis(300)..Duration::from_millis(400);
    let bed = Bed::new(Settings { update, ..Settings::default() }).await;
    let (a, b) = (id(ZONE, "a"), id(OTHER_ZONE, "b"));
    let attached = |region: &Region, at: &InterfaceId| {
        (0..100).all(|number| region.attachment(at, &range(number)) == Attachment::Attached)
    };
    let mut region = region();
    for count in 1..=100 {
        region.want(&a, &ranges(0..count), SystemClock.now());
    }
    drive(&bed, &mut region, |region| attached(region, &a)).await;
    assert!(bed.cloud.accepted(Call::UpdateInterface) <= 2, "{}", bed.cloud.accepted(Call::UpdateInterface));
    assert!(bed.cloud.aliases(ZONE, "a").contains("10.8.3.0/24"), "the cloud's own range stays");

    let before = bed.cloud.accepted(Call::UpdateInterface);
    region.want(&a, &BTreeSet::new(), SystemClock.now());
    region.want(&b, &ranges(0..100), SystemClock.now());
    drive(&bed, &mut region, |region| attached(region, &b)).await;
    assert_eq!(bed.cloud.accepted(Call::UpdateInterface) - before, 2);
    assert_eq!(bed.cloud.aliases(ZONE, "a").len(), 1);
}

#[tokio::test]
async fn the_actors_come_through_every_kind_of_trouble() {
    let bed = Bed::new(Settings::default()).await;
    let a = id(ZONE, "a");
    for fault in [
        Fault::once(Call::UpdateInterface, Harm::LostAnswer),
        Fault::once(Call::UpdateInterface, Harm::LostRequest),
        Fault::refused(Call::UpdateInterface, 412, "conditionNotMet", "Invalid fingerprint."),
        Fault::refused(Call::UpdateInterface, 400, "resourceNotReady", "The resource is not ready"),
        Fault::once(
            Call::UpdateInterface,
            Harm::FailedOperation { code: "INTERNAL_ERROR".to_owned(), message: String::new() },
        ),
        Fault::refused(Call::GetOperation, 503, "backendError", "try again"),
        Fault::refused(Call::GetInstance, 500, "backendError", "try again"),
        Fault::once(Call::ListOperations, Harm::LostRequest),
    ] {
        bed.cloud.harm(fault);
    }
    let mut region = region();
    region.want(&a, &ranges(0..5), SystemClock.now());
    drive(&bed, &mut region, |region| {
        (0..5).all(|number| region.attachment(&a, &range(number)) == Attachment::Attached)
    })
    .await;
    assert_eq!(bed.cloud.aliases(ZONE, "a").len(), 6);
}
