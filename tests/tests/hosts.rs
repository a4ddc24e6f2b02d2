//! Test hosts on the real kernel: they reach each other, their packets are seen, and nothing of them
//! stays, however the test ends. Needs root and iproute2.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use tenure_testbed::hosts::{ArpOperation, Direction, Host, HostError, Ip, NetworkNamespace, Segment, link};
use tenure_testbed::wait::PATIENCE;

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// Long enough for an answer to arrive that must not.
const A_MOMENT: Duration = Duration::from_millis(300);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Polls until `gone` is true: the kernel takes namespaces down in the background.
fn eventually(what: &str, mut gone: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if gone() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("{what} did not happen within 30 s");
}

fn has_interface(namespace: &NetworkNamespace, name: &str) -> bool {
    let links = namespace.ip_json(&["link", "show"]).unwrap();
    links.as_array().unwrap().iter().any(|link| link["ifname"] == name)
}

fn is_alive(pid: i32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn two_hosts_on_a_segment_reach_each_other_over_both_families() -> Result {
    let (left, right) = (Host::new("left")?, Host::new("right")?);
    let wire = Segment::new("wire")?;
    wire.connect(&left, "eth0", &["192.0.2.1/24", "2001:db8::1/64"])?;
    wire.connect(&right, "eth0", &["192.0.2.2/24", "2001:db8::2/64"])?;
    left.ping(ip("192.0.2.2"), PATIENCE)?;
    left.ping(ip("2001:db8::2"), PATIENCE)?;
    right.ping(ip("192.0.2.1"), PATIENCE)?;
    Ok(())
}

#[test]
fn a_host_behind_a_routed_link_is_reached_by_way_of_the_router() -> Result {
    let (left, router, right) = (Host::new("left")?, Host::new("router")?, Host::new("right")?);
    link(
        (&left, "up", &["192.0.2.0/31", "2001:db8::/127"]),
        (&router, "l", &["192.0.2.1/31", "2001:db8::1/127"]),
    )?;
    link(
        (&right, "up", &["198.51.100.0/31", "2001:db8:1::/127"]),
        (&router, "r", &["198.51.100.1/31", "2001:db8:1::1/127"]),
    )?;
    left.route("default", ip("192.0.2.1"))?;
    left.route("default", ip("2001:db8::1"))?;
    right.route("default", ip("198.51.100.1"))?;
    right.route("default", ip("2001:db8:1::1"))?;

    let refused = left.ping(ip("198.51.100.0"), A_MOMENT);
    assert!(matches!(refused, Err(HostError::Ping { .. })), "a router that does not forward: {refused:?}");

    router.forward()?;
    let capture = right.capture()?;
    left.ping(ip("198.51.100.0"), PATIENCE)?;
    left.ping(ip("2001:db8:1::"), PATIENCE)?;
    let request =
        capture.wait_for(PATIENCE, |packet| packet.ip().is_some_and(|ip| ip.icmp == Some((8, 0))))?;
    assert_eq!(request.ip().unwrap().hops, 63, "one hop was used up: {request}");
    Ok(())
}

#[test]
fn a_capture_sees_the_arp_request_and_its_reply() -> Result {
    let (left, right) = (Host::new("left")?, Host::new("right")?);
    let wire = Segment::new("wire")?;
    wire.connect(&left, "eth0", &["192.0.2.1/24"])?;
    wire.connect(&right, "eth0", &["192.0.2.2/24"])?;
    let (sender, receiver) = (left.capture()?, right.capture()?);
    left.ping(ip("192.0.2.2"), PATIENCE)?;

    let asked = receiver.wait_for(PATIENCE, |packet| {
        packet.arp().is_some_and(|arp| arp.operation == ArpOperation::Request)
    })?;
    let arp = asked.arp().unwrap();
    assert_eq!((arp.sender.into(), arp.target.into()), (ip("192.0.2.1"), ip("192.0.2.2")));
    assert_eq!((asked.destination.0, asked.direction), ([0xff; 6], Direction::Received));
    assert_eq!(asked.source, arp.sender_mac);

    let answered = sender
        .wait_for(PATIENCE, |packet| packet.arp().is_some_and(|arp| arp.operation == ArpOperation::Reply))?;
    assert_eq!(IpAddr::from(answered.arp().unwrap().sender), ip("192.0.2.2"));
    let sent = sender.stop();
    assert!(sent.iter().any(|packet| packet.direction == Direction::Sent && packet.bytes == asked.bytes));
    assert!(sent.windows(2).all(|pair| pair[0].at <= pair[1].at), "in the order of time");
    Ok(())
}

#[test]
fn a_capture_sees_a_neighbour_solicitation() -> Result {
    let (left, right) = (Host::new("left")?, Host::new("right")?);
    link((&left, "eth0", &["2001:db8::1/64"]), (&right, "eth0", &["2001:db8::2/64"]))?;
    let capture = right.capture()?;
    left.ping(ip("2001:db8::2"), PATIENCE)?;
    let group = IpAddr::from(Ip::solicited_node("2001:db8::2".parse()?));
    capture.wait_for(PATIENCE, |packet| {
        packet.ip().is_some_and(|ip| ip.is_neighbour_solicitation() && ip.destination == group)
    })?;
    Ok(())
}

#[test]
fn what_was_not_on_the_wire_is_not_seen() -> Result {
    let host = Host::new("alone")?;
    let error = host.capture()?.wait_for(A_MOMENT, |_| true).unwrap_err();
    assert!(error.to_string().contains("no such packet in host alone"), "{error}");
    Ok(())
}

#[test]
fn an_unplugged_cable_carries_nothing_until_it_is_plugged_in() -> Result {
    let (left, right) = (Host::new("left")?, Host::new("right")?);
    let wire = Segment::new("wire")?;
    wire.connect(&left, "eth0", &["192.0.2.1/24"])?;
    let port = wire.connect(&right, "eth0", &["192.0.2.2/24"])?;
    left.ping(ip("192.0.2.2"), PATIENCE)?;
    port.unplug()?;
    left.ping(ip("192.0.2.2"), A_MOMENT).unwrap_err();
    port.plug()?;
    left.ping(ip("192.0.2.2"), PATIENCE)?;
    Ok(())
}

#[test]
fn a_closure_runs_in_the_host_and_its_sockets_stay_there() -> Result {
    let (server, client) = (Host::new("server")?, Host::new("client")?);
    link((&server, "eth0", &["192.0.2.1/31"]), (&client, "eth0", &["192.0.2.0/31"]))?;
    let listener = server.run(|| TcpListener::bind("192.0.2.1:80"))??;
    // The listener is used by this thread, which is not in the host.
    let accepting = thread::spawn(move || listener.accept().map(|(_, from)| from.ip()));
    client.run(|| TcpStream::connect("192.0.2.1:80"))??;
    assert_eq!(accepting.join().unwrap()?, ip("192.0.2.0"));
    assert!(TcpListener::bind("192.0.2.1:80").is_err(), "the test itself has stayed outside");
    Ok(())
}

#[test]
fn a_command_sees_the_host_and_only_the_host() -> Result {
    let (host, peer) = (Host::new("island")?, Host::new("peer")?);
    link((&host, "eth7", &[]), (&peer, "eth8", &[]))?;
    let seen = host
        .command("sh")
        .args(["-c", "hostname; echo /sys/class/net/*; touch /run/island; cat /proc/1/comm"])
        .succeed()?;
    // Its own name and interfaces, and as its first process the shell that waits for our end.
    assert_eq!(seen, "island\n/sys/class/net/eth7 /sys/class/net/lo\nsh\n");
    assert!(host.path("/run/island")?.exists() && !Path::new("/run/island").exists(), "a /run of its own");

    let error = host.command("sh").args(["-c", "echo broken >&2; exit 3"]).succeed().unwrap_err();
    assert!(error.to_string().contains("island ended with exit status: 3: broken"), "{error}");
    let error = host.command("/no/such/program").output().unwrap_err();
    assert!(error.to_string().contains("running /no/such/program in host island"), "{error}");
    Ok(())
}

#[test]
fn a_child_is_fed_killed_and_waited_for() -> Result {
    use std::io::{Read, Write};
    let host = Host::new("host")?;
    let mut cat = host.command("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    cat.stdin.take().unwrap().write_all(b"through")?;
    let mut text = String::new();
    cat.stdout.take().unwrap().read_to_string(&mut text)?;
    assert_eq!(text, "through");
    assert!(cat.wait().success());

    let sleep = host.command("sleep").arg("1000").spawn()?;
    assert_eq!(sleep.wait_for(Duration::from_millis(20)), None);
    assert!(!sleep.kill()?.success());
    assert!(!is_alive(sleep.id()));
    sleep.kill()?;
    Ok(())
}

#[test]
fn a_named_namespace_is_seen_in_its_host_and_nowhere_else() -> Result {
    let host = Host::new("node")?;
    let (pod, inside) = host.pod_namespace("pod-of-the-test")?;
    assert_eq!(inside, Path::new("/run/netns/pod-of-the-test"));
    host.ip(&format!("link add veth1 type veth peer name eth0 netns {}", pod.path().display()))?;
    let seen = host.command("ip").args(["-netns", "pod-of-the-test", "-brief", "link"]).succeed()?;
    assert!(seen.contains("eth0"), "{seen}");
    assert!(!inside.exists(), "the machine has no such name");
    Ok(())
}

#[test]
fn everything_is_gone_after_a_drop() -> Result {
    let (stays, goes) = (Host::new("stays")?, Host::new("goes")?);
    link((&stays, "eth0", &[]), (&goes, "eth0", &[]))?;
    // One that outlives its parent inside the host.
    goes.command("sh").args(["-c", "sleep 1000 >/dev/null 2>&1 &"]).succeed()?;
    let child = goes.command("sleep").arg("1000").spawn()?;
    let init = i32::try_from(goes.init_pid()?)?;
    assert!(has_interface(stays.namespace(), "eth0"));

    drop(goes);
    assert!(!is_alive(init) && !is_alive(child.id()), "processes end before the drop does");
    assert!(!child.wait().success());
    eventually("the other end of the cable going with its host", || {
        !has_interface(stays.namespace(), "eth0")
    });
    Ok(())
}

#[test]
fn everything_is_gone_after_a_closure_panicked() -> Result {
    let stays = Host::new("stays")?;
    let (far, pids) =
        (NetworkNamespace::open("stays", &stays.namespace().path())?, std::sync::Mutex::new(vec![]));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let goes = Host::new("goes").unwrap();
        link((&far, "eth0", &[]), (&goes, "eth0", &[])).unwrap();
        pids.lock().unwrap().push(goes.command("sleep").arg("1000").spawn().unwrap().id());
        goes.run(|| panic!("of the closure")).unwrap();
    }));
    assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"of the closure"));
    assert!(pids.into_inner()?.into_iter().all(|pid| !is_alive(pid)));
    eventually("the other end of the cable going with its host", || {
        !has_interface(stays.namespace(), "eth0")
    });
    Ok(())
}

#[test]
fn everything_is_gone_after_the_test_process_was_killed() -> Result {
    const FAR_END: &str = "TENURE_TEST_FAR_END";
    if let Some(path) = std::env::var_os(FAR_END) {
        // The part of the one that is killed: this test, started by itself.
        let goes = Host::new("goes")?;
        link((&NetworkNamespace::open("stays", Path::new(&path))?, "eth0", &[]), (&goes, "eth0", &[]))?;
        let child = goes.command("sleep").arg("1000").spawn()?;
        let text = format!("pids {} {}\n", child.id(), goes.init_pid()?);
        std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes())?;
        loop {
            thread::park();
        }
    }
    let stays = Host::new("stays")?;
    let mut victim = Command::new(std::env::current_exe()?)
        .args(["--exact", "everything_is_gone_after_the_test_process_was_killed", "--nocapture"])
        .env(FAR_END, stays.namespace().path())
        .stdout(Stdio::piped())
        .spawn()?;
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let line = lines.map_while(Result::ok).find(|line| line.contains("pids ")).unwrap();
    let pids: Vec<i32> =
        line.split_once("pids ").unwrap().1.split(' ').map(|pid| pid.parse().unwrap()).collect();
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    assert!(has_interface(stays.namespace(), "eth0"));

    victim.kill()?;
    victim.wait()?;
    eventually("the end of its processes", || !pids.iter().any(|pid| is_alive(*pid)));
    eventually("the end of its namespace", || !has_interface(stays.namespace(), "eth0"));
    Ok(())
}
