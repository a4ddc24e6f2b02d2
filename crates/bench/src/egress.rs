//! Egress: a client's connections through a gateway, beside plain routing between the same namespaces.
//!
//! Client, gateway and the world outside are namespaces of this machine around one that stands for the network between them.
//! The kernel's own Foo-over-UDP is measured too: here where this kernel has it, and otherwise in a virtual machine.
//!
//! | module | owns |
//! |---|---|
//! | `bed` | the namespaces, and the ways through them |
//! | `echo` | who answers outside |
//! | `traffic` | throughput and latency of flows |
//! | `client` | what it takes to make a pod a client |
//! | `adds` | whole ADDs of clients, beside those of other pods |
//! | `crowd` | a gateway of many clients |
//! | `machine` | the flows on another kernel |

mod adds;
mod bed;
mod client;
mod crowd;
mod echo;
mod machine;
mod traffic;

pub(crate) use machine::inside as measure_inside;

use anyhow::{Result, ensure};
use nix::unistd::geteuid;
use tenure_linux::egress::Datapath;

use crate::host::programs::Programs;
use crate::host::say;
use crate::measure::Effort;
use crate::report::Report;

/// All figures, in tables.
pub(crate) fn measure(effort: Effort, programs: &Programs) -> Result<Vec<Report>> {
    ensure!(geteuid().is_root(), "egress is measured in network namespaces, which only root can make");
    let mut datapaths = vec![Datapath::bpf()?];
    let missing = match Datapath::kernel() {
        Ok(kernel) => {
            datapaths.push(kernel);
            None
        }
        Err(missing) => Some(format!("{:#}", anyhow::Error::from(missing))),
    };
    // First of all, as long as this process has little memory that is free already.
    say("a gateway of many clients");
    let crowd = crowd::measure(effort, &mut datapaths)?;
    say("pods become clients");
    let clients = client::measure(effort, &mut datapaths)?;
    say("ADDs of clients and others");
    let adds = adds::measure(effort, programs)?;
    say("flows through every way");
    let mut traffic = traffic::measure(effort, &mut datapaths)?;
    let mut reports = Vec::new();
    if let Some(missing) = missing {
        traffic.note(&format!("Not measured here: Foo-over-UDP of this kernel ({missing})."));
        say("flows in a virtual machine");
        reports.push(machine::measure(effort)?);
    }
    Ok([traffic].into_iter().chain(reports).chain([adds, clients, crowd]).collect())
}

/// A datapath by the name that people know it by.
fn name(datapath: &Datapath) -> &'static str {
    match datapath.name() {
        "bpf" => "BPF",
        _ => "kernel FoU",
    }
}
