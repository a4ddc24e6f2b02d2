//! The manifests of a plan, and what people are told of them.
//!
//! Blocks come before pools: a controller that runs already sees no pool whose used blocks it could carve. The output is a function
//! of the plan alone, so that a second import of the same records gives the same bytes.

use std::fmt::Write as _;

use anyhow::Result;
use kube::ResourceExt;
use serde::Serialize;
use serde_json::{Value, json};
use tenure_api::coil::annotation;

use super::finding::Finding;
use super::plan::Plan;
use crate::table;

/// The objects, in the order in which to apply them.
pub(super) fn objects(plan: &Plan) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for block in &plan.blocks {
        objects.push(serde_json::to_value(&block.object)?);
    }
    for pool in &plan.pools {
        objects.push(serde_json::to_value(pool)?);
    }
    for (namespace, pool) in &plan.namespaces {
        objects.push(json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": namespace, "annotations": {annotation::POOL: pool}},
        }));
    }
    Ok(objects)
}

/// As YAML documents.
pub(super) fn yaml(plan: &Plan) -> Result<String> {
    let mut text = String::new();
    for object in objects(plan)? {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&object)?);
    }
    Ok(text)
}

/// As one list in JSON, which kubectl applies as well.
pub(super) fn json(plan: &Plan) -> Result<String> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects(plan)?});
    Ok(serde_json::to_string_pretty(&list)? + "\n")
}

/// What would be written, as `--dry-run -o json` shows it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary<'p> {
    pub(super) origin: &'static str,
    pub(super) pools: Vec<PoolRow>,
    pub(super) namespaces: &'p std::collections::BTreeMap<String, String>,
    pub(super) findings: &'p [Finding],
}

/// What would be written of a pool.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PoolRow {
    pub(super) pool: String,
    pub(super) subnets: Vec<String>,
    pub(super) block_size_bits: i32,
    pub(super) reserved_blocks: usize,
    pub(super) used_addresses: usize,
}

impl<'p> Summary<'p> {
    pub(super) fn of(plan: &'p Plan) -> Self {
        let pools = plan.pools.iter().map(|pool| {
            let name = pool.name_any();
            let blocks = || plan.blocks.iter().filter(|block| block.object.pool() == Some(&name));
            let subnets = pool.spec.subnets.iter().map(|subnet| {
                let both = [subnet.ipv4.as_deref(), subnet.ipv6.as_deref()];
                both.into_iter().flatten().collect::<Vec<_>>().join(",")
            });
            PoolRow {
                subnets: subnets.collect(),
                block_size_bits: pool.spec.block_size_bits,
                reserved_blocks: blocks().count(),
                used_addresses: blocks().map(|block| block.used).sum(),
                pool: name.clone(),
            }
        });
        Self {
            origin: plan.origin.label(),
            pools: pools.collect(),
            namespaces: &plan.namespaces,
            findings: &plan.findings,
        }
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = table::columns(
            ["POOL", "SUBNETS", "BLOCK SIZE", "RESERVED BLOCKS", "USED ADDRESSES"],
            self.pools.iter().map(|row| {
                let size = u32::try_from(row.block_size_bits).ok().and_then(|bits| 1_u128.checked_shl(bits));
                [
                    row.pool.clone(),
                    table::list(row.subnets.iter().cloned()),
                    size.unwrap_or_default().to_string(),
                    row.reserved_blocks.to_string(),
                    row.used_addresses.to_string(),
                ]
            }),
        );
        for (namespace, pool) in self.namespaces {
            let _ = writeln!(text, "namespace {namespace} uses pool {pool}");
        }
        for finding in self.findings {
            let _ = writeln!(text, "{finding}");
        }
        text
    }
}
