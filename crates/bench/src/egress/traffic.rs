//! Throughput and latency of flows, by every way in turn.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use tenure_linux::egress::Datapath;
use tenure_linux::egress::gateway::Gateway;
use tenure_testbed::hosts::Host;

use super::bed::{Bed, FAMILIES, Way};
use super::echo::{CHUNK, SOON, usual_congestion_control};
use super::name;
use crate::host::process::processor_time;
use crate::host::sampled::{nanoseconds, percentile};
use crate::measure::{Effort, median};
use crate::report::{Report, Unit};

/// How many flows there are at once.
const FLOWS: [usize; 2] = [1, 100];
/// How long flows run before their bytes count.
const WARM_UP: Duration = Duration::from_millis(100);
const TARGET: &str = "≥ 0.9× plain";

/// How long it takes.
pub(super) struct Size {
    rounds: usize,
    /// Of a round of throughput.
    window: Duration,
    /// Of a round of latency.
    asking: Duration,
}

impl Size {
    fn of(effort: Effort) -> Self {
        let (rounds, window, asking) = match effort {
            Effort::Quick => (1, 150, 50),
            Effort::Full => (5, 350, 100),
        };
        Self { rounds, window: Duration::from_millis(window), asking: Duration::from_millis(asking) }
    }

    /// On a machine that is emulated.
    pub(super) fn emulated(effort: Effort) -> Self {
        let rounds = if effort == Effort::Quick { 1 } else { 5 };
        Self { rounds, window: Duration::from_secs(1), asking: Duration::from_millis(300) }
    }
}

/// Somebody who is measured: a way through a bed.
struct Party<'a> {
    name: String,
    bed: &'a Bed,
    way: Way,
}

/// What the rounds of one party gave.
#[derive(Default)]
struct Figures {
    /// Bytes a second that were there and came back.
    rates: Vec<f64>,
    /// Nanoseconds of processor time of both ends for a gigabyte there and back: other programs hardly matter for it.
    costs: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
}

/// The table of all ways.
pub(super) fn measure(effort: Effort, datapaths: &mut [Datapath]) -> Result<Report> {
    let mut report = None;
    measure_by(&Size::of(effort), datapaths, |row| {
        match &mut report {
            None => {
                report = Some(Report::of_columns("Egress: flows from a client to the outside and back", row));
            }
            Some(report) => report.cells(row),
        }
        Ok(())
    })?;
    report.context("there are rows")
}

/// Measures all ways, and tells the rows of the table, the names of its columns first.
pub(super) fn measure_by(
    size: &Size,
    datapaths: &mut [Datapath],
    mut tell: impl FnMut(&[String]) -> Result<()>,
) -> Result<()> {
    let mut beds: Vec<(String, Bed, Gateway)> = Vec::new();
    for datapath in datapaths {
        let bed = Bed::new()?;
        bed.prepare(datapath)?;
        let gateway = bed.serve(&[])?;
        bed.connect(datapath)?;
        beds.push((format!("egress, {}", name(datapath)), bed, gateway));
    }
    let (_, first, _) = beds.first().context("there is a datapath")?;
    let mut parties = vec![
        Party { name: "plain routing".into(), bed: first, way: Way::Plain },
        Party { name: "masquerading router".into(), bed: first, way: Way::Router },
    ];
    parties.extend(beds.iter().map(|(name, bed, _)| Party { name: name.clone(), bed, way: Way::Egress }));
    let mut columns = vec!["what".to_owned()];
    columns.extend(parties.iter().map(|party| party.name.clone()));
    for (egress, _, _) in &beds {
        columns.extend([format!("{egress}: ratio to plain"), format!("{egress}: ratio to router")]);
    }
    columns.push("target".into());
    tell(&columns)?;
    for family in 0..FAMILIES {
        for flows in FLOWS {
            let figures = rounds(size, &parties, family, flows)?;
            let family = ["IPv4", "IPv6"][family];
            let what = format!("{family}, {flows} {}", if flows == 1 { "flow" } else { "flows" });
            for row in rows(&what, &figures) {
                tell(&row)?;
            }
        }
    }
    Ok(())
}

/// Lets everybody have rounds in turn.
fn rounds(size: &Size, parties: &[Party<'_>], family: usize, flows: usize) -> Result<Vec<Figures>> {
    let mut figures: Vec<Figures> = parties.iter().map(|_| Figures::default()).collect();
    for _ in 0..size.rounds {
        for (party, figures) in parties.iter().zip(&mut figures) {
            let (to, echo) = party.bed.target(party.way, family)?;
            let failed = || format!("{flows} flows to {to}, {}", party.name);
            let (rate, cost) = throughput(&party.bed.client, to, flows, size.window).with_context(failed)?;
            echo.settle()?;
            let taken = latency(&party.bed.client, to, flows, size.asking).with_context(failed)?;
            echo.settle()?;
            figures.rates.push(rate);
            figures.costs.push(cost);
            figures.p50.push(percentile(&taken, 50));
            figures.p99.push(percentile(&taken, 99));
            party.bed.check(party.way, family)?;
        }
    }
    Ok(figures)
}

fn rows(what: &str, figures: &[Figures]) -> Vec<Vec<String>> {
    type Rounds = fn(&Figures) -> &Vec<f64>;
    let rows: [(&str, Unit, Rounds, &str); 4] = [
        ("throughput", Unit::BytesPerSecond, |of| &of.rates, TARGET),
        ("processor time a GB", Unit::Nanoseconds, |of| &of.costs, ""),
        ("round trip, p50", Unit::Nanoseconds, |of| &of.p50, TARGET),
        ("round trip, p99", Unit::Nanoseconds, |of| &of.p99, ""),
    ];
    let row = |(kind, unit, rounds, target): (&str, Unit, Rounds, &str)| {
        let medians: Vec<f64> = figures.iter().map(|of| median(rounds(of).clone())).collect();
        let mut cells = vec![format!("{what}: {kind}")];
        cells.extend(medians.iter().map(|value| unit.show(*value)));
        let (peers, ours) = medians.split_at(2.min(medians.len()));
        for (ours, peer) in ours.iter().flat_map(|ours| peers.iter().map(move |peer| (ours, peer))) {
            let ratio = if matches!(unit, Unit::Nanoseconds) { peer / ours } else { ours / peer };
            cells.push(format!("{ratio:.2}×"));
        }
        cells.push(target.to_owned());
        cells
    };
    rows.map(row).to_vec()
}

/// Checks that the client reaches the outside by egress.
pub(super) fn reach(bed: &Bed) -> Result<()> {
    for family in 0..FAMILIES {
        let (to, echo) = bed.target(Way::Egress, family)?;
        latency(&bed.client, to, 1, Duration::ZERO).with_context(|| format!("reach {to}"))?;
        echo.settle()?;
        bed.check(Way::Egress, family)?;
    }
    Ok(())
}

fn connect(host: &Host, to: SocketAddr, flows: usize) -> Result<Vec<TcpStream>> {
    let connect = || -> io::Result<Vec<TcpStream>> {
        let connected = (0..flows).map(|_| {
            let stream = TcpStream::connect_timeout(&to, SOON)?;
            usual_congestion_control(&stream)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(SOON))?;
            Ok(stream)
        });
        connected.collect()
    };
    host.run(connect)?.context("connect")
}

/// Bytes a second that all flows together send and get back, and the processor time that a gigabyte takes.
fn throughput(host: &Host, to: SocketAddr, flows: usize, window: Duration) -> Result<(f64, f64)> {
    let streams = connect(host, to, flows)?;
    let back: Vec<AtomicU64> = streams.iter().map(|_| AtomicU64::new(0)).collect();
    let sum = || back.iter().map(|of| of.load(Ordering::Relaxed)).sum::<u64>();
    let idle = || back.iter().filter(|of| of.load(Ordering::Relaxed) == 0).count();
    let (bytes, took, worked) = thread::scope(|scope| {
        for (stream, back) in streams.iter().zip(&back) {
            scope.spawn(move || send(stream));
            scope.spawn(move || receive(stream, back));
        }
        thread::sleep(WARM_UP);
        let (before, start, own) = (sum(), Instant::now(), std::process::id().cast_signed());
        let worked = processor_time(own);
        thread::sleep(window);
        let more = processor_time(own).and_then(|(after, _)| Ok(after - worked?.0));
        let counted = (sum() - before, start.elapsed(), more);
        // On a busy machine, some of many threads come late.
        while idle() > 0 && start.elapsed() < SOON {
            thread::sleep(Duration::from_millis(1));
        }
        for stream in &streams {
            // Ends both of its threads; if it ended before, they have.
            let _ = stream.shutdown(Shutdown::Both);
        }
        counted
    });
    ensure!(idle() == 0, "{} of {flows} flows got nothing back", idle());
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let bytes = bytes as f64;
    Ok((bytes / took.as_secs_f64(), worked? / (bytes / 1e9)))
}

fn send(mut stream: &TcpStream) {
    let chunk = vec![7; CHUNK];
    while stream.write_all(&chunk).is_ok() {}
}

fn receive(mut stream: &TcpStream, back: &AtomicU64) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        back.fetch_add(length as u64, Ordering::Relaxed);
    }
}

/// How long each byte took there and back, of flows that send one at a time.
fn latency(host: &Host, to: SocketAddr, flows: usize, asking: Duration) -> Result<Vec<f64>> {
    let streams = connect(host, to, flows)?;
    let taken = thread::scope(|scope| {
        let threads: Vec<_> = streams.iter().map(|stream| scope.spawn(move || ask(stream, asking))).collect();
        let joined =
            threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked")));
        joined.map(|taken| Ok(taken??)).collect::<Result<Vec<_>>>()
    })?;
    Ok(taken.concat())
}

fn ask(mut stream: &TcpStream, asking: Duration) -> io::Result<Vec<f64>> {
    let (mut taken, mut byte) = (Vec::new(), [7]);
    let start = Instant::now();
    loop {
        let before = Instant::now();
        stream.write_all(&byte)?;
        stream.read_exact(&mut byte)?;
        taken.push(nanoseconds(&before.elapsed()));
        if start.elapsed() >= asking {
            return Ok(taken);
        }
    }
}
