//! `tenure offset POOL OFFSET|ADDRESS`: which address of a `NodeIPPool` an offset stands for, and the other way round.

use anyhow::{Context, Result};
use clap::Args;
use kube::ResourceExt;
use serde::Serialize;
use tenure_api::nmstate::{NodeIPPool, NodeRange};
use tenure_ipam::Address;

use crate::node_pools::NodePools;
use crate::query::QueryOptions;
use crate::snapshot::Snapshot;
use crate::table::{self, Output};

/// The options of the verb.
#[derive(Args, Debug)]
pub(crate) struct OffsetOptions {
    #[command(flatten)]
    query: QueryOptions,
    /// A NodeIPPool
    pool: String,
    /// An offset, or an address of the pool
    #[arg(value_name = "OFFSET|ADDRESS")]
    what: String,
}

/// An offset and its address, as `tenure offset -o json` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    pool: String,
    offset: String,
    address: String,
    /// `taken`, `promised`, `cooling`, `excluded` or `free`, as the pool's record says.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
}

/// Runs the verb.
pub(crate) async fn run(options: OffsetOptions) -> Result<Output> {
    let source = options.query.source().await?;
    let client = source.client()?;
    let mut snapshot = Snapshot::empty(crate::snapshot::now());
    snapshot.node_pools = NodePools::read(client).await?;
    let answer = answer(&snapshot.node_pools, &options.pool, &options.what)?;
    Output::either(options.query.output, &answer, || text(&answer))
}

fn answer(known: &NodePools, name: &str, what: &str) -> Result<Answer> {
    let names = || table::list(known.pools.iter().map(ResourceExt::name_any));
    let pool = known.pools.iter().find(|pool| pool.name_any() == name);
    let pool = pool.with_context(|| format!("there is no NodeIPPool \"{name}\"; there are {}", names()))?;
    let range = NodeRange::of(&pool.spec.range).with_context(|| format!("NodeIPPool \"{name}\""))?;
    let (offset, address) = match (what.parse::<u128>(), what.parse::<Address>()) {
        (Ok(offset), _) => (offset, range.address(offset)?),
        (_, Ok(address)) => (range.offset(address)?, address),
        _ => anyhow::bail!(
            "\"{what}\" is neither an offset nor an address; accepted are 0 to {} and {} to {}",
            range.size() - 1,
            range.first(),
            range.last()
        ),
    };
    let holders = known.holders();
    let holder = holders.get(&(name.to_owned(), address)).and_then(|all| all.first());
    Ok(Answer {
        pool: name.to_owned(),
        offset: offset.to_string(),
        address: address.to_string(),
        state: state(pool, &range, offset, address),
        node: holder.map(|it| it.node.to_owned()),
        policy: holder.map(|it| it.policy.to_owned()),
    })
}

/// What the record of a pool says of an offset.
pub(crate) fn state(pool: &NodeIPPool, range: &NodeRange, offset: u128, address: Address) -> &'static str {
    let status = pool.status.clone().unwrap_or_default();
    let is = |it: &i64| u128::try_from(*it) == Ok(offset);
    let kept = status.kept.iter().any(|it| is(&it.offset));
    if kept || status.promised.iter().any(|it| is(&it.offset)) {
        "promised"
    } else if range.decode(&status).offsets.contains(&offset) {
        "taken"
    } else if !range.is_usable(address) {
        "excluded"
    } else if status.cooling.iter().any(|it| it.offsets.iter().any(is)) {
        "cooling"
    } else {
        "free"
    }
}

fn text(answer: &Answer) -> String {
    let holder = match (&answer.node, &answer.policy) {
        (Some(node), Some(policy)) => format!(" by node {node} (policy {policy})"),
        _ => String::new(),
    };
    format!(
        "offset {} of NodeIPPool {} is {}: {}{holder}\n",
        answer.offset, answer.pool, answer.address, answer.state
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    pub(crate) fn known() -> NodePools {
        let pool = serde_json::from_value(json!({
            "apiVersion": "nmstate.io/v1", "kind": "NodeIPPool", "metadata": {"name": "traffic-1"},
            "spec": {"range": {"cidr": "10.10.10.0/24", "start": "10.10.10.1", "end": "10.10.10.10", "exclude": ["10.10.10.4"]}},
            "status": {"allocated-offsets": [0, 7], "cooling": [{"until": "2026-11-17T19:00:00Z", "offsets": [1]}]},
        }));
        let enactment = serde_json::from_value(json!({
            "apiVersion": "nmstate.io/v1beta1", "kind": "NodeNetworkConfigurationEnactment",
            "metadata": {"name": "node01.static-ip", "labels": {"nmstate.io/policy": "static-ip", "nmstate.io/node": "node01"}},
            "status": {"ippool": {"traffic-1": {"allocated": ["10.10.10.8"]}}},
        }));
        NodePools { pools: vec![pool.unwrap()], enactments: vec![enactment.unwrap()], generated: Vec::new() }
    }

    #[test]
    fn an_offset_is_an_address_and_the_other_way_round() {
        let known = known();
        for (what, said) in [
            (
                "7",
                "offset 7 of NodeIPPool traffic-1 is 10.10.10.8: taken by node node01 (policy static-ip)\n",
            ),
            (
                "10.10.10.8",
                "offset 7 of NodeIPPool traffic-1 is 10.10.10.8: taken by node node01 (policy static-ip)\n",
            ),
            ("3", "offset 3 of NodeIPPool traffic-1 is 10.10.10.4: excluded\n"),
            ("1", "offset 1 of NodeIPPool traffic-1 is 10.10.10.2: cooling\n"),
            ("9", "offset 9 of NodeIPPool traffic-1 is 10.10.10.10: free\n"),
        ] {
            assert_eq!(text(&answer(&known, "traffic-1", what).unwrap()), said);
        }
    }

    #[test]
    fn what_is_no_offset_is_refused_with_what_would_be() {
        let known = known();
        let said = |pool: &str, what: &str| format!("{:#}", answer(&known, pool, what).unwrap_err());
        assert!(said("p", "1").starts_with("there is no NodeIPPool \"p\"; there are traffic-1"));
        assert!(said("traffic-1", "10").contains("accepted is 0 to 9"));
        assert!(said("traffic-1", "x").ends_with("accepted are 0 to 9 and 10.10.10.1 to 10.10.10.10"));
    }
}
