//! ADDs from the warm set beside ADDs of an ordinary pool, whose addresses are of a block of the node. Both answer another plugin that makes the
//! interface, so each is the address alone, from the plugin's call to its answer.

use std::time::Instant;

use anyhow::Result;
use serde_json::json;

use super::bed::{Bed, Cost, Side};
use super::node::Node;
use super::{WARM, WARM_SET, crowd};
use crate::host::sampled::{nanoseconds, percentile};
use crate::host::say;
use crate::measure::{Effort, median};
use crate::report::{Report, Unit};

/// ADDs of each kind in a round.
const PODS: usize = 20;

/// What was measured; times in nanoseconds.
pub(super) struct Adds {
    warm: Vec<f64>,
    ordinary: Vec<f64>,
    /// As many pods at once as the warm set has addresses.
    crowd: Cost,
}

impl Adds {
    pub(super) async fn measure(bed: &Bed, effort: Effort) -> Result<Self> {
        say("ADDs from the warm set, and ordinary ones");
        let (warm, ordinary) =
            (Node::start(bed, "warm", Some(WARM)).await?, Node::start(bed, "ordinary", None).await?);
        let names = |kind: &str| (0..PODS).map(|number| format!("{kind}-{number}")).collect::<Vec<_>>();
        let [on_warm, on_ordinary] = ["warm", "ordinary"].map(names);
        for (pods, node) in [(&on_warm, &warm), (&on_ordinary, &ordinary)] {
            for pod in pods {
                bed.pod(pod, &node.name, &json!({})).await?;
            }
        }
        let mut figures = [const { Vec::new() }; 2];
        // The first round begins the watches, and brings the ordinary pool's block; it does not count.
        for round in 0..=effort.rounds() {
            warm.until_free(PODS).await?;
            for (figure, (node, pods)) in
                figures.iter_mut().zip([(&warm, &on_warm), (&ordinary, &on_ordinary)])
            {
                let took = add_and_del(node, pods).await?;
                if round > 0 {
                    figure.extend(took);
                }
            }
        }
        let crowd = Self::crowd(bed).await?;
        let [warm, ordinary] = figures;
        Ok(Self { warm, ordinary, crowd })
    }

    async fn crowd(bed: &Bed) -> Result<Cost> {
        let node = Node::start(bed, "crowd", Some(WARM)).await?;
        node.until_free(WARM_SET).await?;
        let pods = (0..WARM_SET).map(|number| (format!("crowd-{number}"), json!({})));
        Ok(bed.cost(Side::Tenure, crowd::start(bed, &node, pods)).await?.0)
    }

    pub(super) fn rows(&self, report: &mut Report) {
        let what = |figure: &str| format!("ADD from the warm set, {figure} (beside: an ordinary pool)");
        let (warm, ordinary) = (median(self.warm.clone()), median(self.ordinary.clone()));
        report.less_is_better(&what("p50"), warm, ordinary, Unit::Nanoseconds, "1×");
        let [warm, ordinary] = [&self.warm, &self.ordinary].map(|times| percentile(times, 99));
        report.less_is_better(&what("p99"), warm, ordinary, Unit::Nanoseconds, "");
        let took = Unit::Nanoseconds.show(self.crowd.took);
        report.fact(
            &format!(
                "{WARM_SET} pods at once on a machine with as many warm: until all have their addresses"
            ),
            &took,
            "",
            "",
        );
    }
}

/// How long each ADD took, one at a time.
async fn add_and_del(node: &Node, pods: &[String]) -> Result<Vec<f64>> {
    let mut took = Vec::new();
    for pod in pods {
        let began = Instant::now();
        node.add(pod).await?;
        took.push(nanoseconds(&began.elapsed()));
    }
    for pod in pods {
        node.del(pod).await?;
    }
    Ok(took)
}
