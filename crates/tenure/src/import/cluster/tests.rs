use serde_json::json;

use super::*;
use crate::import::coil_v1;
use crate::import::etcd::Entry;
use crate::import::plan::plan;
use crate::import::records::Renames;

/// Two pools of Coil v1; `node1` has the first block of `default`.
fn planned() -> Plan {
    let entry = |key: &str, value: &str| Entry { key: key.into(), value: value.into() };
    let entries = [
        entry("/coil/block/default/10.2.0.0", r#"{"nodes": {"node1": ["10.2.0.0/27"]}}"#),
        entry("/coil/ip/10.2.0.0/1", "team/web-0"),
        entry("/coil/pool/default", r#"{"subnets": ["10.2.0.0/24"], "block_size": 5}"#),
        entry("/coil/pool/gone", r#"{"subnets": ["10.4.0.0/24"], "block_size": 5}"#),
        entry("/coil/pool/team", r#"{"subnets": ["10.3.0.0/24"], "block_size": 5}"#),
    ];
    plan(&coil_v1::read("/coil/", &entries, &Renames::default()))
}

fn cluster() -> Cluster {
    let namespaces = [("team".to_owned(), None), ("default".to_owned(), None)];
    Cluster { nodes: ["node1".to_owned()].into(), namespaces: namespaces.into(), ..Cluster::default() }
}

fn pool(name: &str, bits: i32, subnets: &[&str]) -> AddressPool {
    let subnets: Vec<_> = subnets.iter().map(|subnet| json!({"ipv4": subnet})).collect();
    AddressPool::new(
        name,
        serde_json::from_value(json!({"blockSizeBits": bits, "subnets": subnets})).unwrap(),
    )
}

/// The findings after the plan was adapted, and the plan.
fn adapted(cluster: &Cluster) -> (Vec<String>, Plan) {
    let mut plan = planned();
    adapt(&mut plan, cluster);
    (plan.findings.iter().map(ToString::to_string).collect(), plan)
}

#[test]
fn only_namespaces_that_exist_and_name_no_other_pool_are_annotated() {
    let (findings, plan) = adapted(&cluster());
    assert_eq!(plan.namespaces, BTreeMap::from([("team".to_owned(), "team".to_owned())]));
    assert_eq!(
        findings,
        [
            "note: Namespace \"gone\": it is not there, so that pool \"gone\" serves nobody; name the pool in the annotation of the namespaces that are to use it"
        ]
    );
    let mut there = cluster();
    there.namespaces.insert("team".into(), Some("default".into()));
    let (findings, plan) = adapted(&there);
    assert!(plan.namespaces.is_empty());
    assert!(
        findings[1].starts_with("note: Namespace team: it names pool \"default\" already"),
        "{findings:?}"
    );
    there.namespaces.insert("team".into(), Some("team".into()));
    assert_eq!(adapted(&there).1.namespaces.len(), 1, "a second import gives the same");
}

#[test]
fn a_second_import_gives_the_same_and_keeps_what_a_pool_has_grown_by() {
    let mut there = cluster();
    let first = adapted(&there);
    there.pools = first.1.pools.clone();
    there.blocks = first.1.blocks.iter().map(|block| block.object.clone()).collect();
    let second = adapted(&there);
    assert_eq!(first.0, second.0);
    let yaml = |plan: &Plan| crate::import::manifests::yaml(plan).unwrap();
    assert_eq!(yaml(&first.1), yaml(&second.1));

    there.pools[0] = pool("default", 5, &["10.2.0.0/24", "10.8.0.0/24"]);
    let (findings, plan) = adapted(&there);
    assert_eq!(findings, first.0);
    assert_eq!(plan.pools[0].spec.subnets.len(), 2);
}

#[test]
fn nothing_is_taken_from_a_node_and_no_pool_is_changed() {
    let mut live = AddressBlock::new("default-0", planned().blocks[0].object.spec.clone());
    live.labels_mut().insert("coil.cybozu.com/node".into(), "node2".into());
    let mut other = planned().blocks[0].object.clone();
    other.spec.ipv4 = Some("10.2.0.0/28".into());
    let table = [
        (
            Cluster { blocks: vec![live], ..cluster() },
            "AddressBlock default-0: it is there already, is node node2's, and is not reserved",
        ),
        (
            Cluster { blocks: vec![other], ..cluster() },
            "AddressBlock default-0: it is there already, with other addresses",
        ),
        (
            Cluster { pools: vec![pool("default", 4, &["10.2.0.0/24"])], ..cluster() },
            "AddressPool default: the cluster has it with other subnets or blocks",
        ),
        (
            Cluster { pools: vec![pool("team", 5, &["10.30.0.0/24"])], ..cluster() },
            "AddressPool team: the cluster has it with other subnets or blocks",
        ),
        (
            Cluster { pools: vec![pool("wide", 5, &["10.0.0.0/8"])], ..cluster() },
            "AddressPool wide: it has 10.2.0.0/24, which pool \"default\" has, too",
        ),
        (
            Cluster { pools: vec![pool("narrow", 0, &["10.2.0.7/32"])], ..cluster() },
            "AddressPool narrow: it has 10.2.0.7/32, which pool \"default\" has, too",
        ),
    ];
    for (cluster, expected) in table {
        let (findings, _) = adapted(&cluster);
        assert!(
            findings.iter().any(|it| it.starts_with("error: ") && it.contains(expected)),
            "{expected}: {findings:?}"
        );
    }
}

#[test]
fn a_node_that_is_gone_is_noted() {
    let (findings, plan) = adapted(&Cluster { nodes: BTreeSet::new(), ..cluster() });
    assert!(
        findings[0].contains("note: AddressBlock default-0: the cluster has no node \"node1\""),
        "{findings:?}"
    );
    assert_eq!(plan.errors().count(), 0);
}

#[test]
fn offline_a_namespace_counts_if_its_pods_have_addresses() {
    let entries = [
        Entry { key: b"/coil/ip/10.3.0.0/1".to_vec(), value: b"team/web-0".to_vec() },
        Entry {
            key: b"/coil/pool/gone".to_vec(),
            value: br#"{"subnets": ["10.4.0.0/24"], "block_size": 5}"#.to_vec(),
        },
        Entry {
            key: b"/coil/pool/team".to_vec(),
            value: br#"{"subnets": ["10.3.0.0/24"], "block_size": 5}"#.to_vec(),
        },
    ];
    let records = coil_v1::read("/coil/", &entries, &Renames::default());
    let mut plan = plan(&records);
    guess_namespaces(&mut plan, &records);
    assert_eq!(plan.namespaces.keys().collect::<Vec<_>>(), ["team"]);
}
