//! Cloud alias addresses: what pods and moves cost on a fake of Google's cloud, beside the sequence of the prototype (one pod at a time
//! on each machine) on the same fake; and an ADD from the warm set beside one of an ordinary pool.
//!
//! | module | owns |
//! |---|---|
//! | `bed` | the API server, the controller, the fake and what it counts |
//! | `node` | a machine of the fake, with an agent |
//! | `crowd` | pods and moves by Tenure |
//! | `prototype` | the same by a plain loop |
//! | `adds` | ADDs from the warm set and from an ordinary pool |

mod adds;
mod bed;
mod crowd;
mod node;
mod prototype;

use std::time::Duration;

use anyhow::Result;

use crate::host::say;
use crate::measure::Effort;
use crate::report::{Report, Unit};
use adds::Adds;
use bed::{Bed, Cost};
use prototype::Prototype;

/// So many pods start, and move, at once.
const CROWDS: [usize; 3] = [1, 10, 100];
/// The pool without a warm set.
const COLD: &str = "cold";
/// The pool with one.
const WARM: &str = "warm";
/// So many free addresses each machine of that pool has.
const WARM_SET: usize = 64;

/// All figures.
pub(crate) fn measure(effort: Effort) -> Result<Report> {
    let update = match effort {
        Effort::Full => Duration::from_secs(3),
        Effort::Quick => Duration::from_millis(300),
    };
    tokio::runtime::Runtime::new()?.block_on(measure_at(effort, update))
}

async fn measure_at(effort: Effort, update: Duration) -> Result<Report> {
    let bed = Bed::start(update).await?;
    let adds = Adds::measure(&bed, effort).await?;
    let prototype = Prototype::new(&bed).await?;
    let title = format!("Cloud alias addresses: an update takes {update:?}");
    let mut report = Report::new(&title, "prototype's loop");
    for pods in CROWDS {
        say(&format!("pods at once, and their moves: {pods}"));
        let [started, moved] = crowd::measure(&bed, pods).await?;
        say("the same, one after the other");
        let [loop_started, loop_moved] = prototype.measure(&bed, pods).await?;
        let target = if pods == 100 { "≤ 2" } else { "" };
        let s = if pods == 1 { "" } else { "s" };
        rows(&mut report, &format!("{pods} pod{s} at once on a machine"), &started, &loop_started, target);
        rows(&mut report, &format!("{pods} move{s} to another machine"), &moved, &loop_moved, "2");
    }
    adds.rows(&mut report);
    Ok(report)
}

fn rows(report: &mut Report, what: &str, ours: &Cost, theirs: &Cost, updates: &str) {
    let mut row = |figure: &str, ours, theirs, unit, target: &str| {
        report.less_is_better(&format!("{what}: {figure}"), ours, theirs, unit, target);
    };
    row("updates", ours.updates, theirs.updates, Unit::Count, updates);
    row("until all have their addresses", ours.took, theirs.took, Unit::Nanoseconds, "");
    row("calls to the Compute API", ours.calls, theirs.calls, Unit::Count, "");
}
