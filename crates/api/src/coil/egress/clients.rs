//! `EgressClients`: the pods of one node that use one Egress. The node's agent writes it, the gateways read it.
//!
//! Gateways watch those of their Egress and know no other pod of the cluster. Who is not in one of them is not served.

use kube::{CustomResource, KubeSchema, Resource, ResourceExt};
use serde::{Deserialize, Serialize};

use super::{Egress, label, names, rules};
use crate::coil::label::NODE;
use crate::names::NameError;

/// Which pods of which node.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "coil.cybozu.com",
    version = "v2",
    kind = "EgressClients",
    plural = "egressclients",
    singular = "egressclients",
    namespaced,
    derive = "PartialEq",
    doc = "The pods of one node that use one Egress, which owns this object. Named `<egress>.<node>`; the labels \
           `coil.cybozu.com/egress` and `coil.cybozu.com/node` say the same. Written by the node's agent alone.",
    validation = rules::clients_are_named_for_their_node(),
    printcolumn(name = "Egress", type_ = "string", json_path = ".metadata.labels['coil\\.cybozu\\.com/egress']"),
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.nodeName"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct EgressClientsSpec {
    /// The node on which the pods are. Cannot be changed.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::node_of_clients_is_immutable())]
    pub node_name: String,

    /// The pods, up to 1024, each once.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["uid".to_owned()]))]
    pub clients: Vec<EgressClient>,
}

/// A pod that uses an Egress.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressClient {
    /// The namespace of the pod.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,

    /// The name of the pod.
    #[schemars(length(min = 1, max = 253))]
    pub pod: String,

    /// The UID of the pod: a pod of the same name with another is another.
    #[schemars(length(min = 1, max = 128))]
    pub uid: String,

    /// The addresses of the pod, from 1 to 4: `10.1.2.3`, `fd00::1`.
    #[schemars(length(min = 1, max = 4), inner(length(max = 45)))]
    #[x_kube(validation = rules::addresses_are_addresses())]
    pub addresses: Vec<String>,
}

impl EgressClients {
    /// The clients of an Egress on a node: the object that its agent writes.
    pub fn of(egress: &Egress, node: &str, clients: Vec<EgressClient>) -> Result<Self, NameError> {
        let name = egress.name_any();
        let mut object = Self::new(
            &names::clients_name(&name, node)?,
            EgressClientsSpec { node_name: node.to_owned(), clients },
        );
        let labels = [(label::EGRESS, name), (NODE, names::node_label(node))];
        let labels = labels.map(|(name, value)| (name.to_owned(), value)).into();
        let metadata = &mut object.metadata;
        metadata.namespace = egress.namespace();
        metadata.labels = Some(labels);
        metadata.owner_references = egress.owner_ref(&()).map(|owner| vec![owner]);
        Ok(object)
    }

    /// The Egress that they are clients of, by its label.
    pub fn egress(&self) -> Option<&str> {
        self.labels().get(label::EGRESS).map(String::as_str)
    }

    /// The label selector for the clients of one Egress, in its namespace.
    pub fn of_egress(egress: &str) -> String {
        format!("{}={egress}", label::EGRESS)
    }

    /// The label selector for the clients on one node, in all namespaces.
    pub fn of_node(node: &str) -> String {
        format!("{NODE}={}", names::node_label(node))
    }
}
