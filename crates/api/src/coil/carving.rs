//! New objects: a block for a node, and a node's request for one.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::{Resource, ResourceExt};

use super::{
    AddressBlock, AddressBlockSpec, AddressPool, BlockRequest, BlockRequestSpec, ConversionError, EnginePool,
    FINALIZER, SubnetSet, annotation, label, names,
};
use crate::claims;

impl AddressBlock {
    /// The object of block `index` of a pool for a node: named, labelled, owned by the pool and kept by the finalizer.
    /// `request` is the UID of the request that it answers.
    pub fn carve(
        pool: &AddressPool,
        index: u128,
        node: &str,
        request: Option<&str>,
    ) -> Result<Self, ConversionError> {
        Self::carve_with(pool, &EnginePool::try_from(&pool.spec)?, index, node, request)
    }

    /// The same, for whoever carves many blocks of a pool: `engine` is made of its specification.
    pub fn carve_with(
        pool: &AddressPool,
        engine: &EnginePool,
        index: u128,
        node: &str,
        request: Option<&str>,
    ) -> Result<Self, ConversionError> {
        let mut block = Self::carve_for_nobody(pool, engine, index)?;
        let labels = block.labels_mut();
        labels.insert(label::NODE.to_owned(), node.to_owned());
        if let Some(uid) = request {
            labels.insert(label::REQUEST.to_owned(), uid.to_owned());
        }
        Ok(block)
    }

    /// The object of block `index` of a pool for claims: like that of a node, but floating.
    pub fn carve_floating(pool: &AddressPool, index: u128) -> Result<Self, ConversionError> {
        let mut block = Self::carve_for_nobody(pool, &EnginePool::try_from(&pool.spec)?, index)?;
        block.labels_mut().insert(claims::label::FLOATING.to_owned(), "true".to_owned());
        Ok(block)
    }

    /// The object that occupies the name of block `index` of a pool, because the older pool with this UID
    /// carves its addresses. It can be deleted with its own pool.
    pub fn withhold(pool: &AddressPool, index: u128, older: &str) -> Result<Self, ConversionError> {
        let mut block = Self::carve_for_nobody(pool, &EnginePool::try_from(&pool.spec)?, index)?;
        block.labels_mut().insert(label::WITHHELD.to_owned(), "true".to_owned());
        block.annotations_mut().insert(annotation::WITHHELD_FOR.to_owned(), older.to_owned());
        block.metadata.finalizers = None;
        Ok(block)
    }

    fn carve_for_nobody(
        pool: &AddressPool,
        engine: &EnginePool,
        index: u128,
    ) -> Result<Self, ConversionError> {
        let name = pool.name_any();
        let owner = pool.controller_owner_ref(&());
        let Some(mut owner) = owner else {
            return Err(ConversionError::NotStored { kind: "AddressPool", name });
        };
        owner.block_owner_deletion = Some(true);
        let block = engine.pool().block(index).and_then(|subnet| Some((subnet, i64::try_from(index).ok()?)));
        let Some((subnet, number)) = block else {
            return Err(ConversionError::NoBlock { pool: name, index, last: engine.pool().last_index() });
        };
        let SubnetSet { ipv4, ipv6 } = subnet.into();
        let spec = AddressBlockSpec { index: number, ipv4, ipv6, claims: BTreeMap::new() };
        let mut block = Self::new(&names::block_name(&name, index), spec);
        block.labels_mut().insert(label::POOL.to_owned(), name);
        block.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
        block.metadata.owner_references = Some(vec![owner]);
        Ok(block)
    }
}

impl BlockRequest {
    /// A node's request for a block: owned by the node, so that it is deleted with it.
    pub fn of(node: &Node, pool: &str) -> Result<Self, ConversionError> {
        let node_name = node.name_any();
        let Some(owner) = node.owner_ref(&()) else {
            return Err(ConversionError::NotStored { kind: "Node", name: node_name });
        };
        let name = names::request_name(pool, &node_name)?;
        let mut request = Self::new(&name, BlockRequestSpec { node_name, pool_name: pool.to_owned() });
        request.metadata.owner_references = Some(vec![owner]);
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::coil::RequestOutcome;

    fn stored_pool() -> AddressPool {
        let subnets = json!([{"ipv4": "10.2.0.0/16", "ipv6": "fd01:203:405:607::/112"}]);
        let spec = serde_json::from_value(json!({"subnets": subnets})).unwrap();
        let mut pool = AddressPool::new("pool1", spec);
        pool.metadata.uid = Some("d9607e19-f88f-11e6-a518-42010a800195".into());
        pool
    }

    #[test]
    fn a_carved_block_is_the_one_of_the_design_document() {
        let block = AddressBlock::carve(&stored_pool(), 16, "node1", Some("request-uid")).unwrap();
        assert_eq!(
            serde_json::to_value(&block).unwrap(),
            json!({
                "apiVersion": "coil.cybozu.com/v2",
                "kind": "AddressBlock",
                "metadata": {
                    "name": "pool1-16",
                    "labels": {
                        "coil.cybozu.com/pool": "pool1",
                        "coil.cybozu.com/node": "node1",
                        "coil.cybozu.com/request": "request-uid",
                    },
                    "finalizers": ["coil.cybozu.com"],
                    "ownerReferences": [{
                        "apiVersion": "coil.cybozu.com/v2",
                        "controller": true,
                        "blockOwnerDeletion": true,
                        "kind": "AddressPool",
                        "name": "pool1",
                        "uid": "d9607e19-f88f-11e6-a518-42010a800195",
                    }],
                },
                "index": 16,
                "ipv4": "10.2.2.0/27",
                "ipv6": "fd01:203:405:607::200/123",
            })
        );
        assert_eq!(
            (block.pool(), block.node(), block.request_uid()),
            (Some("pool1"), Some("node1"), Some("request-uid"))
        );
        assert!(!block.is_reserved());
        let engine = EnginePool::try_from(&stored_pool().spec).unwrap();
        assert_eq!(engine.pool().index_of(&block.spec.to_subnet().unwrap()), Some(16));
        let read: AddressBlock = serde_json::from_value(serde_json::to_value(&block).unwrap()).unwrap();
        assert_eq!(read, block, "and is read back as it was written");
    }

    #[test]
    fn a_floating_block_is_like_a_nodes_but_no_node_owns_it() {
        let mut block = AddressBlock::carve_floating(&stored_pool(), 3).unwrap();
        assert!(block.is_floating() && block.node().is_none() && block.request_uid().is_none());
        assert_eq!(block.pool(), Some("pool1"));
        let of_node = AddressBlock::carve(&stored_pool(), 3, "node1", None).unwrap();
        assert!(!of_node.is_floating());
        assert_eq!(block.metadata.owner_references, of_node.metadata.owner_references);
        assert_eq!(block.metadata.finalizers, of_node.metadata.finalizers);
        assert_eq!(block.spec, of_node.spec);
        let record =
            json!({"namespace": "a", "name": "vm.net", "uid": "u", "freed": "2026-11-16T05:00:00.250000Z"});
        block.spec.claims.insert("17".to_owned(), serde_json::from_value(record.clone()).unwrap());
        let written = serde_json::to_value(&block).unwrap();
        assert_eq!(written["claims"], json!({"17": record}));
        assert_eq!(serde_json::from_value::<AddressBlock>(written).unwrap(), block);
    }

    #[test]
    fn a_block_that_a_pool_does_not_have_is_not_carved() {
        let error = AddressBlock::carve(&stored_pool(), 2048, "node1", None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "pool \"pool1\" has no block 2048 that can be carved; accepted is 0 to 2047"
        );
        let unstored = AddressPool::new("pool1", stored_pool().spec);
        let error = AddressBlock::carve(&unstored, 0, "node1", None).unwrap_err();
        assert!(error.to_string().starts_with("AddressPool \"pool1\" has no UID"), "{error}");
    }

    #[test]
    fn a_request_belongs_to_its_node_and_has_an_outcome() {
        let mut node = Node::default();
        node.metadata.name = Some("node1".into());
        node.metadata.uid = Some("d9607e19".into());
        let mut request = BlockRequest::of(&node, "pool1").unwrap();
        assert_eq!(
            serde_json::to_value(&request).unwrap(),
            json!({
                "apiVersion": "coil.cybozu.com/v2",
                "kind": "BlockRequest",
                "metadata": {
                    "name": "req-pool1-node1",
                    "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "node1", "uid": "d9607e19"}],
                },
                "spec": {"nodeName": "node1", "poolName": "pool1"},
            })
        );
        assert_eq!(request.outcome(), RequestOutcome::Pending);
        let mut answer = |status| {
            request.status = Some(serde_json::from_value(status).unwrap());
            format!("{:?}", request.outcome())
        };
        let complete = json!({"type": "Complete", "status": "True"});
        let failed = json!({"type": "Failed", "status": "True", "reason": "OutOfBlocks", "message": "full"});
        assert_eq!(
            answer(json!({"addressBlockName": "pool1-3", "conditions": [complete]})),
            "Block(\"pool1-3\")"
        );
        assert_eq!(
            answer(json!({"conditions": [complete, failed]})),
            "Failed { reason: \"OutOfBlocks\", message: \"full\" }",
            "Coil completes what it fails"
        );
        assert_eq!(
            answer(
                json!({"addressBlockName": "pool1-3", "conditions": [{"type": "Complete", "status": "False"}]})
            ),
            "Pending"
        );
    }
}
