//! The rows of each page: the same as `-o json` of the verb where there is one.

use std::collections::BTreeMap;

use kube::ResourceExt;
use serde::Serialize;
use serde_json::{Value, json};
use tenure_watch::place;

use super::state::{State, Topic};
use crate::conditions::Condition;
use crate::snapshot::Snapshot;
use crate::{blocks, claims, node, pools};

/// So many rows a page has at most; a search finds the others.
const MOST_ROWS: usize = 5000;

/// A page that is a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page(Topic);

/// The rows of a page by their keys, in the order of these.
pub(super) type Rows = BTreeMap<String, Value>;

impl Page {
    /// The page of a name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(Self(match name {
            "pools" => Topic::Pools,
            "nodes" => Topic::Nodes,
            "claims" => Topic::Claims,
            "egresses" => Topic::Egresses,
            "node-addresses" => Topic::NodeAddresses,
            "aliases" => Topic::Aliases,
            "findings" => Topic::Findings,
            _ => return None,
        }))
    }

    /// The version of what it shows.
    pub(super) fn version(self, state: &State) -> u64 {
        state.version(self.0)
    }

    /// All its rows.
    pub(super) fn rows(self, state: &State) -> Rows {
        let snapshot = &state.snapshot;
        let rows: Vec<(String, Value)> = match self.0 {
            Topic::Pools => {
                let rows = pools::rows(snapshot).into_iter();
                rows.map(|row| (format!("{} {}", row.name, row.kind), value(&row))).collect()
            }
            Topic::Nodes => nodes(snapshot),
            Topic::Claims => {
                let rows = state.claims.iter().map(|claim| claims::row(claim).0);
                rows.map(|row| (place(&row.namespace, &row.name), value(&row))).collect()
            }
            Topic::Egresses => egresses(state),
            Topic::NodeAddresses => node_addresses(snapshot),
            Topic::Aliases => aliases(snapshot),
            Topic::Findings => findings(state),
        };
        rows.into_iter().take(MOST_ROWS).collect()
    }
}

fn value(row: &impl Serialize) -> Value {
    serde_json::to_value(row).unwrap_or_default()
}

/// A node in the list of nodes.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeRow<'a> {
    node: &'a str,
    /// Whether pods get addresses there; absent if its agent does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    ready: Option<bool>,
    version: &'a str,
    blocks: usize,
    held: u64,
    cooling: u64,
    free: u64,
    waiting: usize,
    /// What is not as it should be.
    problems: Vec<String>,
}

fn nodes(snapshot: &Snapshot) -> Vec<(String, Value)> {
    let mut names = snapshot.nodes.clone();
    names.extend(snapshot.agents.keys().cloned());
    let mut owned: BTreeMap<&str, usize> = BTreeMap::new();
    for node in snapshot.blocks.iter().filter_map(|block| block.node()) {
        *owned.entry(node).or_default() += 1;
    }
    let row = |name: &String| {
        let blocks = owned.get(name.as_str()).copied().unwrap_or_default();
        let told = snapshot.agents.get(name);
        let (held, cooling, free) = told.and_then(|told| told.as_ref().ok()).map_or((0, 0, 0), |told| {
            let sum = |of: fn(&tenure_view::Counts) -> u64| {
                told.pools.iter().map(|pool| of(&pool.addresses)).fold(0, u64::saturating_add)
            };
            (told.holds.len() as u64, sum(|it| it.cooling), sum(|it| it.free))
        });
        let mut row = NodeRow {
            node: name,
            ready: None,
            version: "",
            blocks,
            held,
            cooling,
            free,
            waiting: 0,
            problems: Vec::new(),
        };
        match told {
            Some(Ok(told)) => {
                row.ready = Some(told.ready && told.problem.is_none());
                row.version = &told.version;
                row.waiting = told.waiting.len();
                row.problems.extend(told.problem.clone());
                row.problems.extend(told.journal.problem.clone());
                row.problems.extend(told.pools.iter().filter_map(|it| it.problem.clone()));
                let watches = told.api.watches.iter().filter_map(|it| Some((&it.kind, it.problem.as_ref()?)));
                row.problems.extend(watches.map(|(kind, problem)| format!("{kind}: {problem}")));
                let kernel = told.kernel.iter().flat_map(|it| &it.differences);
                row.problems.extend(kernel.map(|it| format!("kernel: {}: {}", it.subject, it.problem)));
            }
            Some(Err(problem)) => row.problems.push(problem.clone()),
            None => row.problems.push("its agent was not asked yet".to_owned()),
        }
        (name.clone(), value(&row))
    };
    names.iter().map(row).collect()
}

fn egresses(state: &State) -> Vec<(String, Value)> {
    let row = |egress: &tenure_api::coil::Egress| {
        let (namespace, name) = (egress.namespace().unwrap_or_default(), egress.name_any());
        let own = state
            .clients
            .iter()
            .filter(|it| it.namespace().as_deref() == Some(&namespace) && it.egress() == Some(name.as_str()));
        let clients: Vec<Value> = own
            .flat_map(|it| it.spec.clients.iter().map(move |client| (it, client)))
            .map(|(it, client)| {
                json!({"pod": place(&client.namespace, &client.pod), "node": it.spec.node_name, "addresses": client.addresses})
            })
            .collect();
        let status = egress.status.clone().unwrap_or_default();
        let conditions: Vec<Condition> = status.conditions.iter().map(Condition::from).collect();
        let row = json!({
            "namespace": namespace, "name": name, "destinations": egress.spec.destinations,
            "replicas": egress.spec.replicas, "serving": status.replicas, "addresses": status.addresses,
            "clients": clients, "conditions": conditions,
        });
        (place(&namespace, &name), row)
    };
    state.egresses.iter().map(row).collect()
}

fn node_addresses(snapshot: &Snapshot) -> Vec<(String, Value)> {
    let row = |held: crate::node_pools::Held<'_>| {
        let row = json!({
            "pool": held.pool, "address": held.address.to_string(), "node": held.node, "policy": held.policy,
            "interface": held.interface, "released": held.released, "kind": held.kind, "object": held.enactment,
        });
        (format!("{} {:032x} {} {}", held.pool, held.address.bits(), held.node, held.enactment), row)
    };
    snapshot.node_pools.held().map(row).collect()
}

fn aliases(snapshot: &Snapshot) -> Vec<(String, Value)> {
    let known = &snapshot.aliases;
    let row = |it: crate::aliases::Recorded<'_>| {
        let range = it.range.to_string();
        let attached = known.nodes.iter().find(|node| node.name_any() == it.record.node);
        let attached = attached.and_then(|node| node.status.as_ref()?.aliases.get(&range));
        let state = match (it.cools(), attached) {
            (true, _) => "cooling",
            (_, Some(alias)) if alias.attached => "attached",
            (_, Some(_)) => "attaching",
            (_, None) => "recorded",
        };
        let row = json!({
            "pool": it.ledger.spec.pool, "range": range, "node": it.record.node, "state": state,
            "pods": it.pods().unwrap_or_default(), "claim": attached.and_then(|it| it.claim.as_deref()),
            "problem": attached.and_then(|it| it.problem.as_deref()),
        });
        (format!("{} {:032x}", it.ledger.spec.pool, it.range.first().bits()), row)
    };
    let troubled = known.nodes.iter().filter_map(|node| {
        let problem = node.status.as_ref()?.problem.as_ref()?;
        let row = json!({"pool": node.spec.pool, "range": "", "node": node.name_any(), "state": "", "pods": [], "problem": problem});
        Some((format!("{} ~{}", node.spec.pool, node.name_any()), row))
    });
    known.records().map(row).chain(troubled).collect()
}

fn findings(state: &State) -> Vec<(String, Value)> {
    let Some(findings) = &state.findings else { return Vec::new() };
    let differences = findings.differences.iter();
    let differences =
        differences.map(|it| (format!("0 {} {} {}", it.kind, it.subject, it.problem), value(it)));
    let unseen = findings.unseen.iter();
    let unseen = unseen.map(|it| (format!("1 {} {}", it.subject, it.reason), value(it)));
    differences.take(MOST_ROWS).chain(unseen).collect()
}

/// Everything about a node: what `tenure node -o json` says, and its blocks and claims in the API.
pub(super) fn node_page(state: &State, name: &str) -> Option<Value> {
    let snapshot = &state.snapshot;
    let told = snapshot.agents.get(name);
    let rows = snapshot.blocks.iter().filter(|block| block.node() == Some(name));
    let rows: Vec<blocks::Row> = rows.map(|block| blocks::row(snapshot, block)).collect();
    if told.is_none() && rows.is_empty() && !snapshot.nodes.contains(name) {
        return None;
    }
    let mut page = match told {
        Some(Ok(told)) => {
            let slices = node::slices(&snapshot.ranges, name);
            value(&node::Shown { node: told, slices: &slices })
        }
        Some(Err(problem)) => json!({"node": name, "unreachable": problem}),
        None => json!({"node": name, "unreachable": "its agent was not asked yet"}),
    };
    page["ownedBlocks"] = value(&rows);
    Some(page)
}

/// What every page shows at its head.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary {
    /// Whether all first lists of the watches are complete.
    pub(super) complete: bool,
    /// Watches that fail, and why.
    pub(super) failing: Vec<String>,
    pub(super) agents: usize,
    /// Agents that do not answer.
    pub(super) silent: usize,
    /// How many differences `check` finds; absent before it has compared.
    pub(super) findings: Option<usize>,
    /// What it could not see.
    pub(super) unseen: usize,
}

impl Summary {
    /// The present one.
    pub(super) fn of(state: &State, health: &tenure_watch::ApiHealth) -> Self {
        let failing = health.watches.iter().filter_map(|(kind, it)| Some((kind, it.failing.as_ref()?)));
        let agents = &state.snapshot.agents;
        Self {
            complete: health.complete,
            failing: failing.map(|(kind, problem)| format!("{kind}: {problem}")).collect(),
            agents: agents.len(),
            silent: agents.values().filter(|told| told.is_err()).count(),
            findings: state.findings.as_ref().map(|it| it.differences.len()),
            unseen: state.findings.as_ref().map_or(0, |it| it.unseen.len()),
        }
    }
}
