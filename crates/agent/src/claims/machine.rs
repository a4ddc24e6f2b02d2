//! Whether a virtual machine uses its launcher pod's own interface.
//!
//! Every launcher pod has one on the cluster's default network, but a machine need not use it. Then no claim
//! is ever created for it, and the pod gets an ordinary address there. Only the instance says so. It is read
//! at most once per ADD, and only while there is no claim. All additional networks of a launcher pod belong
//! to its machine.

use std::time::Duration;

use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use serde_json::Value;
use tenure_api::claims::DEFAULT_INTERFACE;
use tenure_claims::{PodFacts, Reference, Wanted};
use tracing::debug;

use super::Claims;
use super::claim_use::Interface;

/// How long the instance may take to be read.
const READ: Duration = Duration::from_secs(1);

impl Claims {
    /// Whether an interface's claim will never exist, because its machine does not use the interface. If the
    /// instance cannot be read now, the claim may still come.
    pub(super) async fn comes_never(
        &self,
        interface: Interface<'_>,
        pod: &PodFacts,
        wanted: &Wanted,
    ) -> bool {
        let Reference::Launcher { vmi, .. } = &wanted.reference else { return false };
        if interface.name != DEFAULT_INTERFACE || pod.default_network.is_some() {
            return false;
        }
        let kind = GroupVersionKind::gvk("kubevirt.io", "v1", "VirtualMachineInstance");
        let kind = ApiResource::from_gvk_with_plural(&kind, "virtualmachineinstances");
        let instances: Api<DynamicObject> =
            Api::namespaced_with(self.shared.connection.client(), &interface.pod.namespace, &kind);
        let act = || format!("reading VirtualMachineInstance {}/{vmi}", interface.pod.namespace);
        match self.shared.connection.once(READ, act, instances.get(vmi)).await {
            Ok(instance) => !is_on_pods_network(&instance.data),
            Err(error) => {
                debug!(%error, instance = %vmi, "cannot read whether the machine is on the pods' own network");
                false
            }
        }
    }
}

/// Whether an instance has a network that is the pod's own. One without any list is not complete yet.
fn is_on_pods_network(instance: &Value) -> bool {
    let networks = instance.pointer("/spec/networks").and_then(Value::as_array);
    networks.is_none_or(|networks| {
        networks.iter().any(|network| {
            network.get("pod").is_some_and(Value::is_object)
                || network.pointer("/multus/default").and_then(Value::as_bool) == Some(true)
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_machine_is_on_the_pods_network_if_one_of_its_networks_is_it() {
        let on = |networks: Value| is_on_pods_network(&json!({"spec": {"networks": networks}}));
        assert!(on(json!([{"name": "a", "multus": {"networkName": "n"}}, {"name": "default", "pod": {}}])));
        assert!(on(json!([{"name": "a", "multus": {"networkName": "n", "default": true}}])));
        assert!(!on(json!([{"name": "a", "multus": {"networkName": "n"}}])));
        assert!(!on(json!([])));
        assert!(is_on_pods_network(&json!({"spec": {}})), "nobody has said so yet");
    }
}
