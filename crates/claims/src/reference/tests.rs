use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::*;

fn pod(annotations: &[(&str, &str)]) -> PodFacts {
    PodFacts::of(&meta(annotations))
}

fn meta(annotations: &[(&str, &str)]) -> ObjectMeta {
    let annotations =
        annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    ObjectMeta {
        namespace: Some("ns".into()),
        name: Some("web-0".into()),
        annotations: Some(annotations),
        ..ObjectMeta::default()
    }
}

fn owned(annotations: &[(&str, &str)], api_version: &str, kind: &str, name: &str) -> PodFacts {
    let owner = OwnerReference {
        api_version: api_version.into(),
        kind: kind.into(),
        name: name.into(),
        ..OwnerReference::default()
    };
    PodFacts::of(&ObjectMeta { owner_references: Some(vec![owner]), ..meta(annotations) })
}

fn launcher(annotations: &[(&str, &str)]) -> PodFacts {
    owned(annotations, "kubevirt.io/v1", "VirtualMachineInstance", "vm")
}

fn named(pod: &PodFacts, interface: &str) -> Option<String> {
    match reference(pod, "blue", interface).unwrap()?.reference {
        Reference::Named(name) => Some(name),
        Reference::Launcher { vmi, interface } => Some(format!("launcher {vmi} {interface}")),
    }
}

const LIST: &str = r#"[{"name": "blue", "interface": "pod1", "ipam-claim-reference": "one"},
                       {"name": "blue", "ipam-claim-reference": "two", "ips": ["10.0.0.7/24"]},
                       {"name": "green"}]"#;

#[test]
fn an_element_is_found_by_its_interface_else_by_its_place() {
    let pod = pod(&[(annotation::NETWORKS, LIST)]);
    assert_eq!(named(&pod, "pod1").as_deref(), Some("one"));
    assert_eq!(named(&pod, "net2").as_deref(), Some("two"));
    assert_eq!(reference(&pod, "blue", "net2").unwrap().unwrap().ips, ["10.0.0.7".parse().unwrap()]);
    for none in ["net1", "net3", "net4", "eth0"] {
        assert_eq!(named(&pod, none), None, "{none}");
    }
}

#[test]
fn the_default_network_has_an_annotation_of_ours_and_multus() {
    let ours = pod(&[(annotation::CLAIM, "mine")]);
    assert_eq!(named(&ours, "eth0").as_deref(), Some("mine"));
    assert_eq!(named(&ours, "net1"), None, "and it is for no other interface");
    let of_multus =
        r#"[{"name": "blue", "namespace": "ns", "ipam-claim-reference": "theirs", "ips": ["10.0.0.8"]}]"#;
    let multus = pod(&[(annotation::DEFAULT_NETWORK, of_multus)]);
    assert_eq!(named(&multus, "eth0").as_deref(), Some("theirs"));
    assert_eq!(reference(&multus, "blue", "eth0").unwrap().unwrap().ips.len(), 1);
    let short = pod(&[(annotation::DEFAULT_NETWORK, "ns/blue"), (annotation::CLAIM, "mine")]);
    assert_eq!(named(&short, "eth0").as_deref(), Some("mine"));
    let both = pod(&[(annotation::DEFAULT_NETWORK, of_multus), (annotation::CLAIM, "mine")]);
    let words = reference(&both, "blue", "eth0").unwrap_err().to_string();
    assert!(words.contains("\"mine\"") && words.contains("\"theirs\""), "{words}");
}

#[test]
fn a_launcher_pod_needs_no_reference() {
    let element = r#"[{"name": "blue", "interface": "podabc"}]"#;
    assert_eq!(
        named(&launcher(&[(annotation::NETWORKS, element)]), "podabc").as_deref(),
        Some("launcher vm podabc")
    );
    assert_eq!(named(&launcher(&[]), "eth0").as_deref(), Some("launcher vm eth0"));
    assert_eq!(
        named(&launcher(&[(annotation::NETWORKS, LIST)]), "pod1").as_deref(),
        Some("one"),
        "one that it has counts"
    );
}

#[test]
fn a_pod_of_a_set_that_opts_in_needs_no_reference() {
    let keep = (annotation::KEEP_ADDRESSES, "true");
    let of_set = owned(&[keep, (annotation::NETWORKS, LIST)], "apps/v1", "StatefulSet", "web");
    assert_eq!(named(&of_set, "net3").as_deref(), Some("web-0.blue.net3"));
    assert_eq!(named(&of_set, "eth0").as_deref(), Some("web-0.blue.eth0"));
    assert_eq!(named(&of_set, "pod1").as_deref(), Some("one"));
}

#[test]
fn an_annotation_that_cannot_be_read_refuses_the_interfaces_that_it_is_about() {
    let bad = pod(&[(annotation::NETWORKS, "[{")]);
    let words = reference(&bad, "blue", "net1").unwrap_err().to_string();
    assert!(words.starts_with("pod ns/web-0: annotation k8s.v1.cni.cncf.io/networks: "), "{words}");
    assert_eq!(named(&bad, "eth0"), None);
    let bad = pod(&[(annotation::CLAIM, "other/claim")]);
    assert!(reference(&bad, "blue", "eth0").unwrap_err().to_string().contains("\"other/claim\""));
    assert_eq!(named(&bad, "net1"), None);
}

#[test]
fn two_interfaces_never_share_a_claim() {
    let list = r#"[{"name": "blue", "ipam-claim-reference": "one"}, {"name": "blue", "ipam-claim-reference": "one"}]"#;
    let words = reference(&pod(&[(annotation::NETWORKS, list)]), "blue", "net2").unwrap_err().to_string();
    assert_eq!(
        words,
        "pod ns/web-0: interfaces \"net2\" and \"net1\" refer to the same claim \"one\"; accepted is a claim for each"
    );
    let first = r#"[{"name": "blue", "ipam-claim-reference": "one"}]"#;
    let both = pod(&[(annotation::NETWORKS, first), (annotation::CLAIM, "one")]);
    assert!(reference(&both, "blue", "eth0").is_err() && reference(&both, "blue", "net1").is_err());
}

#[test]
fn the_controller_finds_all_interfaces_on_networks_that_opt_in_and_says_what_the_agent_says() {
    let list = r#"[{"name": "blue", "interface": "pod1", "ipam-claim-reference": "one"},
                   {"name": "green", "namespace": "other", "ipam-claim-reference": "two"},
                   {"name": "red", "ipam-claim-reference": "three"}]"#;
    let network_of = |namespace: &str, name: &str| match (namespace, name) {
        ("", "") => Some("cluster".to_owned()),
        ("ns", "blue") => Some("blue-net".to_owned()),
        ("other", "green") => Some("green-net".to_owned()),
        _ => None,
    };
    let pod = pod(&[(annotation::NETWORKS, list), (annotation::CLAIM, "zero")]);
    let found = references(&pod, network_of);
    let shown: Vec<_> = found
        .iter()
        .map(|(network, interface, wanted)| format!("{network} {interface} {:?}", wanted.reference))
        .collect();
    assert_eq!(
        shown,
        ["cluster eth0 Named(\"zero\")", "blue-net pod1 Named(\"one\")", "green-net net2 Named(\"two\")"]
    );
    for (network, interface, wanted) in found {
        assert_eq!(reference(&pod, &network, &interface).unwrap(), Some(wanted));
    }
    let multus = PodFacts {
        default_network: None,
        ..self::pod(&[(annotation::DEFAULT_NETWORK, "ns/blue"), (annotation::CLAIM, "zero")])
    };
    assert_eq!(references(&multus, network_of)[0].0, "cluster");
    let multus = self::pod(&[(annotation::DEFAULT_NETWORK, "ns/blue"), (annotation::CLAIM, "zero")]);
    assert_eq!(
        references(&multus, network_of)[0].0,
        "blue-net",
        "another default network is the one that is asked for"
    );
}

#[test]
fn a_claim_is_the_one_of_its_name_and_network_or_of_its_machine_network_and_interface() {
    let claim = ClaimFacts {
        name: "vm.logical".into(),
        network: "blue".into(),
        interface: "pod1".into(),
        vm: Some("vm".into()),
        ..ClaimFacts::default()
    };
    let named = Reference::Named("vm.logical".into());
    assert!(named.is(&claim, "blue"));
    assert!(!named.is(&claim, "green"), "a claim on another network is not it");
    assert!(!Reference::Named("vm".into()).is(&claim, "blue"));
    let of =
        |vmi: &str, interface: &str| Reference::Launcher { vmi: vmi.into(), interface: interface.into() };
    assert!(of("vm", "pod1").is(&claim, "blue"));
    assert!(
        !of("vm", "pod2").is(&claim, "blue")
            && !of("vm2", "pod1").is(&claim, "blue")
            && !of("vm", "pod1").is(&claim, "green")
    );
    // As KubeVirt's ipam-extensions leaves it: two interfaces on one network are told apart by their names.
    let empty = ClaimFacts { interface: String::new(), ..claim };
    assert!(of("vm", &names::machine_interface("logical")).is(&empty, "blue"));
    assert!(!of("vm", &names::machine_interface("other")).is(&empty, "blue"));
    assert!(of("vm", "eth0").is(&empty, "blue"));
}
