use super::*;
use crate::import::finding::Severity;

fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

fn pool(name: &str, bits: u8, networks: &[&str]) -> PoolRecord {
    let subnets = networks.iter().map(|text| tenure_ipam::Subnet::single(cidr(text))).collect();
    PoolRecord { at: format!("pool {name}"), name: name.into(), block_bits: bits, subnets }
}

fn used(address: &str, node: Option<&str>) -> Use {
    let node = node.map(str::to_owned);
    Use { at: format!("use {address}"), address: address.parse().unwrap(), holder: "pod a/b".into(), node }
}

fn owned(network: &str, node: Option<&str>) -> NodeBlock {
    NodeBlock { at: format!("block {network}"), network: cidr(network), node: node.map(str::to_owned) }
}

fn planned(pools: Vec<PoolRecord>, blocks: Vec<NodeBlock>, uses: Vec<Use>) -> Plan {
    plan(&Records { pools, blocks, uses, ..Records::of(Origin::Calico) })
}

fn errors(plan: &Plan) -> Vec<String> {
    plan.errors().map(ToString::to_string).collect()
}

#[test]
fn a_block_larger_or_smaller_than_the_pools_reserves_all_it_touches() {
    let plan = planned(
        vec![pool("p", 2, &["10.0.0.0/24"])],
        vec![owned("10.0.0.0/28", Some("n")), owned("10.0.0.32/31", Some("m"))],
        Vec::new(),
    );
    let names: Vec<String> = plan.blocks.iter().map(|it| it.object.name_any()).collect();
    assert_eq!(names, ["p-0", "p-1", "p-2", "p-3", "p-8"]);
    assert_eq!(plan.blocks[4].object.spec.ipv4.as_deref(), Some("10.0.0.32/30"));
    assert_eq!(errors(&plan), [""; 0]);
}

#[test]
fn a_block_that_reaches_out_of_its_pool_is_noted_and_what_is_inside_is_reserved() {
    let plan = planned(vec![pool("p", 2, &["10.0.0.0/29"])], vec![owned("10.0.0.0/28", None)], Vec::new());
    assert_eq!(plan.blocks.len(), 2);
    assert!(
        plan.findings.iter().any(|it| it.problem.contains("10.0.0.0/28 is not inside a pool")),
        "{:?}",
        plan.findings
    );
}

#[test]
fn names_sizes_and_numbers_that_no_object_can_have_are_errors() {
    let long = "a".repeat(64);
    let table = [
        (
            planned(vec![pool(&long, 2, &["10.0.0.0/24"])], Vec::new(), Vec::new()),
            "an AddressPool cannot be named",
        ),
        (
            planned(vec![pool("A", 2, &["10.0.0.0/24"])], Vec::new(), Vec::new()),
            "choose a name with --rename OLD=NEW",
        ),
        (
            planned(vec![pool("p", 65, &["fd00::/32"])], Vec::new(), Vec::new()),
            "65 is no block size; accepted is 0 to 64",
        ),
        (
            planned(
                vec![pool("p", 2, &["10.0.0.0/24"]), pool("p", 2, &["10.1.0.0/24"])],
                Vec::new(),
                Vec::new(),
            ),
            "pool \"p\" is recorded twice, the other time at pool p",
        ),
        (
            planned(vec![pool("p", 2, &["fd00::/32"])], Vec::new(), vec![used("fd00:0:ffff::1", None)]),
            "has too large a number for an AddressBlock",
        ),
        (
            planned(vec![pool("p", 0, &["10.0.0.0/8"])], vec![owned("10.0.0.0/8", None)], Vec::new()),
            "accepted are at most 100000",
        ),
        (
            planned(
                vec![pool("p", 0, &["10.0.0.0/15"])],
                vec![owned("10.0.0.0/16", None), owned("10.1.0.0/16", None)],
                Vec::new(),
            ),
            "more than 100000 blocks would be reserved",
        ),
    ];
    for (plan, expected) in table {
        let errors = errors(&plan);
        assert!(errors.iter().any(|it| it.contains(expected)), "{expected}: {errors:?}");
    }
    let many: Vec<String> = (0..129).map(|it| format!("10.0.{it}.0/24")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let plan = planned(vec![pool("p", 2, &many)], Vec::new(), Vec::new());
    assert!(errors(&plan)[0].contains("it has 129 subnets; accepted are 1 to 128"));
}

#[test]
fn findings_come_errors_first_and_once() {
    let plan = planned(
        vec![pool("p", 2, &["10.0.0.0/24"])],
        Vec::new(),
        vec![used("10.9.0.0", None), used("10.0.0.1", None), used("10.0.0.1", None)],
    );
    let severities: Vec<Severity> = plan.findings.iter().map(|it| it.severity).collect();
    assert_eq!(severities, [Severity::Error, Severity::Note, Severity::Note], "{:?}", plan.findings);
}
