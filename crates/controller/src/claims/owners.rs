//! Owners of claims: virtual machines, their instances, and StatefulSets. Also knows whether KubeVirt's
//! ipam-extensions creates their claims.
//!
//! KubeVirt's kinds are read as untyped objects, and may be missing. Only the needed fields are kept.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tenure_claims::owners::{EXTENSIONS_WEBHOOK, MachineFacts, StatefulFacts};

use crate::cache::{Cache, Seen};
use crate::world::{State, World};

/// A VirtualMachine.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "kubevirt.io",
    version = "v1",
    kind = "VirtualMachine",
    plural = "virtualmachines",
    namespaced,
    derive = "PartialEq",
    schema = "disabled"
)]
pub struct VirtualMachineSpec {
    /// The whole object.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

/// A VirtualMachineInstance.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "kubevirt.io",
    version = "v1",
    kind = "VirtualMachineInstance",
    plural = "virtualmachineinstances",
    namespaced,
    status = "Value",
    derive = "PartialEq",
    schema = "disabled"
)]
pub struct VirtualMachineInstanceSpec {
    /// The whole object.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

/// Owners of claims. Watched only while a network opts in or claims exist.
#[derive(Debug, Default)]
pub struct Owners {
    /// VirtualMachines by `namespace/name`.
    pub machines: Cache<MachineSeen>,
    /// VirtualMachineInstances by `namespace/name`.
    pub instances: Cache<MachineSeen>,
    /// StatefulSets by `namespace/name`.
    pub stateful_sets: Cache<StatefulSeen>,
    /// MutatingWebhookConfigurations.
    pub webhooks: Cache<WebhookSeen>,
}

impl State for Owners {
    fn changes(&self) -> u64 {
        let of_machines = self.machines.changes() + self.instances.changes();
        of_machines + self.stateful_sets.changes() + self.webhooks.changes()
    }
}

impl World {
    /// Owners of claims.
    pub fn owners(&self) -> &Owners {
        self.state()
    }

    /// The same, mutable.
    pub fn owners_mut(&mut self) -> &mut Owners {
        self.state_mut()
    }
}

/// A machine or instance that the watch has reported.
pub type MachineSeen = Seen<MachineFacts>;
/// A StatefulSet that the watch has reported.
pub type StatefulSeen = Seen<StatefulFacts>;
/// A MutatingWebhookConfiguration that the watch has reported.
pub type WebhookSeen = Seen<WebhookFacts>;

/// What is kept of a MutatingWebhookConfiguration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookFacts {
    /// Whether it belongs to KubeVirt's ipam-extensions. The name of its webhook tells; its own name may be anything.
    pub is_of_extensions: bool,
}

/// The names of the kinds, which tell watches apart.
pub(crate) const CLAIM: &str = "IPAMClaim";
pub(super) const MACHINE: &str = "VirtualMachine";
pub(super) const INSTANCE: &str = "VirtualMachineInstance";
pub(super) const STATEFUL_SET: &str = "StatefulSet";
pub(super) const WEBHOOK: &str = "MutatingWebhookConfiguration";

/// What is kept of a machine.
pub(super) fn machine_facts(machine: &VirtualMachine) -> MachineFacts {
    MachineFacts::of_machine(&plain(machine))
}

/// What is kept of an instance.
pub(super) fn instance_facts(instance: &VirtualMachineInstance) -> MachineFacts {
    MachineFacts::of_instance(&plain(instance))
}

/// What is kept of a StatefulSet. If it does not opt in, the fields that only its pods need are dropped.
pub(super) fn stateful_facts(set: &StatefulSet) -> StatefulFacts {
    let mut facts = StatefulFacts::of(set);
    if !facts.keeps_addresses {
        facts.template = tenure_claims::PodFacts::default();
    }
    facts
}

fn plain(object: &impl Serialize) -> Value {
    // It was parsed from JSON, so it serializes.
    serde_json::to_value(object).unwrap_or_default()
}

pub(super) fn machine_seen(machine: &VirtualMachine) -> MachineSeen {
    Seen::of(machine, machine_facts(machine))
}

pub(super) fn instance_seen(instance: &VirtualMachineInstance) -> MachineSeen {
    Seen::of(instance, instance_facts(instance))
}

pub(super) fn stateful_seen(set: &StatefulSet) -> StatefulSeen {
    Seen::of(set, stateful_facts(set))
}

pub(super) fn webhook_seen(configuration: &MutatingWebhookConfiguration) -> WebhookSeen {
    let mut webhooks = configuration.webhooks.iter().flatten();
    let is_of_extensions = webhooks.any(|webhook| webhook.name == EXTENSIONS_WEBHOOK);
    Seen::of(configuration, WebhookFacts { is_of_extensions })
}
