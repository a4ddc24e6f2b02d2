//! Nodes. Of each only the needed fields are kept: labels, taints, readiness, addresses, boot ID, and how many pods
//! it may run.

use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeStatus, NodeSystemInfo};
use kube::ResourceExt;
use kube::runtime::watcher::Event;
use tenure_api::read::Unreadable;

use crate::kind::Kind;
use crate::unreadable::Stub;
use crate::world::World;

/// The taint of a node that will not come back by itself.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Whether an administrator has declared the node out of service.
pub(crate) fn is_out_of_service(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.into_iter().flatten().any(|taint| taint.key == OUT_OF_SERVICE)
}

impl Kind for Node {
    const NAME: &'static str = "Node";

    /// Nodes are large.
    fn trim(&mut self) {
        let Some(status) = &mut self.status else { return };
        let allocatable = status.allocatable.take().map(|mut all| {
            all.retain(|resource, _| resource == "pods");
            all
        });
        // Heartbeats come every few minutes and change nothing else.
        let ready = status.conditions.take().into_iter().flatten().filter(|it| it.type_ == "Ready");
        let ready =
            ready.map(|it| NodeCondition { type_: it.type_, status: it.status, ..Default::default() });
        let conditions = Some(ready.collect());
        let addresses = status.addresses.take();
        // When the machine was started.
        let boot_id = status.node_info.take().map(|info| info.boot_id);
        let node_info = boot_id.map(|boot_id| NodeSystemInfo { boot_id, ..Default::default() });
        *status = NodeStatus { allocatable, addresses, conditions, node_info, ..Default::default() };
    }

    /// It exists, and keeps what it has.
    fn stand_in(it: &Unreadable) -> Option<Self> {
        Some(Self { metadata: it.metadata.clone(), ..Self::default() })
    }

    fn observe(world: &mut World, event: Event<Self>) {
        match event {
            Event::Init => world.begin_nodes(),
            Event::InitApply(node) => world.list_node(node),
            Event::Apply(node) => world.apply_node(node),
            Event::InitDone => world.finish_nodes(),
            Event::Delete(node) => world.delete_node(&node.name_any(), &node.uid().unwrap_or_default()),
        }
    }

    fn observe_gone(world: &mut World, _: &str, name: &str, uid: &str) {
        world.delete_node(name, uid);
    }

    fn observe_unreadable(_: &mut World, _: &Stub, _: bool) {}
}
