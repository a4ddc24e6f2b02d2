//! Owners of claims: virtual machines, instances of them, StatefulSets; and whether KubeVirt's ipam-extensions makes their claims.
//!
//! KubeVirt's kinds are read as plain objects, and may be missing. Of each object only what matters is kept.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tenure_claims::owners::{EXTENSIONS_WEBHOOK, MachineFacts, StatefulFacts};

use crate::cache::{Cache, Seen};
use crate::world::{State, World};

/// A VirtualMachine as it is.
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
    /// All of it.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

/// A VirtualMachineInstance as it is.
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
    /// All of it.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

/// Owners of claims, as far as they are known. Watched only while a network opts in or there are claims.
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

    /// The same, to be changed.
    pub fn owners_mut(&mut self) -> &mut Owners {
        self.state_mut()
    }
}

/// A machine, or an instance of one, that was heard of.
pub type MachineSeen = Seen<MachineFacts>;
/// A StatefulSet that was heard of.
pub type StatefulSeen = Seen<StatefulFacts>;
/// A MutatingWebhookConfiguration that was heard of.
pub type WebhookSeen = Seen<WebhookFacts>;

/// What matters of a MutatingWebhookConfiguration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookFacts {
    /// Whether it is the one of KubeVirt's ipam-extensions, whatever it is called: its webhook is.
    pub is_of_extensions: bool,
}

/// The kinds' names, by which watches are told apart.
pub(crate) const CLAIM: &str = "IPAMClaim";
pub(super) const MACHINE: &str = "VirtualMachine";
pub(super) const INSTANCE: &str = "VirtualMachineInstance";
pub(super) const STATEFUL_SET: &str = "StatefulSet";
pub(super) const WEBHOOK: &str = "MutatingWebhookConfiguration";

/// What matters of a machine.
pub(super) fn machine_facts(machine: &VirtualMachine) -> MachineFacts {
    MachineFacts::of_machine(&plain(machine))
}

/// What matters of an instance.
pub(super) fn instance_facts(instance: &VirtualMachineInstance) -> MachineFacts {
    MachineFacts::of_instance(&plain(instance))
}

/// What matters of a StatefulSet; of one that does not opt in nothing that only its pods would need.
pub(super) fn stateful_facts(set: &StatefulSet) -> StatefulFacts {
    let mut facts = StatefulFacts::of(set);
    if !facts.keeps_addresses {
        facts.template = tenure_claims::PodFacts::default();
    }
    facts
}

fn plain(object: &impl Serialize) -> Value {
    // What was read as JSON is JSON.
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
