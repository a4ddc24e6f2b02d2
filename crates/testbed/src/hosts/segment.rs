//! Connections between hosts: a switch, or a cable between two of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::host::address_line;
use super::{Capture, HostError, NetworkNamespace};

/// An Ethernet segment: a bridge in a namespace of its own, with a cable to each connected host.
#[derive(Debug)]
pub struct Segment {
    switch: Arc<NetworkNamespace>,
    next_port: AtomicU32,
}

/// One host's cable to a [`Segment`], at the switch's end.
#[derive(Debug)]
pub struct Port {
    switch: Arc<NetworkNamespace>,
    name: String,
}

impl Segment {
    /// A segment without hosts.
    pub fn new(name: &str) -> Result<Self, HostError> {
        let switch = NetworkNamespace::new(name)?;
        // A switch has no addresses and takes no part in its traffic.
        switch.sysctl("net.ipv6.conf.default.disable_ipv6", "1")?;
        switch.ip("link add bridge type bridge mcast_snooping 0 forward_delay 0\nlink set bridge up")?;
        Ok(Self { switch: Arc::new(switch), next_port: AtomicU32::new(1) })
    }

    /// Connects a host by a new interface with these addresses (`192.0.2.1/24`).
    pub fn connect(
        &self,
        host: &impl AsRef<NetworkNamespace>,
        interface: &str,
        addresses: &[&str],
    ) -> Result<Port, HostError> {
        let name = format!("port{}", self.next_port.fetch_add(1, Ordering::Relaxed));
        let host = host.as_ref();
        host.ip(&format!(
            "link add name {interface} type veth peer name {name} netns {}\n",
            self.switch.path().display()
        ))?;
        // The switch's end first, so that the host's end has a carrier when it comes up.
        self.switch.ip(&format!("link set dev {name} master bridge up"))?;
        host.ip(&up_with(interface, addresses))?;
        Ok(Port { switch: Arc::clone(&self.switch), name })
    }

    /// Records every packet on the segment, once for each port that it passes.
    pub fn capture(&self) -> Result<Capture, HostError> {
        Capture::start(&self.switch)
    }
}

impl Port {
    /// Unplugs the cable: the host keeps its interface, addresses and routes, and loses its carrier.
    pub fn unplug(&self) -> Result<(), HostError> {
        self.switch.ip(&format!("link set dev {} down", self.name))
    }

    /// Plugs the cable in again.
    pub fn plug(&self) -> Result<(), HostError> {
        self.switch.ip(&format!("link set dev {} up", self.name))
    }
}

/// Connects two hosts by a cable; each is given by its interface's name and addresses.
///
/// With addresses of a /31 or /127, or with /32s and [`Host::ip`](super::Host::ip), this is a routed link.
pub fn link(
    left: (&impl AsRef<NetworkNamespace>, &str, &[&str]),
    right: (&impl AsRef<NetworkNamespace>, &str, &[&str]),
) -> Result<(), HostError> {
    let (left_host, right_host) = (left.0.as_ref(), right.0.as_ref());
    left_host.ip(&format!(
        "link add name {} type veth peer name {} netns {}\n",
        left.1,
        right.1,
        right_host.path().display()
    ))?;
    left_host.ip(&up_with(left.1, left.2))?;
    right_host.ip(&up_with(right.1, right.2))
}

fn up_with(interface: &str, addresses: &[&str]) -> String {
    let mut batch = format!("link set dev {interface} up\n");
    batch.extend(addresses.iter().map(|address| address_line(interface, address)));
    batch
}
