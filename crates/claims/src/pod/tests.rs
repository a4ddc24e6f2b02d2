use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use proptest::prelude::*;

use super::*;

fn meta(annotations: &[(&str, &str)]) -> ObjectMeta {
    let annotations =
        annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    ObjectMeta {
        namespace: Some("ns".into()),
        name: Some("pod".into()),
        uid: Some("uid".into()),
        annotations: Some(annotations),
        ..ObjectMeta::default()
    }
}

fn owned(mut meta: ObjectMeta, api_version: &str, kind: &str, name: &str) -> ObjectMeta {
    let owner = OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        ..OwnerReference::default()
    };
    meta.owner_references.get_or_insert_default().push(owner);
    meta
}

#[test]
fn a_plain_pod_is_neither_a_launcher_nor_of_a_set() {
    let pod = PodFacts::of(&ObjectMeta {
        creation_timestamp: Some(Time("2026-11-16T05:31:00Z".parse().unwrap())),
        deletion_timestamp: Some(Time("2026-11-16T05:32:00Z".parse().unwrap())),
        ..meta(&[])
    });
    let expected = PodFacts {
        namespace: "ns".into(),
        name: "pod".into(),
        uid: "uid".into(),
        created: Timestamp::from_jiff("2026-11-16T05:31:00Z".parse().unwrap()),
        deleting: true,
        ..PodFacts::default()
    };
    assert_eq!(pod, expected);
    assert!(pod.is_leaving());
}

#[test]
fn a_launcher_pod_is_one_that_kubevirts_instance_owns() {
    let of_vm = owned(
        meta(&[("kubevirt.io/domain", "vm"), (annotation::KUBEVIRT_READY, "2026-11-16T05:31:00Z")]),
        "kubevirt.io/v1",
        "VirtualMachineInstance",
        "vm",
    );
    let launcher = PodFacts::of(&of_vm).launcher.unwrap();
    assert_eq!(launcher.vmi, "vm");
    assert_eq!(launcher.ready_at, Some("2026-11-16T05:31:00Z".parse().unwrap()));
    for (api_version, kind) in [
        ("example.com/v1", "VirtualMachineInstance"),
        ("kubevirt.io/v1", "VirtualMachine"),
        ("v1", "VirtualMachineInstance"),
    ] {
        assert_eq!(
            PodFacts::of(&owned(meta(&[]), api_version, kind, "vm")).launcher,
            None,
            "{api_version} {kind}"
        );
    }
    // The annotation alone anybody can write; the owner is the API's word.
    assert_eq!(PodFacts::of(&meta(&[("kubevirt.io/domain", "vm")])).launcher, None);
}

#[test]
fn a_pod_of_a_set_counts_only_if_the_set_opts_in() {
    let of_set = |value: Option<&str>| {
        let annotations: Vec<_> = value.iter().map(|value| (annotation::KEEP_ADDRESSES, *value)).collect();
        PodFacts::of(&owned(meta(&annotations), "apps/v1", "StatefulSet", "web")).stateful_set
    };
    assert_eq!(of_set(Some("true")).as_deref(), Some("web"));
    assert_eq!((of_set(None), of_set(Some("false")), of_set(Some("yes"))), (None, None, None));
    assert_eq!(
        PodFacts::of(&meta(&[(annotation::KEEP_ADDRESSES, "true")])).stateful_set,
        None,
        "no set owns it"
    );
}

#[test]
fn the_default_network_is_in_multus_namespace_unless_it_says_another() {
    let network = |text: &str| PodFacts::of(&meta(&[(annotation::DEFAULT_NETWORK, text)])).default_network;
    assert_eq!(network("blue").unwrap().namespace, "kube-system");
    assert_eq!(network("other/blue").unwrap().namespace, "other");
    let json = network(
        r#"[{"name": "blue", "namespace": "ns", "ipam-claim-reference": "c", "ips": ["10.0.0.9/24"]}]"#,
    );
    let json = json.unwrap();
    assert_eq!((json.namespace.as_str(), json.selection.claim.as_deref()), ("ns", Some("c")));
    assert_eq!(network(""), None);
}

#[test]
fn what_cannot_be_read_is_remembered_in_words() {
    let pod = PodFacts::of(&meta(&[
        (annotation::NETWORKS, "[{"),
        (annotation::DEFAULT_NETWORK, "a,b"),
        (annotation::CLAIM, "other/claim"),
        (annotation::ACTIVE, "soon"),
    ]));
    assert_eq!(
        (pod.selections.len(), &pod.default_network, &pod.default_claim, pod.mover_stamp),
        (0, &None, &None, None)
    );
    let names: Vec<_> = pod.problems.keys().copied().collect();
    assert_eq!(
        names,
        [annotation::NETWORKS, annotation::ACTIVE, annotation::CLAIM, annotation::DEFAULT_NETWORK]
    );
    for (name, words) in &pod.problems {
        assert!(words.contains(&format!("annotation {name}: ")) && words.contains("accepted is"), "{words}");
    }
}

proptest! {
    #[test]
    fn invariant_10_no_annotation_makes_a_pods_facts_panic(value in "\\PC{0,40}", which in 0_usize..6) {
        let names = [annotation::NETWORKS, annotation::DEFAULT_NETWORK, annotation::CLAIM, annotation::ACTIVE,
                     annotation::KUBEVIRT_READY, annotation::KEEP_ADDRESSES];
        let meta = owned(meta(&[(names[which], &value)]), "kubevirt.io/v1", "VirtualMachineInstance", "vm");
        let pod = PodFacts::of(&meta);
        prop_assert_eq!(pod.name, "pod");
    }
}

#[test]
fn a_pod_that_names_an_alias_address_says_so_by_its_creation() {
    use tenure_api::cloud::annotation as alias;
    let created = Some(Time("2026-11-16T05:31:00Z".parse().unwrap()));
    let of = |annotations: &[(&str, &str)]| {
        PodFacts::of(&ObjectMeta { creation_timestamp: created.clone(), ..meta(annotations) })
    };
    let pod = of(&[(alias::ADDRESS, "10.111.0.5"), (alias::ORIGINAL_INSTANCE, "node-a")]);
    assert_eq!(pod.alias, Some("10.111.0.5".parse().unwrap()));
    assert_eq!(pod.original_instance.as_deref(), Some("node-a"));
    assert_eq!(pod.mover_stamp, Some("2026-11-16T05:31:00Z".parse().unwrap()));
    assert!(pod.moves_an_alias() && !pod.moves_out && !pod.may_refer());
    let said = of(&[(alias::ADDRESS, "10.111.0.5"), (annotation::ACTIVE, "7")]);
    assert_eq!(said.mover_stamp, Some(Stamp::new(7)), "what a mover says counts before");
    assert!(of(&[(alias::MOVE_OUT, "")]).moves_out && of(&[(alias::MOVE_OUT, "true")]).moves_out);
    assert!(!of(&[(alias::MOVE_OUT, "false")]).moves_out);
    for bad in ["", "ten", "10.111.0.5/32", "fd00::1"] {
        let pod = of(&[(alias::ADDRESS, bad)]);
        assert_eq!((pod.alias, pod.mover_stamp), (None, None), "{bad:?}");
        assert!(pod.problems[alias::ADDRESS].contains("10.111.0.5"), "{:?}", pod.problems);
        assert!(pod.moves_an_alias(), "it is not given another address");
    }
}
