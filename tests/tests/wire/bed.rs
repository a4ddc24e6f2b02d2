//! A node whose kernel thread is driven by hand, and pods for it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use tenure_agent::node::{Action, Event, Found, Job, Link, Look, WireJob, Wiring};
use tenure_agent::wire::Wirer;
use tenure_agent::{HoldKey, Pod as PodName};
use tenure_handles::SystemClock;
use tenure_ipam::{Addresses, Cidr};
use tenure_linux::netns::NetNs;
use tenure_linux::{Host, Settings};
use tenure_testbed::hosts::{self, Mounts, NetworkNamespace, Port, Segment};
use tenure_testbed::wait::PATIENCE;

pub type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

pub const NODE_V4: &str = "192.0.2.1";
pub const NODE_V6: &str = "2001:db8::1";

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub fn cidrs(blocks: &[&str]) -> BTreeSet<Cidr> {
    blocks.iter().map(|block| block.parse().unwrap()).collect()
}

/// A machine with an uplink.
pub struct Machine {
    pub bed: hosts::Host,
    _uplink: (Segment, Port),
}

impl Machine {
    pub fn new(name: &str) -> Result<Self> {
        let bed = hosts::Host::new(name)?;
        let wire = Segment::new("wire")?;
        let port = wire.connect(&bed, "uplink", &[&format!("{NODE_V4}/24"), &format!("{NODE_V6}/64")])?;
        bed.route("default", ip("192.0.2.254"))?;
        // The kernel takes a moment until it accepts packets for the address that it has.
        bed.ping(ip(NODE_V6), PATIENCE)?;
        Ok(Self { bed, _uplink: (wire, port) })
    }

    pub fn host(&self) -> Host {
        host(&self.bed.namespace().path())
    }

    /// Starts the kernel's thread, as an agent does.
    pub fn start(&self) -> Node {
        let (tell, events) = mpsc::channel();
        let tell = move |event| drop(tell.send(event));
        let wirer = Wirer::start(self.host(), self.host(), SystemClock, tell).unwrap();
        let Ok(Event::Kernel(found)) = events.recv_timeout(PATIENCE) else { panic!("nothing was found") };
        Node { wirer, events, found, jobs: 0 }
    }

    /// The lines of `ip -json ARGS`.
    pub fn ip(&self, args: &[&str]) -> Vec<serde_json::Value> {
        self.bed.namespace().ip_json(args).unwrap().as_array().unwrap().clone()
    }

    /// Names of all links but the machine's own.
    pub fn links(&self) -> Vec<String> {
        let links = self.ip(&["link", "show"]);
        let mut names: Vec<String> =
            links.iter().map(|link| link["ifname"].as_str().unwrap().to_owned()).collect();
        names.retain(|name| name != "lo" && name != "uplink");
        names.sort();
        names
    }

    /// Destinations in a table, of both families.
    pub fn table(&self, id: u32) -> Vec<String> {
        let routes = self.routes(&["table", &id.to_string()]);
        let mut found: Vec<String> = routes.iter().map(|it| it["dst"].as_str().unwrap().to_owned()).collect();
        found.sort();
        found
    }

    /// Routes of both families.
    pub fn routes(&self, which: &[&str]) -> Vec<serde_json::Value> {
        let show = |family| {
            let args: Vec<&str> =
                [family, "route", "show"].into_iter().chain(which.iter().copied()).collect();
            match self.bed.namespace().ip_json(&args) {
                Ok(routes) => routes.as_array().unwrap().clone(),
                // "FIB table does not exist": nothing was ever in it.
                Err(_) => Vec::new(),
            }
        };
        ["-4", "-6"].map(show).concat()
    }

    /// Waits until it is so.
    pub fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        for _ in 0..PATIENCE.as_millis() / 20 {
            if is_so(self) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("it never came to: {what}");
    }
}

pub fn host(namespace: &std::path::Path) -> Host {
    Host::of(NetNs::open(namespace).unwrap(), Settings::default()).unwrap()
}

/// The kernel's thread of a machine.
pub struct Node {
    pub wirer: Wirer,
    pub events: Receiver<Event>,
    /// What was there at the start.
    pub found: Vec<Found>,
    jobs: u64,
}

impl Node {
    pub fn number(&mut self) -> Job {
        self.jobs += 1;
        Job(self.jobs)
    }

    pub fn next(&self) -> Event {
        self.events.recv_timeout(PATIENCE).expect("every job is answered")
    }

    pub fn job(&mut self, pod: &Pod) -> WireJob {
        pod.job(self.number())
    }

    pub fn wire(&mut self, pod: &Pod) -> Link {
        let job = self.job(pod);
        self.wirer.carry_out(Action::Wire(job.clone()));
        match self.next() {
            Event::Wired { job: done, link } if done == job.job => link,
            other => panic!("{other:?}"),
        }
    }

    pub fn unwire(&mut self, pod: &Pod) {
        let job = self.number();
        self.wirer.carry_out(Action::Unwire { job, key: pod.key.clone(), pod: pod.named.clone() });
        assert_eq!(self.next(), Event::Unwired { job });
    }

    pub fn inspect(&mut self, pod: &Pod) -> Vec<String> {
        let job = self.job(pod);
        self.wirer.carry_out(Action::Inspect(job.clone()));
        match self.next() {
            Event::Inspected { job: done, differences } if done == job.job => differences,
            other => panic!("{other:?}"),
        }
    }

    /// Looks; all that was given before is done by then.
    pub fn look(&mut self, interfaces: &[&Pod], namespaces: &[&Pod]) -> Look {
        let job = self.number();
        let interfaces = interfaces.iter().map(|pod| pod.key.clone()).collect();
        let namespaces = namespaces.iter().map(|pod| (pod.key.clone(), pod.netns())).collect();
        self.wirer.carry_out(Action::Look { job, interfaces, namespaces });
        match self.next() {
            Event::Looked { job: done, look } if done == job => look,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until all that was given before is done.
    pub fn settle(&mut self) {
        self.look(&[], &[]);
    }

    pub fn repair(&mut self, pods: &[&Pod]) {
        let holds = pods.iter().map(|pod| (pod.key.clone(), pod.addresses)).collect();
        self.wirer.carry_out(Action::Repair(holds));
        self.settle();
    }

    pub fn export(&mut self, blocks: &[&str]) {
        self.wirer.carry_out(Action::Export(cidrs(blocks)));
        self.settle();
    }

    pub fn remote(&mut self, blocks: &[(&str, &[&str])]) {
        let blocks: BTreeMap<IpAddr, BTreeSet<Cidr>> =
            blocks.iter().map(|(via, blocks)| (ip(via), cidrs(blocks))).collect();
        self.wirer.remote(blocks);
        self.settle();
    }
}

/// A pod: a namespace as a runtime makes it.
pub struct Pod {
    namespace: NetNs,
    pub bed: hosts::Host,
    pub key: HoldKey,
    pub named: PodName,
    pub addresses: Addresses,
    pub mtu: Option<u32>,
}

impl Pod {
    pub fn new(name: &str, addresses: &[&str]) -> Result<Self> {
        let namespace = NetNs::make()?;
        let bed =
            hosts::Host::in_namespace(NetworkNamespace::open(name, &path_of(&namespace))?, Mounts::default());
        let mut held = Addresses { ipv4: None, ipv6: None };
        for address in addresses {
            match ip(address) {
                IpAddr::V4(address) => held.ipv4 = Some(address),
                IpAddr::V6(address) => held.ipv6 = Some(address),
            }
        }
        let named = PodName { namespace: "shop".into(), name: name.into(), uid: String::new() };
        let key = HoldKey::new("k8s", format!("{name}-sandbox"), "eth0")?;
        Ok(Self { namespace, bed, key, named, addresses: held, mtu: None })
    }

    pub fn job(&self, job: Job) -> WireJob {
        let wiring = Wiring { netns: self.netns(), mtu: self.mtu, mac: None };
        WireJob {
            job,
            key: self.key.clone(),
            pod: self.named.clone(),
            addresses: self.addresses,
            reached: true,
            wiring,
        }
    }

    /// Where its namespace is found, also by other processes.
    pub fn netns(&self) -> String {
        path_of(&self.namespace).to_str().unwrap().to_owned()
    }

    pub fn mtu(&self) -> u64 {
        let links = self.bed.namespace().ip_json(&["link", "show", "eth0"]).unwrap();
        links[0]["mtu"].as_u64().unwrap()
    }
}

fn path_of(namespace: &NetNs) -> PathBuf {
    PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), namespace.as_raw_fd()))
}
