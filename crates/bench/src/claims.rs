//! Claims: addresses that outlive pods, on a real API server with every write on the disk. How many get their addresses in a
//! second beside what the API server could do at all; what an ADD with a claim takes beside one without; and how long a move
//! takes from its signal to the target's route, beside two writes of which the second waits to hear of the first.
//!
//! | module | owns |
//! |---|---|
//! | `cluster` | the API server, and what is prepared on it |
//! | `node` | a host with an agent |
//! | `heard` | a watch that tells when the last claim has its addresses |
//! | `crowd` | many claims at once, and plain writes of the same size |
//! | `adds` | ADDs with a claim and without |
//! | `moves` | moves between two hosts |
//! | `rows` | the table |

mod adds;
mod cluster;
mod crowd;
mod heard;
mod moves;
mod node;
mod rows;
mod size;

use anyhow::{Context as _, Result};

use crate::host::programs::Programs;
use crate::host::say;
use crate::measure::Effort;
use crate::report::Measured;
use adds::Adds;
use cluster::Cluster;
use crowd::Crowd;
use moves::Moves;
use node::Node;
use size::Size;

/// The name of the cluster's default network.
const NETWORK: &str = "measured";
/// The namespace of claims and of the pods that have them: its addresses are of a pool of its own.
const CLAIMED: &str = "claimed";
/// The namespace of other pods.
const PLAIN: &str = "default";
/// The nodes.
const NODES: [&str; 2] = ["measured-0", "measured-1"];

/// All figures, in one table.
pub(crate) fn measure(effort: Effort, claims: Option<usize>, programs: &Programs) -> Result<Measured> {
    let runtime = tokio::runtime::Runtime::new()?;
    let size = Size::of(effort, claims);
    say("start an API server");
    let cluster = Cluster::start(runtime.handle(), programs)?;
    let mut figures = Figures::default();
    let failure = figures.measure(&cluster, programs, &size).err();
    Ok(Measured { reports: vec![rows::report(&size, &figures)], failure })
}

/// What was measured so far.
#[derive(Debug, Default)]
struct Figures {
    crowd: Crowd,
    adds: Adds,
    moves: Moves,
}

impl Figures {
    fn measure(&mut self, cluster: &Cluster, programs: &Programs, size: &Size) -> Result<()> {
        self.crowd.measure(cluster, size).with_context(|| cluster.last_words())?;
        let controller = cluster.controller()?;
        let mut nodes =
            NODES.iter().map(|name| Node::start(cluster, programs, name)).collect::<Result<Vec<_>>>()?;
        let [here, there] = &mut nodes[..] else { anyhow::bail!("there are two nodes") };
        let adds = self.adds.measure(cluster, here, size);
        adds.with_context(|| format!("{}\n{}", cluster.last_words(), here.tail()))?;
        let moves = self.moves.measure(cluster, [here, there], size);
        moves.with_context(|| format!("{}\n{}\n{}", cluster.last_words(), here.tail(), there.tail()))?;
        controller.stop()?;
        Ok(())
    }
}
