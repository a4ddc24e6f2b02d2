//! A node whose interfaces `NetworkManager` manages, a neighbour to reach, and calls of the helper as the agent makes them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tenure_testbed::hosts::{Host, HostChild, Port, Segment};
use tenure_testbed::network_manager::ManagedHost;

/// The neighbour's address.
pub const NEIGHBOUR: &str = "192.0.2.1";

/// The program under test, built as for the image.
fn helper() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(tenure_tests::programs::nmstate).clone()
}

/// A node with `eth1` and `eth9` on a segment, and the neighbour. No interface of the node is up or has an address.
pub struct Wire {
    pub node: Host,
    neighbour: Host,
    _segment: Segment,
    _ports: Vec<Port>,
}

impl Wire {
    pub fn new() -> Result<Self> {
        let (node, neighbour, segment) =
            (Host::new("node")?, Host::new("neighbour")?, Segment::new("segment")?);
        let ports = vec![
            segment.connect(&node, "eth1", &[])?,
            segment.connect(&node, "eth9", &[])?,
            segment.connect(&neighbour, "eth0", &["192.0.2.1/24", "2001:db8::1/64"])?,
        ];
        node.ip("link set dev eth1 down\nlink set dev eth9 down")?;
        Ok(Self { node, neighbour, _segment: segment, _ports: ports })
    }

    /// Whether the neighbour reaches this address of the node.
    pub fn reaches(&self, address: &str, limit: Duration) -> bool {
        self.neighbour.ping(address.parse().unwrap(), limit).is_ok()
    }

    /// The addresses of an interface, except for link-local ones, as `IP/LENGTH`, sorted.
    pub fn addresses(&self, interface: &str) -> Result<Vec<String>> {
        let links = self.node.namespace().ip_json(&["address", "show", "dev", interface])?;
        let entries = links[0]["addr_info"].as_array().context("ip shows no list of addresses")?;
        let global = entries.iter().filter(|entry| entry["scope"] == "global");
        let mut addresses: Vec<String> = global
            .map(|entry| format!("{}/{}", entry["local"].as_str().unwrap_or_default(), entry["prefixlen"]))
            .collect();
        addresses.sort();
        Ok(addresses)
    }

    /// The MTU of an interface.
    pub fn mtu(&self, interface: &str) -> Result<Value> {
        Ok(self.node.namespace().ip_json(&["link", "show", "dev", interface])?[0]["mtu"].clone())
    }

    /// Whether the node has an interface of that name.
    pub fn has(&self, interface: &str) -> Result<bool> {
        let links = self.node.namespace().ip_json(&["link", "show"])?;
        Ok(links.as_array().into_iter().flatten().any(|link| link["ifname"] == interface))
    }
}

/// A desired state: `eth1` with these addresses and nothing else.
pub fn with_addresses(addresses: &[&str]) -> Value {
    let list = |is_six: bool| -> Vec<Value> {
        let split = addresses.iter().filter_map(|address| address.split_once('/'));
        split
            .filter(|(ip, _)| ip.contains(':') == is_six)
            .map(|(ip, length)| json!({"ip": ip, "prefix-length": length.parse::<u8>().unwrap()}))
            .collect()
    };
    json!({"interfaces": [{
        "name": "eth1", "type": "ethernet", "state": "up",
        "ipv4": {"enabled": !list(false).is_empty(), "dhcp": false, "address": list(false)},
        "ipv6": {"enabled": true, "dhcp": false, "autoconf": false, "address": list(true)},
    }]})
}

/// What `managed` answers about these interfaces.
pub fn managed(host: &ManagedHost, interfaces: &[&str]) -> Result<Value> {
    let answer = host.host().command(helper()).arg("managed").args(interfaces).succeed()?;
    Ok(serde_json::from_str(&answer)?)
}

/// A change under way.
pub struct Change {
    pub process: HostChild,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Change {
    /// Starts the helper, gives it the order, and keeps its input open.
    pub fn start(host: &ManagedHost, verb: &str, order: &Value, timeout: u32) -> Result<Self> {
        let mut change = Self::start_reading(host, verb, timeout, Stdio::piped())?;
        change.input = change.process.stdin.take();
        change.say(&order.to_string())?;
        Ok(change)
    }

    /// Starts the helper with another process's output, or a file, as its input.
    pub fn start_reading(
        host: &ManagedHost,
        verb: &str,
        timeout: u32,
        input: impl Into<Stdio>,
    ) -> Result<Self> {
        let command = host.host().command(helper()).args([verb, "--timeout", &timeout.to_string()]);
        let mut process = command.stdin(input).stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(process.stdout.take().context("its output is a pipe")?);
        Ok(Self { process, input: None, output })
    }

    fn say(&mut self, line: &str) -> Result<()> {
        Ok(writeln!(self.input.as_mut().context("its input is open")?, "{line}")?)
    }

    /// The next line of the helper; null if it has ended.
    pub fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&line).with_context(|| format!("the helper says {line:?}"))
    }

    /// Tells it the decision; its answer, and whether it ended with success.
    pub fn decide(mut self, word: &str) -> Result<(Value, bool)> {
        self.say(word)?;
        Ok((self.line()?, self.process.wait().success()))
    }
}

/// A whole change that is committed.
pub fn commit(host: &ManagedHost, verb: &str, order: &Value) -> Result<()> {
    let mut change = Change::start(host, verb, order, 300)?;
    assert_eq!(change.line()?, json!({"applied": true}), "{order}");
    assert_eq!(change.decide("commit")?, (json!({"committed": true}), true));
    Ok(())
}

/// The error that an order ends with, before anything is applied.
pub fn refusal(host: &ManagedHost, verb: &str, order: &Value) -> Result<Value> {
    let mut change = Change::start(host, verb, order, 300)?;
    let line = change.line()?;
    assert!(line["error"].is_object(), "{order} is refused: {line}");
    assert!(!change.process.wait().success());
    Ok(line["error"].clone())
}
