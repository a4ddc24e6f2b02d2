//! Two hosts on one segment, each with an agent, a pod and a BIRD.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::IpAddr;
use std::path::PathBuf;

use tenure_testbed::binaries::{Binaries, Program};
use tenure_testbed::hosts::{HostChild, Port, Segment};
use tenure_testbed::wait::PATIENCE;

use crate::document::{Variant, configuration};
use tenure_tests::agent::{Cluster, Machine, Pod};

/// The hosts of one segment.
pub struct Pair<'a> {
    pub left: Node<'a>,
    pub right: Node<'a>,
    _segment: Segment,
}

/// A host with a block and a pod.
pub struct Node<'a> {
    pub machine: Machine<'a>,
    pub addresses: Vec<IpAddr>,
    pub pod: Pod,
    number: u8,
    bird: Option<HostChild>,
    files: tempfile::TempDir,
    _port: Port,
}

impl<'a> Pair<'a> {
    pub fn new(cluster: &'a Cluster) -> Self {
        let segment = Segment::new("segment").unwrap();
        let [left, right] = [1, 2].map(|number| Node::new(cluster, number, &segment));
        Self { left, right, _segment: segment }
    }

    pub fn start_bird(&mut self, variant: Variant) {
        self.left.start_bird(variant);
        self.right.start_bird(variant);
    }

    /// That each pod reaches the other one, over both families.
    pub fn assert_reached(&self) {
        for (from, to) in [(&self.left, &self.right), (&self.right, &self.left)] {
            assert_eq!(to.addresses.len(), 2, "{:?}", to.addresses);
            for address in &to.addresses {
                if let Err(error) = from.pod.network.ping(*address, PATIENCE) {
                    panic!("{error}\n{}\n{}", from.state(), to.state());
                }
            }
        }
    }
}

impl<'a> Node<'a> {
    fn new(cluster: &'a Cluster, number: u8, segment: &Segment) -> Self {
        let mut machine = Machine::new(cluster);
        let own = [format!("198.51.100.{number}/24"), format!("2001:db8:100::{number}/64")];
        let port = segment.connect(&machine.host, "eth0", &[&own[0], &own[1]]).unwrap();
        machine.start();
        let pod = machine.pod(&format!("pod{number}"));
        let addresses = machine.add(&pod);
        Self { machine, addresses, pod, number, bird: None, files: tempfile::tempdir().unwrap(), _port: port }
    }

    fn start_bird(&mut self, variant: Variant) {
        let binaries = Binaries::locate(Program::ROUTING).unwrap();
        let [file, control, pid, log] =
            ["bird.conf", "bird.ctl", "bird.pid", "bird.log"].map(|name| self.file(name));
        let mut text = configuration(variant);
        if self.number == 2 {
            // The document shows the first node's side of a session.
            text = text.replace("local 198.51.100.1", "local 198.51.100.2");
            text = text.replace("neighbor 198.51.100.2", "neighbor 198.51.100.1");
        }
        std::fs::write(&file, text).unwrap();
        let log = File::create(log).unwrap();
        let command = self.machine.host.command(binaries.path(Program::Bird).unwrap());
        let command = command.arg("-f").arg("-c").arg(file).arg("-s").arg(control).arg("-P").arg(pid);
        self.bird = Some(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap());
    }

    fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// How a packet from here to an address goes: `via GATEWAY`, `dev INTERFACE` or `unreachable`.
    pub fn way_to(&self, address: IpAddr) -> String {
        match self.machine.host.namespace().ip_json(&["route", "get", &address.to_string()]) {
            Err(error) if error.to_string().contains("No route to host") => "unreachable".into(),
            Err(error) => panic!("{error}"),
            Ok(route) => match (route[0]["type"].as_str(), route[0]["gateway"].as_str()) {
                (Some("unreachable"), _) => "unreachable".into(),
                (_, Some(gateway)) => format!("via {gateway}"),
                _ => format!("dev {}", route[0]["dev"]),
            },
        }
    }

    /// An address next to one of the pod's, which nobody has.
    pub fn neighbours(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().map(|address| match address {
            IpAddr::V4(v4) => IpAddr::V4((u32::from(*v4) ^ 9).into()),
            IpAddr::V6(v6) => IpAddr::V6((u128::from(*v6) ^ 9).into()),
        })
    }

    /// The destinations that BIRD learned from the other host, of both families.
    pub fn learned(&self) -> BTreeSet<String> {
        let namespace = self.machine.host.namespace();
        let routes = ["-4", "-6"]
            .map(|family| namespace.ip_json(&[family, "route", "show", "proto", "bird"]).unwrap());
        let routes = routes.iter().flat_map(|routes| routes.as_array().unwrap());
        let learned = routes.filter(|route| route["gateway"].is_string());
        learned.map(|route| route["dst"].as_str().unwrap().to_owned()).collect()
    }

    /// What a person would look at.
    pub fn state(&self) -> String {
        let run = |program: &str, arguments: &[&str]| {
            let output = self.machine.host.command(program).args(arguments).output().unwrap();
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
        };
        let control = self.file("bird.ctl").display().to_string();
        let bird = |question: &str| {
            run("birdc", &[&["-s", &control][..], &question.split(' ').collect::<Vec<_>>()].concat())
        };
        let ended = self.bird.as_ref().and_then(HostChild::try_wait);
        let log = std::fs::read_to_string(self.file("bird.log")).unwrap_or_default();
        let parts = [
            format!("--- {}; BIRD ended: {ended:?}", self.machine.name),
            log,
            bird("show protocols"),
            bird("show route table all"),
            run("ip", &["route", "show", "table", "119"]),
            run("ip", &["route"]),
            run("ip", &["-6", "route"]),
        ];
        parts.join("\n")
    }
}
