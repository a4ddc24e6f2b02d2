//! What goes wrong with Whereabouts (`docs/whereabouts-differences.md`) and shows only on the whole: the plugin, the agent and
//! the real API server. Each network is a test's own. Needs root, etcd and kube-apiserver.

use std::net::IpAddr;

use http::StatusCode;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tenure_testbed::faults::{Calls, Rule, Verb};
use tenure_testbed::wait::{RUNTIME_TIMEOUT, until};
use tenure_tests::whereabouts::node::{Interface, Node};
use tenure_tests::whereabouts::{Bed, network};

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// A node of its own, and pods on it.
fn node<'b>(bed: &'b Bed, name: &str, pods: &[&str]) -> Node<'b> {
    let node = Node::running(bed, name);
    let on = |pod: &&str| ((*pod).to_owned(), name.to_owned());
    bed.make_pods(&pods.iter().map(on).collect::<Vec<_>>());
    node
}

#[test]
fn check_says_whether_the_addresses_are_on_record_for_this_interface() {
    let bed = Bed::shared();
    let node = node(&bed, "check", &["check-1"]);
    let config = network("check", json!({"range": "10.40.0.0/24", "network_name": "check"}));
    let interface = Interface::of("check-1");
    let added = node.call("ADD", &interface, &config);
    let mut checked = config.clone();
    checked["prevResult"] = added.json.clone();
    node.call("CHECK", &interface, &checked).succeeded();
    let elsewhere = interface.named("net2");
    assert!(!node.call("CHECK", &elsewhere, &checked).refused().1.is_empty());
    // Somebody takes the record away.
    let patch = Patch::Merge(json!({"spec": {"allocations": {"1": null}}}));
    bed.wait(bed.ledgers().patch("check-10.40.0.0-24", &PatchParams::default(), &patch)).unwrap();
    let (_, words) = node.call("CHECK", &interface, &checked).refused();
    assert!(words.contains("default/check-1"), "{words}");
    node.del(&interface, &config);
}

#[test]
fn gc_releases_who_is_not_alive_on_this_network_and_nobody_else() {
    let bed = Bed::shared();
    let (one, other) = (node(&bed, "gc-1", &["gc-a", "gc-b"]), node(&bed, "gc-2", &["gc-c"]));
    let config = network("gc", json!({"range": "10.41.0.0/24", "network_name": "gc"}));
    // Another network of the same range: a GC of one is not about it.
    let twin = network("gc-twin", json!({"range": "10.41.0.0/24", "network_name": "gc"}));
    let [a, b, c] = ["gc-a", "gc-b", "gc-c"].map(Interface::of);
    assert_eq!(one.add(&a, &config), ips(&["10.41.0.1"]));
    assert_eq!(one.add(&b, &config), ips(&["10.41.0.2"]));
    assert_eq!(other.add(&c, &config), ips(&["10.41.0.3"]));
    // The other node was quicker with the lowest, so this one may begin elsewhere.
    let twins = one.add(&a.named("net2"), &twin)[0].to_string();
    let twins = twins.rsplit('.').next().unwrap();
    one.collect(std::slice::from_ref(&b), &config).succeeded();
    let left: Vec<String> = bed.records("gc-10.41.0.0-24").into_keys().collect();
    let mut expected = ["2", "3", twins];
    expected.sort_unstable();
    assert_eq!(left, expected);
    one.collect(&[], &config).succeeded();
    one.collect(&[], &twin).succeeded();
    other.collect(&[], &config).succeeded();
    assert!(bed.records("gc-10.41.0.0-24").is_empty());
}

#[test]
fn status_says_so_when_a_shared_range_cannot_be_changed() {
    let bed = Bed::shared();
    let node = node(&bed, "status", &["status-1"]);
    let config = network("status", json!({"range": "10.42.0.0/24", "network_name": "status"}));
    let nobody = Interface { pod: String::new(), container: String::new(), ifname: String::new() };
    node.call_with("STATUS", &nobody, "", &config).succeeded();
    let away = node.faults.add(Rule::lose_request().on(Calls::all().to("ippools")));
    let interface = Interface::of("status-1");
    let refused = node.call("ADD", &interface, &config);
    assert!(refused.is_later() && refused.took < RUNTIME_TIMEOUT, "{refused:?}");
    let (code, words) = node.call_with("STATUS", &nobody, "", &config).refused();
    assert_eq!(code, 50, "{words}");
    node.faults.remove(away);
    assert_eq!(node.add(&interface, &config), ips(&["10.42.0.1"]));
    node.call_with("STATUS", &nobody, "", &config).succeeded();
    node.del(&interface, &config);
}

#[test]
fn a_node_without_a_slice_gets_words_and_not_a_crash() {
    let bed = Bed::shared();
    let ipam = json!({"range": "10.43.0.0/24", "node_slice_size": "/26", "network_name": "nobodys"});
    let config = network("nobodys", ipam);
    let node = node(&bed, "sliceless", &["sliceless-1"]);
    let interface = Interface::of("sliceless-1");
    let refused = node.call("ADD", &interface, &config);
    assert!(refused.is_later() && refused.took < RUNTIME_TIMEOUT, "{refused:?}");
    assert!(refused.refused().1.contains("nobodys"), "{refused:?}");
    node.call("DEL", &interface, &config).succeeded();
}

#[test]
fn with_slices_exclusions_and_windows_are_heeded_and_the_mask_is_the_whole_ranges() {
    let bed = Bed::shared();
    let node = node(&bed, "heed", &["heed-1", "heed-2"]);
    let ipam = |slice: u8| {
        json!({
            "range": "10.44.0.0/16", "node_slice_size": "/24", "network_name": "heed",
            "exclude": [format!("10.44.{slice}.0/28"), "10.44.99.0/24"],
            "range_start": format!("10.44.{slice}.10"),
        })
    };
    // All slices are alike to the controller until one is given.
    let plain =
        network("heed", json!({"range": "10.44.0.0/16", "node_slice_size": "/24", "network_name": "heed"}));
    bed.attach("heed", &plain);
    let slices = bed.sliced("heed", &["heed".to_owned()]);
    let slice: u8 = slices["heed"].split('.').nth(2).unwrap().parse().unwrap();
    let config = network("heed", ipam(slice));
    let first = node.call("ADD", &Interface::of("heed-1"), &config);
    assert_eq!(first.networks(), [format!("10.44.{slice}.16/16")]);
    node.del(&Interface::of("heed-1"), &config);
}

#[test]
fn a_gateway_is_told_to_addresses_of_its_family_only_and_kept_back_when_asked() {
    let bed = Bed::shared();
    let node = node(&bed, "gateway", &["gateway-1", "gateway-2"]);
    let ipam = json!({
        "range": "10.45.0.0/24", "gateway": "10.45.0.1", "exclude_gateway": true,
        "ipRanges": [{"range": "fd45::/120"}], "network_name": "gateway",
    });
    let config = network("gateway", ipam);
    let interface = Interface::of("gateway-1");
    let added = node.call("ADD", &interface, &config);
    assert_eq!(added.networks(), ["10.45.0.2/24", "fd45::1/120"]);
    assert_eq!(added.json["ips"][0]["gateway"], "10.45.0.1");
    assert!(added.json["ips"][1]["gateway"].is_null(), "{added:?}");
    node.del(&interface, &config);
}

#[test]
fn two_pods_in_the_upper_half_of_a_64_get_two_addresses() {
    let bed = Bed::shared();
    let node = node(&bed, "upper", &["upper-1", "upper-2"]);
    let ipam = json!({
        "range": "2001:db8::/64", "range_start": "2001:db8::8000:0:0:0", "enable_overlapping_ranges": false,
        "network_name": "upper",
    });
    let config = network("upper", ipam);
    let [one, two] = ["upper-1", "upper-2"].map(Interface::of);
    assert_eq!(node.add(&one, &config), ips(&["2001:db8:0:0:8000::"]));
    assert_eq!(node.add(&two, &config), ips(&["2001:db8:0:0:8000::1"]));
    assert_eq!(node.add(&one, &config), ips(&["2001:db8:0:0:8000::"]));
    node.del(&one, &config);
    node.del(&two, &config);
    let left = bed.all_ledgers().into_iter().filter(|pool| pool.spec.range == "2001:db8::/64");
    assert_eq!(left.map(|pool| pool.spec.allocations.len()).sum::<usize>(), 0);
}

#[test]
fn an_add_whose_record_cannot_be_written_fails_and_leaves_neither_record_nor_reservation() {
    let bed = Bed::shared();
    let node = node(&bed, "unwritten", &["unwritten-1", "unwritten-2"]);
    // Two ranges that overlap, so that there are reservations.
    let wide = network("unwritten", json!({"range": "10.46.0.0/24", "network_name": "unwritten"}));
    let narrow = network("unwritten-2", json!({"range": "10.46.0.0/28", "network_name": "unwritten"}));
    let [one, two] = ["unwritten-1", "unwritten-2"].map(Interface::of);
    assert_eq!(node.add(&one, &wide), ips(&["10.46.0.1"]));
    assert_eq!(node.add(&two, &narrow), ips(&["10.46.0.2"]));
    let broken = Rule::fail(StatusCode::INTERNAL_SERVER_ERROR).on(Calls::of(Verb::Patch).to("ippools"));
    let broken = node.faults.add(broken);
    let late = Interface::in_container("unwritten-1", "another").named("net7");
    let refused = node.call("ADD", &late, &wide);
    assert!(refused.is_later() && refused.took < RUNTIME_TIMEOUT, "{refused:?}");
    assert!(node.faults.struck(broken) > 0);
    node.faults.remove(broken);
    node.del(&late, &wide);
    node.del(&one, &wide);
    node.del(&two, &narrow);
    for pool in ["unwritten-10.46.0.0-24", "unwritten-10.46.0.0-28"] {
        assert!(bed.records(pool).is_empty(), "{pool}");
    }
    until("no reservation", || bed.reservations_of("unwritten-").is_empty().then_some(()));
}

#[test]
fn a_del_of_two_families_goes_on_behind_a_record_that_is_gone() {
    let bed = Bed::shared();
    let node = node(&bed, "half", &["half-1"]);
    let ipam = json!({
        "ipRanges": [{"range": "10.47.0.0/24"}, {"range": "fd47::/120"}], "network_name": "half",
    });
    let config = network("half", ipam);
    let interface = Interface::of("half-1");
    assert_eq!(node.add(&interface, &config), ips(&["10.47.0.1", "fd47::1"]));
    let patch = Patch::Merge(json!({"spec": {"allocations": {"1": null}}}));
    bed.wait(bed.ledgers().patch("half-10.47.0.0-24", &PatchParams::default(), &patch)).unwrap();
    node.del(&interface, &config);
    assert!(bed.records("half-fd47---120").is_empty());
}

#[test]
fn an_add_whose_second_range_is_full_leaves_nothing_of_the_first() {
    let bed = Bed::shared();
    let node = node(&bed, "full", &["full-1", "full-2", "full-3"]);
    let ipam = json!({
        "ipRanges": [{"range": "10.48.0.0/24"}, {"range": "fd48::/126"}], "network_name": "full",
    });
    let config = network("full", ipam);
    let [one, two, three] = ["full-1", "full-2", "full-3"].map(Interface::of);
    assert_eq!(node.add(&one, &config), ips(&["10.48.0.1", "fd48::1"]));
    assert_eq!(node.add(&two, &config), ips(&["10.48.0.2", "fd48::2"]));
    let (code, words) = node.call("ADD", &three, &config).refused();
    assert!(
        code == tenure_tests::whereabouts::node::LATER && words.contains("full-fd48---126"),
        "{code}: {words}"
    );
    let left: Vec<String> = bed.records("full-10.48.0.0-24").into_keys().collect();
    assert_eq!(left, ["1", "2"]);
    for interface in [one, two, three] {
        node.del(&interface, &config);
    }
    assert!(bed.records("full-10.48.0.0-24").is_empty() && bed.records("full-fd48---126").is_empty());
}

#[test]
fn a_del_that_cannot_reach_the_api_server_neither_hangs_nor_lies() {
    let bed = Bed::shared();
    let node = node(&bed, "cutoff", &["cutoff-1"]);
    let config = network("cutoff", json!({"range": "10.49.0.0/24", "network_name": "cutoff"}));
    let interface = Interface::of("cutoff-1");
    node.add(&interface, &config);
    let away = node.faults.add(Rule::lose_request());
    let called = node.call("DEL", &interface, &config);
    called.succeeded();
    assert!(called.took < RUNTIME_TIMEOUT, "{called:?}");
    assert_eq!(bed.records("cutoff-10.49.0.0-24").len(), 1);
    assert_eq!(node.tombstones(), 1, "it is not forgotten");
    // Nor by a crash.
    node.crash();
    node.faults.remove(away);
    node.start();
    node.serving();
    until("the DEL to be done", || bed.records("cutoff-10.49.0.0-24").is_empty().then_some(()));
    until("the tombstone to go", || (node.tombstones() == 0).then_some(()));
}

#[test]
fn a_del_while_no_agent_runs_is_done_by_the_next_one_for_shared_ranges_and_for_slices() {
    let bed = Bed::shared();
    let node = node(&bed, "away", &["away-1"]);
    let shared = network("away-shared", json!({"range": "10.50.0.0/24", "network_name": "away"}));
    let ipam = json!({"range": "10.51.0.0/20", "node_slice_size": "/26", "network_name": "away-cut"});
    let cut = network("away-cut", ipam);
    bed.attach("away-cut", &cut);
    let slices = bed.sliced("away-cut", &["away".to_owned()]);
    let interface = Interface::of("away-1");
    node.add(&interface, &shared);
    let address = node.add(&interface.named("net2"), &cut)[0];
    let slice: ipnet::IpNet = slices["away"].parse().unwrap();
    assert!(slice.contains(&address));
    let record = format!("away-cut-away-{}", slices["away"].replace('/', "-"));
    until("the slice's record", || (bed.records(&record).len() == 1).then_some(()));
    node.stop();
    node.del(&interface, &shared);
    node.del(&interface.named("net2"), &cut);
    node.start();
    node.serving();
    until("records to go", || {
        (bed.records("away-10.50.0.0-24").is_empty() && bed.records(&record).is_empty()).then_some(())
    });
}

#[test]
fn a_network_without_a_range_and_without_an_address_is_refused() {
    let bed = Bed::shared();
    let node = node(&bed, "rangeless", &["rangeless-1"]);
    let (code, words) = node
        .call("ADD", &Interface::of("rangeless-1"), &network("rangeless", json!({"range": ""})))
        .refused();
    assert!(code == 7 && words.contains("range"), "{code}: {words}");
}

#[test]
fn two_interfaces_of_one_pod_and_two_ranges_of_one_add_never_share_an_address() {
    let bed = Bed::shared();
    let node = node(&bed, "twice", &["twice-1"]);
    let wide = network("twice-wide", json!({"range": "10.52.0.0/24", "network_name": "twice"}));
    let narrow = network("twice-narrow", json!({"range": "10.52.0.0/28", "network_name": "twice"}));
    let ipam = json!({
        "range": "10.52.0.0/24", "ipRanges": [{"range": "10.52.0.0/28"}], "network_name": "twice",
    });
    let both = network("twice-both", ipam);
    let interface = Interface::of("twice-1");
    let mut got = node.add(&interface, &wide);
    got.extend(node.add(&interface.named("net2"), &narrow));
    got.extend(node.add(&interface.named("net3"), &both));
    got.sort();
    got.dedup();
    assert_eq!(got.len(), 4, "{got:?}");
    for (ifname, config) in [("net1", wide), ("net2", narrow), ("net3", both)] {
        node.del(&interface.named(ifname), &config);
    }
    for pool in ["twice-10.52.0.0-24", "twice-10.52.0.0-28"] {
        assert!(bed.records(pool).is_empty());
    }
    until("no reservation", || bed.reservations_of("twice-").is_empty().then_some(()));
}

#[test]
fn the_second_address_of_a_network_that_became_dual_stack_is_protected_too() {
    let bed = Bed::shared();
    let node = node(&bed, "grown", &["grown-1", "grown-2"]);
    let before = network("grown", json!({"range": "10.53.0.0/24", "network_name": "grown"}));
    let ipam = json!({
        "range": "10.53.0.0/24", "ipRanges": [{"range": "fd53::/120"}], "network_name": "grown",
    });
    let after = network("grown", ipam);
    // A range that overlaps the new one.
    let beside = network("beside", json!({"range": "fd53::/124", "network_name": "grown"}));
    let [one, two] = ["grown-1", "grown-2"].map(Interface::of);
    assert_eq!(node.add(&one, &before), ips(&["10.53.0.1"]));
    assert_eq!(node.add(&one, &after), ips(&["10.53.0.1", "fd53::1"]));
    assert_eq!(node.add(&two, &beside), ips(&["fd53::2"]));
    node.del(&one, &after);
    node.del(&two, &beside);
    for pool in ["grown-10.53.0.0-24", "grown-fd53---120", "grown-fd53---124"] {
        assert!(bed.records(pool).is_empty(), "{pool}");
    }
    until("no reservation", || bed.reservations_of("grown-").is_empty().then_some(()));
}

#[test]
fn a_del_takes_no_reservation_away_that_is_another_pods_by_now() {
    let bed = Bed::shared();
    let node = node(&bed, "owner", &["owner-1", "owner-2"]);
    let wide = network("owner-wide", json!({"range": "10.54.0.0/24", "network_name": "owner"}));
    let narrow = network("owner-narrow", json!({"range": "10.54.0.0/28", "network_name": "owner"}));
    let [one, two] = ["owner-1", "owner-2"].map(Interface::of);
    node.add(&one, &narrow);
    let address = node.add(&two, &wide)[0];
    let name = format!("owner-{address}");
    assert_eq!(bed.all_reservations()[&name].0, "default/owner-2");
    // Somebody made another one of the same name for another pod.
    bed.wait(bed.reservations().delete(&name, &kube::api::DeleteParams::default())).unwrap();
    bed.make_reservation(&name, "default/owner-1", "net9");
    node.del(&two, &wide);
    assert_eq!(bed.all_reservations()[&name], ("default/owner-1".to_owned(), "net9".to_owned()));
    bed.wait(bed.reservations().delete(&name, &kube::api::DeleteParams::default())).ok();
    node.del(&one, &narrow);
}

#[test]
fn after_a_reboot_a_pod_gets_its_own_address_also_of_a_full_range() {
    let bed = Bed::shared();
    let node = node(&bed, "reboot", &["reboot-1", "reboot-2", "reboot-3"]);
    let config = network("reboot", json!({"range": "10.55.0.0/30", "network_name": "reboot"}));
    let [one, two, three] = ["reboot-1", "reboot-2", "reboot-3"].map(Interface::of);
    // As runtimes call it: with the pod's UID.
    let uid = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=reboot-2;K8S_POD_UID=uid-of-reboot-2";
    assert_eq!(node.add(&one, &config), ips(&["10.55.0.1"]));
    assert_eq!(node.call_with("ADD", &two, uid, &config).addresses(), ips(&["10.55.0.2"]));
    node.crash();
    node.forget_everything();
    node.start();
    node.serving();
    assert!(node.call("ADD", &three, &config).refused().1.contains("could not allocate"));
    let again = Interface::in_container("reboot-2", "after-the-reboot");
    let other = uid.replace("uid-of-reboot-2", "another");
    assert!(node.call_with("ADD", &again, &other, &config).refused().1.contains("could not allocate"), "d8");
    assert_eq!(node.call_with("ADD", &again, uid, &config).addresses(), ips(&["10.55.0.2"]));
    assert_eq!(bed.records("reboot-10.55.0.0-30")["2"].id, "after-the-reboot");
    node.del(&two, &config);
    assert_eq!(bed.records("reboot-10.55.0.0-30").len(), 2, "the late DEL of before is not its successor's");
    node.del(&again, &config);
    node.del(&one, &config);
    assert!(bed.records("reboot-10.55.0.0-30").is_empty());
}

#[test]
fn ranges_of_one_or_two_addresses_are_handed_out_and_odd_ranges_have_names() {
    let bed = Bed::shared();
    let node = node(&bed, "small", &["small-1", "small-2"]);
    let [one, two] = ["small-1", "small-2"].map(Interface::of);
    let cases: [(&str, &str, &[&str]); 4] = [
        ("10.56.0.0/31", "10.56.0.0-31", &["10.56.0.0", "10.56.0.1"]),
        ("10.56.1.5/32", "10.56.1.5-32", &["10.56.1.5"]),
        ("fd56::/127", "fd56---127", &["fd56::", "fd56::1"]),
        // Whereabouts' name, which begins with a dash, is refused by the API server.
        ("::/126", "0---126", &["::1", "::2"]),
    ];
    for (range, name, expected) in cases {
        let config = network("small", json!({"range": range}));
        assert_eq!(node.add(&one, &config), ips(&expected[..1]), "{range}");
        if expected.len() > 1 {
            assert_eq!(node.add(&two, &config), ips(&expected[1..]), "{range}");
        }
        assert_eq!(bed.records(name).len(), expected.len(), "{range}");
        node.del(&one, &config);
        node.del(&two, &config);
        assert!(bed.records(name).is_empty(), "{range}");
    }
}

#[test]
fn a_freed_address_rests_and_gives_way_rather_than_refusing() {
    let bed = Bed::shared();
    let node = node(&bed, "rest", &["rest-1", "rest-2", "rest-3"]);
    let ipam = json!({"range": "10.57.0.0/29", "range_end": "10.57.0.3", "network_name": "rest"});
    let config = network("rest", ipam);
    let [one, two, three] = ["rest-1", "rest-2", "rest-3"].map(Interface::of);
    assert_eq!(node.add(&one, &config), ips(&["10.57.0.1"]));
    node.del(&one, &config);
    assert_eq!(node.add(&two, &config), ips(&["10.57.0.2"]), "the first rests");
    assert_eq!(node.add(&three, &config), ips(&["10.57.0.3"]));
    assert_eq!(node.add(&one, &config), ips(&["10.57.0.1"]), "there is no other");
    for interface in [one, two, three] {
        node.del(&interface, &config);
    }
    assert!(bed.records("rest-10.57.0.0-29").is_empty());
}

#[test]
fn networks_without_a_name_and_of_other_namespaces_get_slices_in_both_families() {
    let bed = Bed::shared();
    let node = node(&bed, "unnamed", &["unnamed-1"]);
    let names = ["unnamed".to_owned()];
    let interface = Interface::of("unnamed-1");
    let four = network("unnamed-four", json!({"range": "10.58.0.0/20", "node_slice_size": "/26"}));
    let six = network("unnamed-six", json!({"range": "fd58::/112", "node_slice_size": "/118"}));
    for (number, (name, config)) in [("unnamed-four", &four), ("unnamed-six", &six)].into_iter().enumerate() {
        bed.attach(name, config);
        let slice: ipnet::IpNet = bed.sliced(name, &names)["unnamed"].parse().unwrap();
        let interface = interface.named(&format!("net{}", number + 1));
        let got = node.add(&interface, config);
        assert!(got.len() == 1 && slice.contains(&got[0]), "{got:?} of {slice}");
        node.del(&interface, config);
    }
}

#[test]
fn a_repeated_add_that_fails_takes_nothing_away_from_a_pod_that_runs() {
    let bed = Bed::shared();
    let node = node(&bed, "keeps", &["keeps-1", "keeps-2"]);
    let config = network("keeps", json!({"range": "10.59.0.0/24", "network_name": "keeps"}));
    let [one, two] = ["keeps-1", "keeps-2"].map(Interface::of);
    assert_eq!(node.add(&one, &config), ips(&["10.59.0.1"]));
    // An agent that knows nothing yet, and an API server that does not answer it.
    node.crash();
    node.start();
    node.serving();
    let away = node.faults.add(Rule::lose_request().on(Calls::all().to("ippools")));
    assert!(node.call("ADD", &one, &config).is_later());
    let patches = Rule::lose_request().on(Calls::of(Verb::Patch).to("ippools"));
    let broken = node.faults.add(patches);
    node.faults.remove(away);
    let successor = Interface::in_container("keeps-1", "another");
    assert!(node.call("ADD", &successor, &config).is_later());
    node.faults.remove(broken);
    // Whatever was left to be done is done with the next request.
    assert_eq!(node.add(&two, &config), ips(&["10.59.0.2"]));
    assert_eq!(bed.records("keeps-10.59.0.0-24").len(), 2);
    assert_eq!(node.add(&one, &config), ips(&["10.59.0.1"]));
    node.del(&one, &config);
    node.del(&two, &config);
    assert!(bed.records("keeps-10.59.0.0-24").is_empty());
}
