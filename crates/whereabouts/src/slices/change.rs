//! A change of some slices of a pool. Only the changes are written, however many slices exist.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, OwnerReference};
use serde_json::{Value, json};
use tenure_api::whereabouts::{NodeSliceAllocation, NodeSlicePool};

/// Changes a pool that still has the version that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct SliceChange {
    /// The name of the pool.
    pub name: String,
    /// Its version.
    pub version: Option<String>,
    /// The slices that get another node, or none.
    pub slices: Vec<SliceEdit>,
    /// All conditions, if one changes.
    conditions: Option<Vec<Condition>>,
    /// All annotations, if one changes.
    annotations: Option<BTreeMap<String, String>>,
    /// All owners, if one changes.
    owners: Option<Vec<OwnerReference>>,
}

/// One slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceEdit {
    /// Its number.
    pub place: usize,
    /// The slice.
    pub slice: String,
    /// The node that has it; empty if it is free.
    pub before: String,
    /// The node that gets it; empty if it becomes free.
    pub after: String,
}

impl SliceChange {
    pub(super) fn new(
        pool: &NodeSlicePool,
        metadata: ObjectMeta,
        slices: Vec<SliceEdit>,
        conditions: Vec<Condition>,
    ) -> Self {
        let had = pool.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        let ObjectMeta { annotations, owner_references, .. } = metadata;
        let owners = (owner_references != pool.metadata.owner_references).then_some(owner_references);
        Self {
            name: pool.metadata.name.clone().unwrap_or_default(),
            version: pool.metadata.resource_version.clone(),
            slices,
            conditions: Some(conditions).filter(|conditions| conditions != had),
            annotations: annotations.filter(|all| Some(all) != pool.metadata.annotations.as_ref()),
            owners: owners.map(Option::unwrap_or_default),
        }
    }

    /// The node that a slice gets; `None` if it keeps its node.
    pub fn after(&self, place: usize) -> Option<&str> {
        self.slices.iter().find(|edit| edit.place == place).map(|edit| edit.after.as_str())
    }

    /// The change as a JSON patch, which tests the version and the current state of each slice.
    pub fn patch(&self) -> Value {
        let operation = |op: &str, path: &str, value: Value| json!({"op": op, "path": path, "value": value});
        let mut operations = vec![operation("test", "/metadata/resourceVersion", json!(self.version))];
        for SliceEdit { place, slice, before, after } in &self.slices {
            let path = format!("/status/allocations/{place}");
            operations.push(operation("test", &path, json!({"nodeName": before, "sliceRange": slice})));
            operations.push(operation("replace", &format!("{path}/nodeName"), json!(after)));
        }
        let whole = [
            ("/status/conditions", self.conditions.as_ref().map(|it| json!(it))),
            ("/metadata/annotations", self.annotations.as_ref().map(|it| json!(it))),
            ("/metadata/ownerReferences", self.owners.as_ref().map(|it| json!(it))),
        ];
        operations.extend(whole.into_iter().filter_map(|(path, value)| Some(operation("add", path, value?))));
        Value::Array(operations)
    }

    /// The pool after the change; `None` if the pool has changed since.
    pub fn apply(&self, pool: &NodeSlicePool) -> Option<NodeSlicePool> {
        if pool.metadata.resource_version != self.version {
            return None;
        }
        let mut pool = pool.clone();
        let status = pool.status.get_or_insert_default();
        for SliceEdit { place, slice, before, after } in &self.slices {
            let known = status.allocations.get_mut(*place)?;
            let is = NodeSliceAllocation { node_name: before.clone(), slice_range: slice.clone() };
            if *known != is {
                return None;
            }
            known.node_name.clone_from(after);
        }
        status.conditions = self.conditions.clone().unwrap_or_else(|| std::mem::take(&mut status.conditions));
        let ObjectMeta { annotations, owner_references, .. } = &mut pool.metadata;
        *annotations = self.annotations.clone().or_else(|| annotations.take());
        if let Some(owners) = &self.owners {
            *owner_references = Some(owners.clone()).filter(|owners| !owners.is_empty());
        }
        Some(pool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> NodeSlicePool {
        let slices: Vec<Value> = ["a", "", "b", ""]
            .iter()
            .enumerate()
            .map(|(at, node)| json!({"nodeName": node, "sliceRange": format!("10.0.0.{}/26", at * 64)}))
            .collect();
        let condition = json!({
            "type": "Ready", "status": "True", "reason": "Sliced", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let pool = json!({
            "apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "NodeSlicePool",
            "metadata": {"name": "net", "resourceVersion": "7", "annotations": {"a": "b"}},
            "spec": {"range": "10.0.0.0/24", "sliceSize": "/26"},
            "status": {"allocations": slices, "conditions": [condition]},
        });
        serde_json::from_value(pool).unwrap()
    }

    fn edit(place: usize, before: &str, after: &str) -> SliceEdit {
        let slice = format!("10.0.0.{}/26", place * 64);
        SliceEdit { place, slice, before: before.to_owned(), after: after.to_owned() }
    }

    /// The pool as a server has it after the patch.
    fn patched(change: &SliceChange, pool: &NodeSlicePool) -> Option<NodeSlicePool> {
        let mut object = serde_json::to_value(pool).unwrap();
        let patch: json_patch::Patch = serde_json::from_value(change.patch()).unwrap();
        json_patch::patch(&mut object, &patch).ok()?;
        Some(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn a_server_that_applies_the_patch_has_what_apply_says() {
        let pool = pool();
        let conditions = pool.status.clone().unwrap().conditions;
        let other = vec![Condition { status: "False".to_owned(), ..conditions[0].clone() }];
        let owner =
            OwnerReference { name: "net".to_owned(), uid: "u".to_owned(), ..OwnerReference::default() };
        let mut owned = pool.metadata.clone();
        owned.owner_references = Some(vec![owner]);
        owned.annotations = Some(BTreeMap::from([("a/b~c".to_owned(), "d".to_owned())]));
        for (slices, metadata, conditions, given) in [
            (vec![], &pool.metadata, &conditions, ["a", "", "b", ""]),
            (vec![edit(1, "", "c")], &pool.metadata, &conditions, ["a", "c", "b", ""]),
            (vec![edit(0, "a", ""), edit(3, "", "c")], &owned, &other, ["", "", "b", "c"]),
        ] {
            let change = SliceChange::new(&pool, metadata.clone(), slices, conditions.clone());
            let after = change.apply(&pool).unwrap();
            let nodes = &after.status.as_ref().unwrap().allocations;
            assert_eq!(nodes.iter().map(|slice| slice.node_name.as_str()).collect::<Vec<_>>(), given);
            assert_eq!((&after.metadata, &after.status.as_ref().unwrap().conditions), (metadata, conditions));
            assert_eq!(patched(&change, &pool), Some(after));
        }
    }

    #[test]
    fn a_pool_that_has_changed_since_is_left_alone() {
        let pool = pool();
        let conditions = pool.status.clone().unwrap().conditions;
        let change = SliceChange::new(&pool, pool.metadata.clone(), vec![edit(1, "", "c")], conditions);
        let (mut newer, mut other) = (pool.clone(), pool);
        newer.metadata.resource_version = Some("8".to_owned());
        other.status.as_mut().unwrap().allocations[1].node_name = "d".to_owned();
        for pool in [newer, other] {
            assert_eq!((change.apply(&pool), patched(&change, &pool)), (None, None));
        }
    }
}
