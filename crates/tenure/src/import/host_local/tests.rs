use super::*;
use crate::import::plan::plan;

/// A directory as host-local leaves it.
fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    directory
}

fn options(nodes: &[(&str, &Path)], subnets: &[&str]) -> HostLocalOptions {
    HostLocalOptions {
        nodes: nodes.iter().map(|(node, path)| ((*node).to_owned(), (*path).to_owned())).collect(),
        networks: Vec::new(),
        pool: "default".into(),
        subnets: subnets.iter().map(|text| subnet(text).unwrap()).collect(),
        block_size_bits: 4,
    }
}

#[test]
fn files_of_every_age_are_read_and_both_families_reserve_their_blocks() {
    let one = tree(&[
        ("k8s/10.244.1.2", "c1\r\neth0"),
        ("k8s/10.244.1.3", "c2"),
        ("k8s/10.244.1.40", ""),
        ("k8s/fd00::125", "c1\neth0\n"),
        ("k8s/lock", ""),
        ("k8s/last_reserved_ip.0", "10.244.1.3"),
        ("k8s/last_reserved_ip.1", "fd00::2"),
    ]);
    let two = tree(&[("k8s/10.244.2.2", "c3\neth0")]);
    let read =
        read(&options(&[("a", one.path()), ("b", two.path())], &["10.244.0.0/16,fd00::/112"])).unwrap();
    assert_eq!(read.uses[0].holder, r#"container "c1" ("eth0") on node a"#);
    let plan = plan(&read);
    assert_eq!(plan.findings, []);
    let blocks: Vec<(&str, Option<&str>, usize)> = plan
        .blocks
        .iter()
        .map(|it| (it.object.metadata.name.as_deref().unwrap(), it.object.node(), it.used))
        .collect();
    let expected = [("default-16", Some("a"), 2), ("default-18", Some("a"), 2), ("default-32", Some("b"), 1)];
    assert_eq!(blocks, expected, "fd00::125 and 10.244.1.40 are in one block");
}

#[test]
fn an_address_on_two_nodes_and_files_that_cannot_be_understood_are_errors() {
    let one = tree(&[("k8s/10.244.1.2", "c1"), ("k8s/readme", "x")]);
    let two = tree(&[("k8s/10.244.1.2", "c2")]);
    let plan = plan(&read(&options(&[("a", one.path()), ("b", two.path())], &["10.244.0.0/16"])).unwrap());
    let errors: Vec<String> = plan.errors().map(ToString::to_string).collect();
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(
        errors.iter().any(|it| it.contains("k8s/readme: the file is named for no address")),
        "{errors:?}"
    );
    assert!(
        errors.iter().any(|it| it.contains("10.244.1.2 is used twice: by container \"c2\" on node b here")),
        "{errors:?}"
    );
}

#[test]
fn a_block_that_two_nodes_use_is_reserved_for_neither_and_noted() {
    let (one, two) = (tree(&[("k8s/10.244.1.2", "c1")]), tree(&[("k8s/10.244.1.3", "c2")]));
    let plan = plan(&read(&options(&[("a", one.path()), ("b", two.path())], &["10.244.0.0/16"])).unwrap());
    assert_eq!(plan.errors().count(), 0);
    assert_eq!((plan.blocks.len(), plan.blocks[0].object.node()), (1, None));
    assert!(plan.findings[0].problem.contains("used on several nodes: a, b"), "{:?}", plan.findings);
}

#[test]
fn networks_can_be_chosen_and_others_addresses_are_noted() {
    let one = tree(&[("k8s/10.244.1.2", "c1"), ("bridge/192.168.0.2", "c2")]);
    let mut options = options(&[("a", one.path())], &["10.244.0.0/16"]);
    let all = plan(&read(&options).unwrap());
    assert!(
        all.findings[0].problem.contains("192.168.0.2 of container \"c2\" on node a is in no pool"),
        "{:?}",
        all.findings
    );
    options.networks = vec!["k8s".into()];
    assert_eq!(plan(&read(&options).unwrap()).findings, []);
    options.networks = vec!["mistyped".into()];
    assert!(plan(&read(&options).unwrap()).errors().next().is_some());
    options.nodes = vec![("a".into(), "/nowhere/at/all".into())];
    assert!(read(&options).unwrap_err().to_string().contains("/nowhere/at/all"));
}

#[test]
fn flags_say_what_they_accept() {
    assert!(subnet("10.0.0.0/16,10.1.0.0/16").unwrap_err().to_string().contains("one of each family"));
    assert_eq!(subnet("fd00::/112,10.0.0.0/16").unwrap(), subnet("10.0.0.0/16,fd00::/112").unwrap());
    assert!(node("node1").unwrap_err().to_string().contains("NODE=DIRECTORY"));
}
