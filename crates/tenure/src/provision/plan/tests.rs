//! Plans for what may be there, without a cloud.

use tenure_api::cloud::AliasPool;
use tenure_cloud::gcp::Subnetwork;

use super::*;

fn wanted() -> Wanted {
    Wanted {
        place: ClusterSubnet {
            project: "p".to_owned(),
            region: "r".to_owned(),
            subnet: "s".to_owned(),
            cluster: None,
        },
        pool: "ippool-s".to_owned(),
        range_name: "live".to_owned(),
        reservation: "res".to_owned(),
        cidr: None,
        prefix: 16,
        within: "10.0.0.0/8".to_owned(),
        mode: Mode::Secondary,
        count: Count::AtLeast(1),
    }
}

fn seen() -> Seen {
    let subnet = Subnetwork {
        network: "https://x/projects/p/global/networks/net".to_owned(),
        ip_cidr_range: "10.0.0.0/24".to_owned(),
        ..Subnetwork::default()
    };
    Seen { subnet, ..Seen::default() }
}

fn reserved(cidr: &str) -> InternalRange {
    InternalRange {
        name: "projects/p/locations/global/internalRanges/res".to_owned(),
        ip_cidr_range: cidr.to_owned(),
        network: "projects/p/global/networks/net".to_owned(),
        users: Vec::new(),
    }
}

fn added(name: &str, cidr: &str) -> SecondaryRange {
    SecondaryRange {
        range_name: name.to_owned(),
        ip_cidr_range: cidr.to_owned(),
        reserved_internal_range:
            "//networkconnectivity.googleapis.com/projects/p/locations/global/internalRanges/res".to_owned(),
        ..SecondaryRange::default()
    }
}

fn pool(cidr: &str, subnet: &str) -> AliasPool {
    let spec = AliasPoolSpec { cidr: cidr.to_owned(), subnet: subnet.to_owned(), ..AliasPoolSpec::default() };
    AliasPool::new("ippool-s", spec)
}

const SUBNET: &str = "projects/p/regions/r/subnetworks/s";

fn acts(plan: &Plan) -> Vec<(&'static str, bool)> {
    plan.items.iter().map(|item| (item.row.act, item.row.done)).collect()
}

fn refusal(wanted: &Wanted, seen: &Seen) -> String {
    format!("{:#}", plan(wanted, seen).unwrap_err())
}

#[test]
fn each_step_leads_to_the_next_until_none_is_left() {
    let (wanted, mut seen) = (wanted(), seen());
    let next = |seen: &Seen| plan(&wanted, seen).unwrap().next().map(|(_, step)| step.clone());
    let any = Addresses::Any { prefix: 16, within: "10.0.0.0/8".to_owned() };
    assert_eq!(next(&seen), Some(Step::Reserve { name: "res".to_owned(), addresses: any }));
    seen.reservations.insert("res".to_owned(), reserved("10.1.0.0/16"));
    assert_eq!(next(&seen), Some(Step::AddRange(added("live", "10.1.0.0/16"))));
    seen.subnet.secondary_ip_ranges.push(added("live", "10.1.0.0/16"));
    let Some(Step::CreatePool(spec)) = next(&seen) else { panic!("no pool") };
    assert_eq!(spec, pool("10.1.0.0/16", SUBNET).spec);
    seen.pool = Some(pool("10.1.0.0/16", SUBNET));
    assert_eq!(next(&seen), None);
    assert_eq!(acts(&plan(&wanted, &seen).unwrap()), [("reserve", true), ("add", true), ("create", true)]);
}

/// Defect 10 of the prototype.
#[test]
fn a_reservation_without_addresses_never_becomes_a_range() {
    let mut seen = seen();
    seen.reservations.insert("res".to_owned(), reserved(""));
    let waits = plan(&wanted(), &seen).unwrap();
    assert_eq!(waits.next().unwrap().1, &Step::AwaitAddresses("res".to_owned()));
    assert_eq!(acts(&waits), [("reserve", false), ("add", false), ("create", false)]);
    for bad in ["10.1.0.0", "10.1.0.1/16", "0.0.0.0/0", "fd00::/64"] {
        seen.reservations.insert("res".to_owned(), reserved(bad));
        assert!(refusal(&wanted(), &seen).starts_with("internal range res is"), "{bad}");
    }
}

#[test]
fn one_more_is_counted_once() {
    let mut seen = seen();
    seen.subnet.secondary_ip_ranges.push(added("live", "10.1.0.0/16"));
    seen.pool = Some(pool("10.1.0.0/16", SUBNET));
    let wanted = Wanted { count: Count::OneMore, ..wanted() }.settled(&seen);
    assert_eq!(wanted.count, Count::AtLeast(2));
    let grown = plan(&wanted, &seen).unwrap();
    let Some((_, Step::Reserve { name, .. })) = grown.next() else { panic!("{grown:?}") };
    assert_eq!(name, "res-1");
    seen.subnet
        .secondary_ip_ranges
        .push(SecondaryRange { reserved_internal_range: String::new(), ..added("live-1", "10.2.0.0/16") });
    let more = AliasRange { cidr: "10.2.0.0/16".to_owned(), secondary_range_name: "live-1".to_owned() };
    assert_eq!(plan(&wanted, &seen).unwrap().next().unwrap().1, &Step::AppendToPool(vec![more.clone()]));
    seen.pool.as_mut().unwrap().spec.ranges.push(more);
    assert_eq!(plan(&wanted.settled(&seen), &seen).unwrap().next(), None);
}

#[test]
fn a_range_that_the_subnet_lost_is_made_again_with_the_pools_addresses() {
    let mut seen = seen();
    seen.pool = Some(pool("10.1.0.0/16", SUBNET));
    let lost = plan(&wanted(), &seen).unwrap();
    let these = Addresses::These("10.1.0.0/16".to_owned());
    assert_eq!(lost.next().unwrap().1, &Step::Reserve { name: "res".to_owned(), addresses: these });
    seen.reservations.insert("res".to_owned(), reserved("10.3.0.0/16"));
    assert!(refusal(&wanted(), &seen).starts_with("internal range res is 10.3.0.0/16, not 10.1.0.0/16"));
}

#[test]
fn what_does_not_fit_together_is_refused_with_what_to_do() {
    let mut other = seen();
    other.pool = Some(pool("10.1.0.0/16", "projects/p/regions/elsewhere/subnetworks/s"));
    assert!(refusal(&wanted(), &other).contains("give --pool NAME"));
    let mut changed = seen();
    changed.pool = Some(pool("10.1.0.0/16", SUBNET));
    changed.subnet.secondary_ip_ranges.push(added("live", "10.9.0.0/16"));
    assert!(refusal(&wanted(), &changed).contains("is 10.1.0.0/16, but it is 10.9.0.0/16"));
    let mut used = seen();
    let users = vec!["https://x/projects/p/regions/r/subnetworks/another".to_owned()];
    used.reservations.insert("res".to_owned(), InternalRange { users, ..reserved("10.1.0.0/16") });
    assert!(refusal(&wanted(), &used).contains("already used by https://x/"));
    let mut elsewhere = seen();
    let network = "projects/p/global/networks/other".to_owned();
    elsewhere.reservations.insert("res".to_owned(), InternalRange { network, ..reserved("10.1.0.0/16") });
    assert!(refusal(&wanted(), &elsewhere).contains("is of network other, and the subnet of net"));
    let tiny = Wanted { cidr: Some("10.1.0.0/31".to_owned()), ..wanted() };
    assert!(refusal(&tiny, &seen()).contains("from a /8 to a /30"));
}

#[test]
fn the_range_of_the_cluster_s_own_network_is_refused() {
    let mut seen = seen();
    let made = SecondaryRange { reserved_internal_range: String::new(), ..added("pods", "10.8.0.0/14") };
    seen.subnet.secondary_ip_ranges.push(made.clone());
    let pods = Wanted { range_name: "pods".to_owned(), ..wanted() };
    assert!(pods.uses_a_range_of_others(&seen) && !wanted().uses_a_range_of_others(&seen));
    assert_eq!(plan(&pods, &seen).unwrap().next().unwrap().0.act, "create", "nobody uses it");
    seen.node_networks = vec![("gke-a".to_owned(), "10.8.3.0/24".parse().unwrap())];
    let why = refusal(&pods, &seen);
    assert!(
        why.contains("pods of node gke-a have addresses of 10.8.3.0/24") && why.contains("--range-name"),
        "{why}"
    );
    // Other ranges of the subnet are no business of it.
    assert!(plan(&wanted(), &seen).is_ok());
    let named = SecondaryRange { range_name: "gke-c-services-1a2b".to_owned(), ..made };
    seen.subnet
        .secondary_ip_ranges
        .push(SecondaryRange { ip_cidr_range: "10.20.0.0/20".to_owned(), ..named });
    let services = Wanted { range_name: "gke-c-services-1a2b".to_owned(), ..wanted() };
    assert!(refusal(&services, &seen).contains("Google Kubernetes Engine made"));
}

#[test]
fn reservations_are_released_from_the_last_to_the_first() {
    let mut seen = seen();
    for at in 0..12 {
        seen.reservations.insert(wanted().reservation(at), reserved("10.1.0.0/16"));
    }
    let plan = plan(&Wanted { mode: Mode::Remove, ..wanted() }, &seen).unwrap();
    let names: Vec<String> = plan.rows().into_iter().map(|row| row.object).collect();
    assert_eq!(names.first().unwrap(), "internal range res-11");
    assert_eq!(names[9..], ["internal range res-2", "internal range res-1", "internal range res"]);
}
