//! What is accepted, what it means, and how the rest is refused.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn network(ipam: &Value) -> Value {
    let mut network = json!({"cniVersion": "1.0.0", "name": "mynet", "type": "macvlan", "ipam": ipam});
    network["ipam"]["type"] = json!("whereabouts");
    network
}

fn load(ipam: &Value) -> Result<Config, ConfigError> {
    Config::load(&network(ipam), None, &Arguments::default())
}

fn refusal(ipam: &Value) -> Refusal {
    match load(ipam) {
        Err(ConfigError::Refused(refusal)) => *refusal,
        other => panic!("{ipam} is not refused: {other:?}"),
    }
}

#[test]
fn what_is_wrong_is_refused_with_key_value_and_what_is_accepted() {
    for (ipam, key, value) in [
        (json!({"range": "garbage"}), "ipam.range", "garbage"),
        (json!({"range": 7}), "ipam.range", "7"),
        (json!({"range": "x-192.168.1.25/24"}), "ipam.range", "x-192.168.1.25/24"),
        (json!({"range": "192.168.1.5-192.168.1.2/24"}), "ipam.range", "192.168.1.5 to 192.168.1.2"),
        (json!({"range": "10.0.0.0/24", "range_start": "garbage"}), "ipam.range_start", "garbage"),
        (json!({"range": "10.0.0.0/24", "range_start": "10.0.1.1"}), "ipam.range_start", "10.0.1.1"),
        (json!({"range": "10.0.0.0/24", "range_start": "10.0.0.255"}), "ipam.range_start", "10.0.0.255"),
        (json!({"range": "10.0.0.0/24", "range_end": "fd00::1"}), "ipam.range_end", "fd00::1"),
        (
            json!({"range": "10.0.0.0/24", "range_start": "10.0.0.9", "range_end": "10.0.0.8"}),
            "ipam.range_start",
            "10.0.0.9 to 10.0.0.8",
        ),
        (json!({"range": "10.0.0.0/24", "exclude": ["ok"]}), "ipam.exclude[0]", "ok"),
        (json!({"range": "10.0.0.0/24", "exclude": ["010.0.0.1/32"]}), "ipam.exclude[0]", "010.0.0.1/32"),
        (
            json!({"range": "10.0.0.0/24", "exclude": ["10.0.0.1-10.0.0.5"]}),
            "ipam.exclude[0]",
            "10.0.0.1-10.0.0.5",
        ),
        (json!({"range": "10.0.0.0/30", "exclude": ["10.0.0.0/24"]}), "ipam.exclude", "10.0.0.0/24"),
        (json!({"range": "10.0.0.0/24", "gateway": "here"}), "ipam.gateway", "here"),
        (json!({"range": "fd00::/64", "gateway": "10.0.0.1"}), "ipam.gateway", "10.0.0.1"),
        (json!({"range": "10.0.0.0/24", "exclude_gateway": true}), "ipam.exclude_gateway", "true"),
        (json!({"range": "10.0.0.0/24", "exlude": []}), "ipam", "exlude"),
        (json!({"range": "10.0.0.0/24", "node_slice_size": "/22"}), "ipam.node_slice_size", "/22"),
        (json!({"range": "10.0.0.0/24", "node_slice_size": "/33"}), "ipam.node_slice_size", "/33"),
        (json!({"range": "10.0.0.0/24", "node_slice_size": "big"}), "ipam.node_slice_size", "big"),
        (json!({"range": "10.0.0.0/8", "node_slice_size": "/23"}), "ipam.node_slice_size", "/23"),
        (json!({"range": "10.0.0.0/8", "fast_ipam": true}), "ipam.fast_ipam", "true"),
        (json!({"range": "10.0.0.0/8", "network_name": "Blue"}), "ipam.network_name", "Blue"),
        (json!({"range": "10.0.0.0/8", "log_level": "loud"}), "ipam.log_level", "loud"),
        (json!({"range": "10.0.0.0/8", "configuration_path": "../x"}), "ipam.configuration_path", "../x"),
        (json!({"range": "10.0.0.0/8", "routes": [{"dst": "x"}]}), "ipam.routes[0]", "x"),
        (
            json!({"range": "10.0.0.0/8", "addresses": [{"address": "10.9.0.1"}]}),
            "ipam.addresses[0].address",
            "10.9.0.1",
        ),
        (
            json!({"range": "10.0.0.0/24", "pick_addresses": ["10.0.1.1"]}),
            "ipam.pick_addresses[0]",
            "10.0.1.1",
        ),
        (
            json!({"ipRanges": [{"range": "10.0.0.0/24", "range_start": "010.0.0.5"}]}),
            "ipam.ipRanges[0].range_start",
            "010.0.0.5",
        ),
        (json!({"ipRanges": [{}]}), "ipam.ipRanges[0].range", ""),
        (json!({"range_start": "10.0.0.1"}), "ipam.range_start", "\"10.0.0.1\""),
        (json!({}), "ipam.range", ""),
    ] {
        let refusal = refusal(&ipam);
        assert_eq!((refusal.key.as_str(), refusal.value.as_str()), (key, value), "{ipam}");
        assert!(!refusal.problem.is_empty() && !refusal.accepted.is_empty(), "{refusal}");
    }
}

#[test]
fn what_means_nothing_here_is_accepted_and_said_to_be_ignored() {
    let ipam = json!({
        "range": "10.0.0.0/24", "leader_lease_duration": 3000, "etcd_host": "10.0.0.1", "sleep_for_race": 5,
        "datastore": "etcd", "optimistic_ipam": true, "somethingElseEntirely": 1
    });
    let config = load(&ipam).unwrap();
    let keys: Vec<_> = config.notices.iter().map(|notice| notice.key.as_str()).collect();
    assert_eq!(keys.len(), 6, "{keys:?}");
    assert_eq!(config.lease_ms, [3000, 1000, 500]);
}

#[test]
fn keys_are_found_whatever_their_case_as_whereabouts_finds_them() {
    let config = load(&json!({"Range": "10.0.0.0/24", "ipranges": [{"RANGE": "fd00::/64"}]})).unwrap();
    assert_eq!(config.ranges.len(), 2);
}

#[test]
fn the_networks_own_configuration_wins_over_the_flat_file() {
    let flat = json!({
        "kubernetes": {"kubeconfig": "/flat"}, "gateway": "10.0.0.9", "log_level": "error",
        "enable_overlapping_ranges": false, "network_name": "blue"
    });
    let own =
        network(&json!({"range": "10.0.0.0/24", "gateway": "10.0.0.1", "kubernetes": {"k8s_api_root": "x"}}));
    let config = Config::load(&own, Some(&flat), &Arguments::default()).unwrap();
    assert_eq!(config.gateway.unwrap().to_string(), "10.0.0.1");
    assert_eq!((config.kubeconfig.as_str(), config.log_level.as_str()), ("/flat", "error"));
    assert_eq!(config.network, "blue");
    assert!(config.overlapping);
    assert!(config.notices.iter().any(|notice| notice.key == "flat file.enable_overlapping_ranges"));
}

#[test]
fn the_gateway_is_for_addresses_of_its_family_and_kept_back_only_when_asked() {
    let mut ipam =
        json!({"range": "10.0.0.0/24", "gateway": "10.0.0.1", "ipRanges": [{"range": "fd00::/120"}]});
    let config = load(&ipam).unwrap();
    assert_eq!(config.ranges[0].range.nth(0).unwrap().to_string(), "10.0.0.1");
    let result = config.result(&["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()]);
    assert_eq!(result.ips[0].gateway.unwrap().to_string(), "10.0.0.1");
    assert_eq!((result.ips[1].address.as_str(), result.ips[1].gateway), ("fd00::1/120", None));
    ipam["exclude_gateway"] = json!(true);
    assert_eq!(load(&ipam).unwrap().ranges[0].range.nth(0).unwrap().to_string(), "10.0.0.2");
}

#[test]
fn small_networks_and_l3_ranges_hand_out_every_address() {
    for (range, l3, count) in [
        ("10.0.0.4/31", false, 2),
        ("10.0.0.4/32", false, 1),
        ("fd00::/127", false, 2),
        ("fd00::1/128", false, 1),
        ("10.0.0.0/29", true, 8),
        ("10.0.0.0/29", false, 6),
    ] {
        assert_eq!(
            load(&json!({"range": range, "enable_l3": l3})).unwrap().ranges[0].range.count(),
            count,
            "{range}"
        );
    }
    let per_range = load(&json!({"ipRanges": [{"range": "10.0.0.0/30", "enable_l3": true}]})).unwrap();
    assert_eq!(per_range.ranges[0].range.count(), 4);
}

#[test]
fn every_range_has_as_many_slices_as_the_first_unless_it_says_otherwise() {
    let config = load(&json!({
        "range": "10.0.0.0/16", "node_slice_size": "24",
        "ipRanges": [{"range": "fd00::/64"}, {"range": "10.1.0.0/16", "node_slice_size": "/20"}]
    }))
    .unwrap();
    let cuts: Vec<_> = config.ranges.iter().map(|range| range.slices.unwrap().prefix()).collect();
    assert_eq!(cuts, [24, 72, 20]);
    assert!(
        !load(&json!({"range": "10.0.0.0/16", "node_slice_size": "24", "fast_ipam": false}))
            .unwrap()
            .is_sliced()
    );
}

#[test]
fn a_range_is_not_cut_where_its_network_is_not() {
    let ranges = json!([{"range": "fd00::/120", "node_slice_size": "/126"}]);
    let refused = refusal(&json!({"range": "10.0.0.0/16", "ipRanges": ranges}));
    assert_eq!(refused.key, "ipam.ipRanges[0].node_slice_size");
    let off =
        json!({"range": "10.0.0.0/16", "node_slice_size": "/24", "fast_ipam": false, "ipRanges": ranges});
    assert!(!load(&off).unwrap().is_sliced(), "slices are switched off");
}

#[test]
fn a_slice_keeps_window_and_exclusions() {
    let config = load(&json!({
        "range": "10.0.0.0/16", "node_slice_size": "/24", "exclude": ["10.0.3.100/31"], "range_start": "10.0.3.100"
    }))
    .unwrap();
    let of = |slice: &str| config.ranges[0].within(slice.parse().unwrap());
    assert_eq!(of("10.0.3.0/24").unwrap().nth(0).unwrap().to_string(), "10.0.3.102");
    assert_eq!(of("10.0.4.0/24").unwrap().nth(0).unwrap().to_string(), "10.0.4.1");
    assert_eq!(of("10.0.2.0/24"), None);
}

#[test]
fn a_preferred_address_is_that_of_its_range_and_one_of_no_range_is_another_networks() {
    let config = load(&json!({"range": "10.0.0.0/24", "ipRanges": [{"range": "fd00::/120"}]})).unwrap();
    let wish = |text: &str| config.preferred(text);
    assert_eq!(wish("fd00::5").unwrap(), [None, Some("fd00::5".parse().unwrap())]);
    assert!(wish("10.0.0.7, fd00::5").unwrap().iter().all(Option::is_some));
    assert_eq!(wish("10.0.1.7,10.0.0.7").unwrap(), [Some("10.0.0.7".parse().unwrap()), None]);
    assert!(wish("soon").unwrap_err().key.contains("preferred-ip"));
}

#[test]
fn a_list_is_searched_for_the_plugin_that_asks_us() {
    let list = json!({"cniVersion": "0.4.0", "name": "listed", "plugins": [
        {"type": "tuning"}, {"type": "macvlan", "ipam": {"type": "whereabouts", "range": "10.0.0.0/24"}}
    ]});
    let config = Config::load(&list, None, &Arguments::default()).unwrap();
    assert_eq!((config.name.as_str(), config.version), ("listed", tenure_cni::Version::V0_4_0));
    assert_eq!(networks_of(&list.to_string(), "x").unwrap().len(), 1);
    assert_eq!(networks_of(r#"{"type": "bridge"}"#, "x").unwrap(), Vec::<Value>::new());
    let nameless = networks_of(r#"{"ipam": {"type": "whereabouts"}}"#, "x").unwrap();
    assert_eq!(nameless[0]["name"], "x");
}

#[test]
fn arguments_that_are_not_known_need_ignore_unknown() {
    assert!(Arguments::parse("FOO=1").unwrap_err().to_string().contains("FOO"));
    assert!(Arguments::parse("IgnoreUnknown=1;FOO=1").is_ok());
    assert!(Arguments::parse("IgnoreUnknown=maybe").is_err());
    assert!(Arguments::parse("IP=10.0.0.1").unwrap_err().key.contains("IP"));
    let arguments = Arguments::parse("IP=10.0.0.1/24;GATEWAY=10.0.1.1").unwrap();
    let error = Config::load(&network(&json!({})), None, &arguments).unwrap_err();
    assert!(error.to_string().contains("GATEWAY"), "{error}");
}

#[test]
fn an_add_needs_a_pod() {
    let config = load(&json!({"range": "10.0.0.0/24"})).unwrap();
    assert_eq!(config.podref(), "/");
    assert!(config.pod().unwrap_err().problem.contains("no pod name"));
}

#[test]
fn the_flat_file_is_looked_for_where_the_network_says_first() {
    let own = json!({"configuration_path": "/etc/own.conf"});
    let places = places::flat_files(own.as_object().unwrap()).unwrap();
    assert_eq!((places[0].as_str(), places.len()), ("/etc/own.conf", 4));
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(range in ".{0,40}", start in ".{0,20}", exclude in ".{0,20}", size in ".{0,5}", args in ".{0,40}") {
        let ipam = json!({"range": range, "range_start": start, "exclude": [exclude], "node_slice_size": size});
        if let Ok(arguments) = Arguments::parse(&args) {
            let _ = Config::load(&network(&ipam), None, &arguments);
        }
        let _ = networks_of(&range, &start);
    }

    #[test]
    fn no_json_makes_it_panic(value in prop_oneof![Just(json!(1)), Just(json!("a")), Just(json!([1])), Just(json!({"a": 1})), Just(json!(true)), Just(json!([{"range": 1}]))], key in "(type|range|range_start|exclude|ipRanges|gateway|addresses|routes|dns|kubernetes|node_slice_size|leader_lease_duration|enable_l3)") {
        let mut ipam = json!({"range": "10.0.0.0/24"});
        ipam[key] = value;
        let _ = load(&ipam);
        let _ = Config::load(&network(&json!({})), Some(&ipam), &Arguments::default());
    }
}
