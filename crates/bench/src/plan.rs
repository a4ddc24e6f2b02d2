//! The controller's plan after one event, beside a plan that looks at everything, in clusters of several sizes.
//!
//! Nothing is read or written: a world is built, its plans are carried out on it until nothing is left to do, and then one
//! thing happens at a time. Only [`Planner::plan`] is measured.

mod apply;
mod cluster;
mod happening;

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::ValueEnum;

use cluster::Cluster;
use happening::Happening;

use crate::measure::{Effort, median};
use crate::report::{Report, Unit};

/// So long is measured for each kind of event at each size, unless there are enough rounds before.
const BUDGET: Duration = Duration::from_millis(1_500);
/// Rounds for each kind of event.
const ROUNDS: usize = 100;
/// Rounds at least, however long they take.
const LEAST: usize = 3;

/// A part of the controller. Claims are given blocks only where Coil's part plans, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PartName {
    /// Pools, blocks and requests
    Coil,
    /// Claims
    Claims,
    /// Ranges and slices
    Whereabouts,
}

/// The plans of one kind of event at one size, in nanoseconds.
struct Measured {
    one_event: Vec<f64>,
    everything: f64,
}

/// All figures of plans.
pub(crate) fn measure(effort: Effort, parts: &[PartName]) -> Result<Report> {
    let sizes: &[usize] = match effort {
        Effort::Quick => &[500, 1_000],
        Effort::Full => &[500, 1_000, 2_000, 5_000],
    };
    let mut figures: Vec<Vec<Measured>> = Vec::new();
    for size in sizes {
        let mut cluster = Cluster::build(*size, parts)?;
        figures.push(Happening::ALL.iter().map(|it| rounds(&mut cluster, *it)).collect::<Result<_>>()?);
    }
    Ok(report(sizes, &figures))
}

fn rounds(cluster: &mut Cluster, happening: Happening) -> Result<Measured> {
    let (mut one_event, start) = (Vec::new(), Instant::now());
    for round in 0..ROUNDS {
        if round >= LEAST && start.elapsed() > BUDGET {
            break;
        }
        one_event.push(plan_after(cluster, happening, false)?);
    }
    Ok(Measured { one_event, everything: plan_after(cluster, happening, true)? })
}

/// Lets it happen, plans, and settles all that follows.
fn plan_after(cluster: &mut Cluster, happening: Happening, everything: bool) -> Result<f64> {
    cluster.rest()?;
    let undo = happening.happen(cluster)?;
    if everything {
        cluster.planner.look_at_all();
    }
    let start = Instant::now();
    let writes = cluster.planner.plan(&cluster.world, cluster.now);
    let took = start.elapsed();
    drop(writes);
    undo(cluster);
    cluster.settle()?;
    Ok(nanoseconds(took))
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn nanoseconds(took: Duration) -> f64 {
    took.as_nanos() as f64
}

fn report(sizes: &[usize], figures: &[Vec<Measured>]) -> Report {
    let last = sizes.last().copied().unwrap_or_default();
    let mut columns = vec!["after".to_owned()];
    columns.extend(sizes.iter().map(|size| format!("p50, {size} nodes")));
    columns.push(format!("p99, {last} nodes"));
    columns.extend(["everything", "ratio", "exponent", "target"].map(str::to_owned));
    let mut report = Report::of_columns("The controller's plan after one event", &columns);
    let everything = figures.last().map(|all| median(all.iter().map(|it| it.everything).collect()));
    let everything = everything.unwrap_or(f64::NAN);
    for (number, happening) in Happening::ALL.iter().enumerate() {
        let of_sizes: Vec<&Vec<f64>> = figures.iter().map(|all| &all[number].one_event).collect();
        let medians: Vec<f64> = of_sizes.iter().map(|rounds| median((*rounds).clone())).collect();
        let mut cells = vec![happening.name().to_owned()];
        cells.extend(medians.iter().map(|median| Unit::Nanoseconds.show(*median)));
        cells.push(Unit::Nanoseconds.show(of_sizes.last().map_or(f64::NAN, |rounds| percentile_99(rounds))));
        cells.push(Unit::Nanoseconds.show(everything));
        cells.push(format!("{:.0}×", everything / medians.last().copied().unwrap_or(f64::NAN)));
        cells.push(format!("{:.2}", exponent(sizes, &medians)));
        cells.push("< 1 ms, flat".to_owned());
        report.cells(&cells);
    }
    report.note(
        "A node has 10 blocks and ledgers, 4 claims and 20 pods. An exponent of 0 is flat, one of 1 grows with the cluster.",
    );
    report
}

fn percentile_99(rounds: &[f64]) -> f64 {
    let mut sorted = rounds.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = (sorted.len() * 99).div_ceil(100).saturating_sub(1);
    sorted.get(place).copied().unwrap_or(f64::NAN)
}

/// The slope of the logarithm of the time over that of the size, by least squares.
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub(crate) fn exponent(sizes: &[usize], medians: &[f64]) -> f64 {
    let points: Vec<(f64, f64)> =
        sizes.iter().zip(medians).map(|(size, median)| ((*size as f64).ln(), median.ln())).collect();
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let (over, under) = points.iter().fold((0.0, 0.0), |(over, under), point| {
        (over + (point.0 - x) * (point.1 - y), under + (point.0 - x).powi(2))
    });
    over / under
}
