//! One interface gets an address and loses it, by our netlink code and by nmstate's own kernel mode, in turns. Both read what is
//! there, change it, and verify by reading again.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use ipnet::IpNet;
use serde_json::json;
use tenure_linux::interface::{InterfacePlan, apply, read};
use tenure_linux::netns::NetNs;
use tenure_linux::{Host as Kernel, Settings};
use tenure_testbed::hosts::{Host, Segment};

use crate::host::say;
use crate::measure::{Effort, median};
use crate::report::{Report, Unit};

const INTERFACE: &str = "eth1";
const ADDRESS: &str = "10.10.10.8";

/// The table. Without a peer it has our figures alone.
pub(super) fn measure(effort: Effort, peer: Option<&Path>) -> Result<Report> {
    let rounds = if effort == Effort::Quick { 3 } else { 50 };
    let host = Host::new("measured")?;
    let segment = Segment::new("second")?;
    let _port = segment.connect(&host, INTERFACE, &[])?;
    let mut kernel = Kernel::of(NetNs::open(host.namespace().path())?, Settings::default())?;
    let mut theirs = peer.map(|peer| Peer::start(peer, &host)).transpose()?;
    say(&format!("one interface, {rounds} rounds"));
    let (mut ours, mut nmstate) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for _ in 0..rounds {
        for (given, figures) in [true, false].into_iter().zip(&mut ours) {
            figures.push(nanoseconds(change(&mut kernel, given)?));
        }
        if let Some(theirs) = &mut theirs {
            for (given, figures) in [true, false].into_iter().zip(&mut nmstate) {
                figures.push(theirs.change(given)?);
            }
        }
    }
    let mut report = Report::new("Node addresses: one change of one interface", "nmstate, kernel mode");
    let figures = ["an address is given", "an address is removed"].into_iter().zip(ours).zip(nmstate);
    for ((what, ours), nmstate) in figures {
        let nmstate = (!nmstate.is_empty()).then(|| median(nmstate));
        report.either(what, Some(median(ours)), nmstate, Unit::Nanoseconds, "a few ms");
    }
    report.note("Both read, change and verify. The question whether others on the segment have the address is not in it.");
    Ok(report)
}

fn nanoseconds(took: Duration) -> f64 {
    took.as_secs_f64() * 1e9
}

/// Reads, changes and verifies, as the agent does.
fn change(kernel: &mut Kernel, given: bool) -> Result<Duration> {
    let address: IpNet = format!("{ADDRESS}/24").parse()?;
    let plan = InterfacePlan {
        name: INTERFACE.to_owned(),
        up: true,
        addresses: given.then_some(address).into_iter().collect(),
        recorded: [address].into(),
        ..InterfacePlan::default()
    };
    let began = Instant::now();
    apply(kernel, std::slice::from_ref(&plan))?;
    let differences = plan.differences(read(kernel, INTERFACE)?.as_ref());
    let took = began.elapsed();
    ensure!(differences.is_empty(), "{INTERFACE}: {differences:?}");
    Ok(took)
}

/// The example `kernel` of the helper for NetworkManager, which has the crate `nmstate`.
struct Peer {
    child: std::process::Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

impl Peer {
    fn start(program: &Path, host: &Host) -> Result<Self> {
        let mut command = std::process::Command::new(program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = host.run(move || command.spawn())?.context("cannot start the peer")?;
        let answers = BufReader::new(child.stdout.take().context("the peer has no output")?);
        Ok(Self { child, answers })
    }

    /// How long it says that it took, in nanoseconds.
    fn change(&mut self, given: bool) -> Result<f64> {
        let addresses = given.then(|| json!({"ip": ADDRESS, "prefix-length": 24}));
        let addresses: Vec<_> = addresses.into_iter().collect();
        let ipv4 = json!({"enabled": given, "dhcp": false, "address": addresses});
        let state = json!({"interfaces": [{"name": INTERFACE, "type": "veth", "state": "up", "ipv4": ipv4}]});
        let input = self.child.stdin.as_mut().context("the peer has no input")?;
        writeln!(input, "{state}")?;
        input.flush()?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        line.trim().parse().with_context(|| format!("the peer says {line:?}"))
    }
}
