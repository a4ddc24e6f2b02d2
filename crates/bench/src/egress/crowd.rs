//! A gateway of many clients: how long until all are served, what one more costs, and how much memory that takes.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Instant;

use anyhow::{Context as _, Result};
use tenure_linux::egress::Datapath;
use tenure_linux::egress::gateway::Gateway;

use super::bed::{Bed, FAMILIES, both};
use super::name;
use super::traffic::reach;
use crate::host::process::resident;
use crate::host::sampled::{count, nanoseconds, percentile};
use crate::measure::{Effort, median};
use crate::report::{Report, Unit};

/// How many clients come one by one after the crowd.
const LATECOMERS: u16 = 50;

/// What a gateway's crowd costs.
struct Crowd {
    start: Vec<f64>,
    serve: Vec<f64>,
    one_more: Vec<f64>,
    /// Before and after the first start, of this whole process.
    memory: [f64; 2],
}

/// The table.
pub(super) fn measure(effort: Effort, datapaths: &mut [Datapath]) -> Result<Report> {
    let (clients, rounds) = match effort {
        Effort::Quick => (100, 1),
        Effort::Full => (1000, 5),
    };
    let mut columns = vec!["what".to_owned()];
    columns.extend(datapaths.iter().map(|datapath| name(datapath).to_owned()));
    columns.push("target".into());
    let title = format!("Egress: a gateway of {clients} clients, each with both families");
    let mut report = Report::of_columns(&title, &columns);
    let crowds: Vec<Crowd> =
        datapaths.iter_mut().map(|datapath| gather(datapath, clients, rounds)).collect::<Result<_>>()?;
    let mut row = |what: &str, unit: Unit, target: &str, value: &dyn Fn(&Crowd) -> f64| {
        let mut cells = vec![what.to_owned()];
        cells.extend(crowds.iter().map(|crowd| unit.show(value(crowd))));
        cells.push(target.to_owned());
        report.cells(&cells);
    };
    let time = Unit::Nanoseconds;
    row("a gateway starts with all of them", time, "", &|crowd| median(crowd.start.clone()));
    row("all of them come at once", time, "", &|crowd| median(crowd.serve.clone()));
    row("one more comes, p50", time, "", &|crowd| percentile(&crowd.one_more, 50));
    row("one more comes, p99", time, "", &|crowd| percentile(&crowd.one_more, 99));
    row("memory of the process before", Unit::Megabytes, "", &|crowd| crowd.memory[0]);
    row("memory of the process with all of them", Unit::Megabytes, "< 30 MB + 1 KB a client", &|crowd| {
        crowd.memory[1]
    });
    let clients = count(clients.into());
    row("memory a client", Unit::Bytes, "< 1 KB", &|crowd| (crowd.memory[1] - crowd.memory[0]) / clients);
    Ok(report)
}

fn gather(datapath: &mut Datapath, clients: u16, rounds: usize) -> Result<Crowd> {
    let bed = Bed::new()?;
    bed.prepare(datapath)?;
    bed.connect(datapath)?;
    let own = i32::try_from(std::process::id()).context("a process has a number")?;
    let all: Vec<IpAddr> = (0..clients).flat_map(addresses).collect();
    let mut crowd = Crowd { start: Vec::new(), serve: Vec::new(), one_more: Vec::new(), memory: [0.0; 2] };
    for round in 0..rounds {
        // A gateway that does nothing has all that is not for its clients.
        let mut gateway = bed.serve(&[])?;
        if round == 0 {
            crowd.memory[0] = resident(own)?;
        }
        let wanted: BTreeSet<IpAddr> = gateway.clients().iter().chain(&all).copied().collect();
        crowd.serve.push(timed(&mut gateway, &wanted)?);
        if round == 0 {
            crowd.memory[1] = resident(own)?;
        }
        reach(&bed)?;
        gateway.stop()?;
        let before = Instant::now();
        let mut gateway = bed.serve(&all)?;
        crowd.start.push(nanoseconds(&before.elapsed()));
        reach(&bed)?;
        let mut wanted = gateway.clients().clone();
        for latecomer in clients..clients + LATECOMERS {
            wanted.extend(addresses(latecomer));
            crowd.one_more.push(timed(&mut gateway, &wanted)?);
        }
        gateway.stop()?;
    }
    Ok(crowd)
}

fn timed(gateway: &mut Gateway, wanted: &BTreeSet<IpAddr>) -> Result<f64> {
    let before = Instant::now();
    gateway.serve(wanted)?;
    Ok(nanoseconds(&before.elapsed()))
}

/// The addresses of a client.
fn addresses(number: u16) -> [IpAddr; FAMILIES] {
    let [high, low] = number.to_be_bytes();
    both([10, 7, high, low], [0xfd07, 0, 0, 0, 0, 0, 0, number])
}
