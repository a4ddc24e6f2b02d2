//! Leaving a node: all of ours goes, and nothing of others.

use tenure_linux::{export, remote, removal, sysctl};

use super::bed::{Node, Result, ip, net};

/// Rules, routes of three tables, and links.
fn facts(node: &Node) -> Vec<String> {
    let mut facts = node.links();
    for arguments in [&["-4", "rule", "show"][..], &["-6", "rule", "show"]] {
        facts.extend(node.ip(arguments).iter().map(ToString::to_string));
    }
    for table in [116, 119, 254] {
        facts.extend(node.table(table).iter().map(|route| format!("{route} in {table}")));
    }
    facts
}

#[test]
fn a_removal_leaves_the_kernel_as_it_was_and_can_be_repeated() -> Result {
    let mut node = Node::unprepared("node")?;
    let parameters = ["ipv4/ip_forward", "ipv6/conf/all/forwarding", "ipv6/conf/uplink/accept_ra"];
    let values = |node: &Node| -> Result<Vec<String>> {
        parameters.iter().map(|name| Ok(node.bed.run(|| sysctl::read(name))??)).collect()
    };
    // Of somebody else, in our table and where our rule could be.
    node.bed.ip("route add 10.9.0.0/24 dev uplink table 116 proto static")?;
    node.bed
        .command("ip")
        .args(["rule", "add", "from", "10.0.0.0/8", "priority", "2000", "table", "116"])
        .succeed()?;
    let (before, parameters_before) = (facts(&node), values(&node)?);

    let prepared = node.host.prepare()?;
    let pod = node.pod("pod", &["10.2.0.1", "fd01::1"])?;
    export::sync(&mut node.host, &[net("10.2.0.0/24"), net("fd01::/120")].into())?;
    remote::sync(&mut node.host, &[(net("10.3.0.0/24"), ip("192.0.2.7"))].into())?;
    assert_ne!(facts(&node), before);
    assert_eq!(removal::in_service(&mut node.host)?.len(), 1, "a pod has an interface");

    let removed = removal::remove(&mut node.host);
    assert_eq!(removed.failed, [""; 0]);
    assert_eq!((removed.links.len(), removed.rule, removed.kept.len()), (1, true, 0), "{removed:?}");
    assert!(!pod.has_interface());
    assert_eq!(facts(&node), before);
    for changed in prepared.parameters.iter().rev() {
        assert!(node.bed.run(|| changed.undo())??, "{changed}");
        assert!(!node.bed.run(|| changed.undo())??, "{changed} is changed back once");
    }
    assert_eq!(values(&node)?, parameters_before);

    let again = removal::remove(&mut node.host);
    assert_eq!(again, removal::Removed::default());
    Ok(())
}

#[test]
fn the_rule_stays_while_pods_of_coil_need_it() -> Result {
    let mut node = Node::new("node")?;
    node.bed.ip("link add coil0 type veth peer name coil1\nlink set coil0 alias COIL:pod up")?;
    let removed = removal::remove(&mut node.host);
    assert!(!removed.rule && removed.kept.len() == 1 && removed.failed.is_empty(), "{removed:?}");
    node.bed.ip("link delete coil0")?;
    let removed = removal::remove(&mut node.host);
    assert!(removed.rule && removed.kept.is_empty(), "{removed:?}");
    Ok(())
}

#[test]
fn a_parameter_that_somebody_has_set_since_stays() -> Result {
    let mut node = Node::unprepared("node")?;
    let prepared = node.host.prepare()?;
    let changed =
        prepared.parameters.iter().find(|it| it.name.ends_with("accept_ra")).ok_or("no parameter")?;
    node.bed.sysctl("net.ipv6.conf.uplink.accept_ra", "0")?;
    assert!(!node.bed.run(|| changed.undo())??);
    assert_eq!(node.bed.run(|| sysctl::read(&changed.name))??, "0");
    Ok(())
}
