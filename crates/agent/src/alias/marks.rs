//! What a pod's annotations say of alias addresses.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::PartialObjectMeta;
use tenure_api::cloud::annotation;

use crate::pods::Facet;

/// The annotations of one pod.
#[derive(Debug, PartialEq)]
pub(crate) struct Marks {
    /// The address that it must have, if it names one.
    pub(super) address: Option<String>,
    /// Whether it moves out: its address stays its own when it ends.
    pub(super) leaving: bool,
}

impl Facet for Marks {
    fn of(pod: &PartialObjectMeta<Pod>) -> Self {
        let annotations = pod.annotations();
        Self {
            address: annotations.get(annotation::ADDRESS).cloned(),
            leaving: annotations.contains_key(annotation::MOVE_OUT),
        }
    }
}
