//! The gateway's program itself, as a container runs it: with `NET_ADMIN` and nothing more, and `/proc/sys` for reading.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use nix::sys::signal::Signal;
use tenure_api::coil::Egress;
use tenure_api::coil::egress::{EgressClient, EgressClients, EgressSpec};
use tenure_controller_testbed::server;
use tenure_handles::{Clock as _, SystemClock};
use tenure_linux::conntrack;
use tenure_linux::egress::{Datapath, SourcePort};
use tenure_localapi::{LocalApi, Server};
use tenure_testbed::hosts::HostChild;
use tenure_testbed::wait::{PATIENCE, until};
use tenure_tests::egress::{Bed, CLIENT, GATEWAY, OUTSIDE, both, ip, traffic};
use tenure_tests::reference;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bed-gateway");
/// What a container runtime does.
const CONTAINER: &str = "mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys && \
    exec setpriv --bounding-set -all,+net_admin --inh-caps -all,+net_admin --no-new-privs \"$0\" \"$@\"";
const NAMESPACE: &str = "default";

/// A bed with an API server, a prepared gateway and a connected client.
struct Stage {
    bed: Bed,
    api: LocalApi,
    client: Client,
    directory: tempfile::TempDir,
}

impl Stage {
    async fn new() -> Result<Self> {
        let bed = Bed::new()?;
        bed.prepare(&mut Datapath::bpf()?)?;
        bed.connect(&mut Datapath::bpf()?, &Bed::plan(SourcePort::Fixed))?;
        for address in OUTSIDE {
            traffic::answer(&bed.outside, ip(address))?;
        }
        let api = server(7).await;
        Ok(Self { bed, client: api.client(), api, directory: tempfile::tempdir()? })
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("api.sock")
    }

    async fn serve_api(&self) -> Result<Server> {
        Ok(Server::unix(self.api.clone(), self.socket()).await?)
    }

    /// Starts the program.
    fn start(&self, arguments: &[&str]) -> Result<HostChild> {
        let child = self
            .bed
            .gateway
            .command("sh")
            .args(["-c", CONTAINER, PROGRAM, "--api-socket"])
            .arg(self.socket())
            .args(arguments)
            .env("COIL_POD_NAMESPACE", NAMESPACE)
            .env("COIL_EGRESS_NAME", "nat")
            .env("COIL_POD_ADDRESSES", GATEWAY.join(","))
            .stderr(Stdio::inherit())
            .spawn()?;
        Ok(child)
    }

    /// Starts it and waits until it is ready.
    fn start_ready(&self, arguments: &[&str]) -> Result<HostChild> {
        let child = self.start(arguments)?;
        self.until_ready("ready");
        Ok(child)
    }

    fn until_ready(&self, text: &str) {
        until(&format!("the gateway to be {text:?}"), || {
            let (status, said) = self.ask(8081, "/readyz")?;
            (status == 200 && said.starts_with(text)).then_some(())
        });
    }

    /// A page, asked for from the node as a kubelet does.
    fn ask(&self, port: u16, page: &str) -> Option<(u16, String)> {
        let to: SocketAddr = (ip(GATEWAY[0]), port).into();
        let mut stream =
            self.bed.node.run(|| TcpStream::connect_timeout(&to, Duration::from_secs(1))).ok()?.ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        write!(stream, "GET {page} HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        Some((head.get(9..12)?.parse().ok()?, body.to_owned()))
    }

    fn metric(&self, name: &str) -> Option<u64> {
        let (_, text) = self.ask(8080, "/metrics")?;
        assert_eq!(reference::metrics::wrong(&text), Vec::<String>::new());
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    }

    /// Says that a node has these clients.
    async fn list(&self, node: &str, pods: &[(&str, Vec<String>)]) -> Result<()> {
        let mut egress = Egress::new("nat", EgressSpec::default());
        egress.metadata.namespace = Some(NAMESPACE.to_owned());
        let client = |(name, addresses): &(&str, Vec<String>)| EgressClient {
            namespace: "default".to_owned(),
            pod: (*name).to_owned(),
            uid: format!("uid-of-{name}"),
            addresses: addresses.clone(),
        };
        let object = EgressClients::of(&egress, node, pods.iter().map(client).collect())?;
        let (objects, name) = (self.objects(), object.name_any());
        if objects.get_opt(&name).await?.is_none() {
            objects.create(&PostParams::default(), &object).await?;
        } else {
            objects.patch(&name, &PatchParams::default(), &Patch::Merge(&object)).await?;
        }
        Ok(())
    }

    async fn forget(&self, node: &str) -> Result<()> {
        self.objects().delete(&format!("nat.{node}"), &DeleteParams::default()).await?;
        Ok(())
    }

    fn objects(&self) -> Api<EgressClients> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Every family gets through.
    fn all_get_through(&self) -> Result<()> {
        for (outside, gateway) in OUTSIDE.into_iter().zip(GATEWAY) {
            let seen = traffic::stream(&self.bed.client, ip(outside), 100_000)?;
            anyhow::ensure!(seen == ip(gateway), "the outside sees {seen}");
        }
        Ok(())
    }

    fn nobody_gets_through(&self) -> Result<bool> {
        let mut refused = true;
        for outside in OUTSIDE {
            refused &= traffic::cannot_stream(&self.bed.client, ip(outside))?;
        }
        Ok(refused)
    }
}

fn texts(addresses: [&str; 2]) -> Vec<String> {
    addresses.map(str::to_owned).to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_net_admin_alone_it_serves_whom_objects_list_and_nobody_else() -> Result<()> {
    let stage = Stage::new().await?;
    let _api = stage.serve_api().await?;
    let child = stage.start_ready(&[])?;
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()))?;
    let rights = status.lines().find(|line| line.starts_with("CapEff")).context("there are rights")?;
    assert!(rights.ends_with("0000000000001000"), "NET_ADMIN and nothing more: {rights}");
    assert!(stage.nobody_gets_through()?, "nobody is a client");
    assert!(stage.metric("tenure_gateway_dropped_packets_total{reason=\"not_a_client\"}") > Some(0));

    stage.list("a", &[("web", texts(CLIENT))]).await?;
    stage.until_ready("ready: 2 addresses");
    stage.all_get_through()?;
    assert_eq!(stage.metric("tenure_gateway_datapath{datapath=\"bpf\"}"), Some(1));
    assert!(stage.metric("tenure_gateway_bytes_total{direction=\"received\"}") > Some(200_000));
    assert!(stage.metric("tenure_gateway_bytes_total{direction=\"sent\"}") > Some(200_000));
    assert!(stage.metric("tenure_gateway_connections_limit") > Some(0));
    assert_eq!(stage.metric("coil_egress_client_pod_count{namespace=\"default\",egress=\"nat\"}"), Some(1));

    stage.list("a", &[]).await?;
    stage.until_ready("ready: 0 addresses");
    assert!(stage.nobody_gets_through()?, "it is no client any more");
    stage.list("b", &[("web", texts(CLIENT)), ("odd", vec![GATEWAY[0].to_owned()])]).await?;
    stage.until_ready("ready: 2 addresses");
    stage.all_get_through()?;
    assert_eq!(stage.metric("tenure_gateway_unusable_addresses"), Some(1), "the gateway's own address");
    stage.forget("b").await?;
    stage.until_ready("ready: 0 addresses");
    assert!(stage.nobody_gets_through()?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_moves_keeps_its_tunnel_in_each_order_of_events() -> Result<()> {
    let stage = Stage::new().await?;
    let _api = stage.serve_api().await?;
    stage.list("a", &[("web", texts(CLIENT))]).await?;
    let _child = stage.start_ready(&[])?;
    let socket = traffic::socket(&stage.bed.client, ip(OUTSIDE[0]))?;
    let datagram = || traffic::datagram(&socket, 100);
    datagram()?;
    // To another node, which says so first; and back, with nobody saying anything for a moment.
    stage.list("b", &[("web", texts(CLIENT))]).await?;
    datagram()?;
    stage.forget("a").await?;
    datagram()?;
    stage.list("b", &[]).await?;
    datagram()?;
    std::thread::sleep(Duration::from_millis(300));
    datagram()?;
    stage.list("a", &[("web", texts(CLIENT))]).await?;
    datagram()?;
    // To another pod of the same node, while the first one is still listed and after that.
    stage.list("a", &[("web", texts(CLIENT)), ("next", texts(CLIENT))]).await?;
    stage.list("a", &[("next", texts(CLIENT))]).await?;
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(500));
        datagram()?;
    }
    let dropped = "tenure_gateway_dropped_packets_total";
    for reason in ["not_a_client", "no_such_client", "refused"] {
        assert_eq!(stage.metric(&format!("{dropped}{{reason=\"{reason}\"}}")), Some(0), "{reason}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_ready_when_the_first_list_is_complete_and_serves_on_without_the_api_server() -> Result<()> {
    let stage = Stage::new().await?;
    stage.list("a", &[("web", texts(CLIENT))]).await?;
    let _child = stage.start(&[])?;
    let said = until("the program to say what it waits for", || stage.ask(8081, "/readyz"));
    assert_eq!(said, (503, "waiting for the first list of clients\n".to_owned()));
    assert_eq!(stage.ask(8081, "/healthz"), Some((200, "ok\n".to_owned())));
    assert!(stage.nobody_gets_through()?, "nobody knows who is a client");
    let api = stage.serve_api().await?;
    stage.until_ready("ready: 2 addresses");
    stage.all_get_through()?;
    api.stop().await;
    until("the watch to fail", || (stage.metric("tenure_gateway_watch_failing") == Some(1)).then_some(()));
    stage.all_get_through()?;
    assert_eq!(stage.ask(8081, "/readyz").map(|(status, _)| status), Some(200));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn told_to_stop_it_is_unready_first_and_ends_when_connections_have() -> Result<()> {
    let stage = Stage::new().await?;
    let _api = stage.serve_api().await?;
    stage.list("a", &[("web", texts(CLIENT))]).await?;
    let child = stage.start_ready(&["--grace-period", "60s"])?;
    let to = SocketAddr::new(ip(OUTSIDE[0]), traffic::PORT);
    let mut stream = stage.bed.client.run(|| TcpStream::connect(to))??;
    let mut seen = [0; 40];
    stream.read_exact(&mut seen)?;
    child.signal(Signal::SIGTERM)?;
    until("it to be unready", || stage.ask(8081, "/readyz").filter(|(status, _)| *status == 503));
    until("it to look at connections", || {
        stage.ask(8081, "/readyz").filter(|(_, said)| said.contains("1 connections are open"))
    });
    stage.all_get_through()?;
    stream.write_all(b"still here")?;
    let mut back = [0; 10];
    stream.read_exact(&mut back)?;
    assert!(child.try_wait().is_none(), "a connection is open");
    drop(stream);
    let ended = child.wait_for(PATIENCE).context("it ends when connections have")?;
    assert!(ended.success(), "{ended}");
    // What it left serves until the pod is gone, and a second one takes over. With no time for anybody it ends at once.
    stage.all_get_through()?;
    let second = stage.start_ready(&["--grace-period", "1s"])?;
    second.signal(Signal::SIGTERM)?;
    assert!(second.wait_for(PATIENCE).is_some_and(|ended| ended.success()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_program_and_its_successor_interrupt_nothing() -> Result<()> {
    let stage = Stage::new().await?;
    let _api = stage.serve_api().await?;
    stage.list("a", &[("web", texts(CLIENT))]).await?;
    let first = stage.start_ready(&[])?;
    let to = SocketAddr::new(ip(OUTSIDE[1]), traffic::PORT);
    let mut stream = stage.bed.client.run(|| TcpStream::connect(to))??;
    let mut seen = [0; 40];
    stream.read_exact(&mut seen)?;
    // Datagrams go there and back all the time, each with a number, and none may be missing.
    let socket = traffic::socket(&stage.bed.client, ip(OUTSIDE[0]))?;
    traffic::datagram(&socket, 10)?;
    socket.set_read_timeout(Some(Duration::from_millis(500)))?;
    let stop = std::sync::atomic::AtomicBool::new(false);
    let (sent, lost) = std::thread::scope(|scope| -> Result<(u32, u32)> {
        let sending = scope.spawn(|| count_lost(&socket, &stop));
        let restart = || -> Result<()> {
            first.kill()?;
            for _ in 0..2 {
                let next = stage.start_ready(&[])?;
                std::thread::sleep(Duration::from_millis(200));
                next.kill()?;
            }
            let _last = stage.start_ready(&[])?;
            Ok(())
        };
        let restarted = restart();
        stop.store(true, std::sync::atomic::Ordering::SeqCst);
        restarted?;
        sending.join().map_err(|_| anyhow::anyhow!("sending panicked"))?
    })?;
    assert!(sent > 20 && lost == 0, "{lost} of {sent} are lost");
    stream.write_all(b"still here")?;
    let mut back = [0; 10];
    stream.read_exact(&mut back)?;
    Ok(())
}

fn count_lost(socket: &UdpSocket, stop: &std::sync::atomic::AtomicBool) -> Result<(u32, u32)> {
    let (mut sent, mut lost, mut buffer) = (0_u32, 0, [0; 100]);
    while !stop.load(std::sync::atomic::Ordering::SeqCst) {
        sent += 1;
        socket.send(&sent.to_be_bytes())?;
        loop {
            match socket.recv(&mut buffer) {
                Ok(44) if buffer[40..44] == sent.to_be_bytes() => break,
                Ok(_) => {}
                Err(_) => {
                    lost += 1;
                    break;
                }
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok((sent, lost))
}

fn say(figures: &str) {
    // Nobody misses it where it cannot be written.
    let _ = writeln!(std::io::stderr(), "1,000 clients: {figures}");
}

/// Memory that a process has, in KiB.
fn resident(pid: i32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("there is a size")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_clients_are_served_at_once() -> Result<()> {
    let stage = Stage::new().await?;
    let _api = stage.serve_api().await?;
    let child = stage.start_ready(&[])?;
    let empty = resident(child.id())?;
    let names: Vec<String> = (0..999).map(|number| format!("pod-{number}")).collect();
    let mut pods: Vec<(&str, Vec<String>)> = names
        .iter()
        .enumerate()
        .map(|(number, name)| {
            let addresses =
                vec![format!("10.7.{}.{}", number / 250, number % 250 + 1), format!("fd07::{number:x}")];
            (name.as_str(), addresses)
        })
        .collect();
    pods.push(("web", texts(CLIENT)));
    for (number, part) in pods.chunks(250).enumerate() {
        stage.list(&format!("node-{number}"), part).await?;
    }
    let began = SystemClock.elapsed();
    stage.until_ready("ready: 2000 addresses");
    let took = SystemClock.elapsed().saturating_sub(began);
    stage.all_get_through()?;
    let full = resident(child.id())?;
    say(&format!("served {took:?} after the last was listed; {empty} KiB with none, {full} KiB with all"));
    assert!(full.saturating_sub(empty) < 10_000, "{empty} KiB, then {full} KiB");
    // All are there when a successor starts.
    child.kill()?;
    let began = SystemClock.elapsed();
    let _next = stage.start_ready(&[])?;
    let took = SystemClock.elapsed().saturating_sub(began);
    say(&format!("a successor is ready after {took:?}"));
    stage.all_get_through()?;
    let found = conntrack::survey(&stage.bed.gateway_namespace()?, &both(GATEWAY))?;
    assert!(found.all >= 2, "{found:?}");
    Ok(())
}
