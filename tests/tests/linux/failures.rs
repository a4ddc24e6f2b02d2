//! What is repeated, cut short, refused or late: nothing is left over and nothing of others is touched.

use tenure_linux::inventory::Inventory;
use tenure_linux::netns::NetNs;
use tenure_linux::pod::{self, Destroyed, SetupError};
use tenure_linux::reaper;
use tenure_linux::socket::Kind;
use tenure_testbed::wait::PATIENCE;

use super::bed::{A_MOMENT, NODE_V4, NODE_V6, Node, Pod, Result, ip, net};

/// Destroying twice is as good as once; what is gone is seen to be gone.
#[test]
fn a_destroyed_pod_is_gone_and_can_be_destroyed_again() -> Result {
    let mut node = Node::new("node")?;
    let pod = node.pod("pod", &["10.2.0.1", "fd01::1"])?;
    let kept = node.pod("kept", &["10.2.0.2", "fd01::2"])?;
    node.bed.ping(ip("10.2.0.1"), PATIENCE)?;

    let destroyed = pod::destroy(&mut node.host, &pod.plan.identity, None)?;
    assert!(
        matches!(&destroyed, Destroyed::ToTrash(link) if link.index == pod.wired().host_index),
        "{destroyed:?}"
    );
    assert_eq!(node.table(116), ["10.2.0.2", "fd01::2"], "routes are gone before the link is");
    assert!(node.bed.ping(ip("10.2.0.1"), A_MOMENT).is_err());
    assert!(!pod::check(&mut node.host, &pod.namespace, &pod.plan)?.is_empty());
    assert_eq!(pod::destroy(&mut node.host, &pod.plan.identity, None)?, Destroyed::AlreadyGone);
    assert_eq!(Inventory::take(&mut node.host)?.trash.len(), 1);

    assert!(reaper::reap(&mut node.host)?);
    assert!(!pod.has_interface());
    assert_eq!(pod::destroy(&mut node.host, &pod.plan.identity, None)?, Destroyed::AlreadyGone);
    assert!(!pod::check(&mut node.host, &pod.namespace, &pod.plan)?.is_empty());
    assert_eq!(pod::check(&mut node.host, &kept.namespace, &kept.plan)?, []);
    kept.bed.ping(ip(NODE_V4), PATIENCE)?;
    Ok(())
}

#[test]
fn a_pod_whose_namespace_is_gone_is_destroyed_too() -> Result {
    let mut node = Node::new("node")?;
    let pod = node.pod("pod", &["10.2.0.1"])?;
    let identity = pod.plan.identity.clone();
    drop(pod);
    // The kernel takes the link down with the namespace, in its own time; either way there is nothing to complain about.
    pod::destroy(&mut node.host, &identity, None)?;
    assert_eq!(node.table(116), Vec::<String>::new());
    Ok(())
}

#[test]
fn an_error_on_the_host_takes_back_what_was_made_in_the_pod() -> Result {
    let mut node = Node::new("node")?;
    let before = node.links();
    let mut pod = Pod::new("pod", &["10.2.0.1", "fd01::1"])?;
    // Not an address of this node: the kernel refuses the last message of the last batch.
    pod.plan.sources = vec![ip("198.51.100.1")];
    let error = pod::setup(&mut node.host, &pod.namespace, &pod.plan).unwrap_err();
    let text = format!("{error}: {}", std::error::Error::source(&error).unwrap());
    assert!(text.contains("eth0 of container pod-sandbox") && text.contains("on the host"), "{text}");
    assert!(text.contains("add route 10.2.0.1/32") && text.contains("EINVAL"), "{text}");
    assert!(text.contains("Invalid prefsrc"), "the kernel's own words: {text}");
    assert_eq!(node.links(), before);
    assert_eq!(node.table(116), Vec::<String>::new());
    assert!(!pod.has_interface());

    pod.plan.sources = vec![ip(NODE_V4), ip(NODE_V6)];
    node.set_up(&pod)?;
    pod.bed.ping(ip(NODE_V4), PATIENCE)?;
    Ok(())
}

#[test]
fn an_error_inside_the_pod_leaves_nothing_on_the_host() -> Result {
    let mut node = Node::new("node")?;
    let before = node.links();
    // A gateway that is to be reached through itself: the kernel refuses the route behind it.
    let mut pod = Pod::new("pod", &["10.2.0.1", "fd01::1"])?;
    pod.plan.routes.insert(0, net("169.254.1.1/32"));
    let error = pod::setup(&mut node.host, &pod.namespace, &pod.plan).unwrap_err();
    let text = format!("{error}: {}", std::error::Error::source(&error).unwrap());
    assert!(text.contains("inside the pod") && text.contains("via 169.254.1.1"), "{text}");
    assert_eq!(error.kind(), Kind::Invalid);
    assert_eq!(node.links(), before);
    assert!(!pod.has_interface());
    Ok(())
}

#[test]
fn a_repeated_setup_changes_nothing_and_interrupts_nothing() -> Result {
    let mut node = Node::new("node")?;
    let pod = node.pod("pod", &["10.2.0.1", "fd01::1"])?;
    let again = node.set_up(&pod)?;
    assert!(again.repeated);
    assert_eq!((again.host_index, again.pod_index), (pod.wired().host_index, pod.wired().pod_index));
    assert_eq!(node.table(116), ["10.2.0.1", "fd01::1"]);
    Ok(())
}

#[test]
fn what_an_earlier_attempt_left_is_replaced() -> Result {
    let mut node = Node::new("node")?;
    // Destroyed and not reaped yet: name and interface are still taken.
    let mut pod = node.pod("pod", &["10.2.0.1"])?;
    pod::destroy(&mut node.host, &pod.plan.identity, None)?;
    let second = node.set_up(&pod)?;
    assert!(!second.repeated && second.host_index != pod.wired().host_index);
    pod.bed.ping(ip(NODE_V4), PATIENCE)?;

    // In service, but with another plan.
    pod.plan.addresses = vec![ip("10.2.0.9"), ip("fd01::9")];
    let third = node.set_up(&pod)?;
    assert!(!third.repeated);
    assert_eq!(node.table(116), ["10.2.0.9", "fd01::9"]);

    // Broken by someone: a route is missing. It is put back, and the pod keeps its interface.
    node.bed.ip("route delete 10.2.0.9 table 116")?;
    let mended = node.set_up(&pod)?;
    assert!(mended.repeated && mended.host_index == third.host_index);
    assert_eq!(node.table(116), ["10.2.0.9", "fd01::9"]);

    // Cut short before it was marked, as by a crash: in our group, with our name, without an alias.
    let pod = Pod::new("cut-short", &["10.2.0.2"])?;
    let name = pod.plan.host_name(node.host.settings());
    node.bed.ip(&format!(
        "link add {name} group 11600 type veth peer name eth0 netns {}",
        pod.bed.namespace().path().display()
    ))?;
    assert_eq!(Inventory::take(&mut node.host)?.unmarked.len(), 1);
    assert!(!node.set_up(&pod)?.repeated);
    pod.bed.ping(ip(NODE_V4), PATIENCE)?;
    assert_eq!(Inventory::take(&mut node.host)?.unmarked, []);
    Ok(())
}

#[test]
fn names_that_belong_to_others_are_left_alone() -> Result {
    let mut node = Node::new("node")?;
    let pod = Pod::new("pod", &["10.2.0.1"])?;
    let name = pod.plan.host_name(node.host.settings());
    node.bed.ip(&format!("link add {name} type veth peer name other"))?;
    let error = pod::setup(&mut node.host, &pod.namespace, &pod.plan).unwrap_err();
    assert!(matches!(error, SetupError::NameTaken { .. }) && error.kind() == Kind::Exists, "{error}");
    assert_eq!(pod::destroy(&mut node.host, &pod.plan.identity, None)?, Destroyed::AlreadyGone);
    assert!(node.links().contains(&name));
    node.bed.ip(&format!("link delete {name}"))?;

    pod.bed.ip("link add eth0 type veth peer name other")?;
    let before = node.links();
    let error = pod::setup(&mut node.host, &pod.namespace, &pod.plan).unwrap_err();
    assert!(matches!(error, SetupError::InterfaceTaken { .. }) && error.kind() == Kind::Exists, "{error}");
    assert_eq!(node.links(), before);

    let own = NetNs::open(node.bed.namespace().path())?;
    let error = pod::setup(&mut node.host, &own, &pod.plan).unwrap_err();
    assert!(matches!(error, SetupError::HostNamespace { .. }), "{error}");
    Ok(())
}

#[test]
fn a_late_destroy_does_not_touch_the_next_holder_of_the_address() -> Result {
    let mut node = Node::new("node")?;
    let first = node.pod("first", &["10.2.0.1", "fd01::1"])?;
    let second = node.pod("second", &["10.2.0.1", "fd01::1"])?;
    pod::destroy(&mut node.host, &first.plan.identity, None)?;
    pod::destroy(&mut node.host, &first.plan.identity, None)?;
    reaper::reap(&mut node.host)?;
    assert_eq!(pod::check(&mut node.host, &second.namespace, &second.plan)?, []);
    node.bed.ping(ip("10.2.0.1"), PATIENCE)?;
    node.bed.ping(ip("fd01::1"), PATIENCE)?;
    Ok(())
}
