//! The Deployment of an Egress: written when its desired state changes, or when somebody has changed the Deployment.
//!
//! The API server fills in and rewrites what is written (defaults, `1000m` as `1`), so the actual object cannot be
//! compared with the desired one. Instead an annotation of the Deployment has a digest of the last write and the
//! resulting generation. Another digest: the Egress has changed. Another generation: somebody has changed the
//! Deployment or its annotations. Otherwise nothing is written. A write that keeps the template starts no rollout.

use std::collections::BTreeMap;

use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tenure_api::coil::Egress;
use tenure_api::coil::egress::gateway_labels;
use tenure_api::digest;

use super::children::{Planned, Whose, at, belonging, metadata, subject, tested, whose};
use super::known::{DeploymentFacts, Egresses};
use super::template::{PodTemplate, pods_of};
use super::write::{ChildKind, EgressWrite, Of};

/// The last write.
const APPLIED: &str = "tenure/applied";

/// The last write of a Deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// Its digest.
    hash: String,
    /// The resulting generation.
    generation: i64,
    /// The pod labels in it: removed when the next write lacks them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    labels: Vec<String>,
    /// The pod annotations in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    annotations: Vec<String>,
}

impl Applied {
    fn of(annotations: &BTreeMap<String, String>) -> Option<Self> {
        serde_json::from_str(annotations.get(APPLIED)?).ok()
    }

    /// As an annotation.
    fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The operation that corrects the generation, if the write resulted in another one than expected although
    /// nothing else changed.
    pub(super) fn corrected(&self, generation: i64) -> Option<Value> {
        let corrected = Self { generation, ..self.clone() };
        let path = format!("/metadata/annotations/{}", APPLIED.replace('/', "~1"));
        (generation != self.generation).then(|| json!({"op": "add", "path": path, "value": corrected.text()}))
    }
}

/// The spec of a Deployment without its selector, which is immutable, and without the pods' metadata, which others
/// may add to.
struct Spec {
    replicas: Value,
    strategy: Value,
    pods: PodTemplate,
}

impl Spec {
    fn of(egress: &Egress, image: &str) -> Self {
        let strategy = egress.spec.strategy.as_ref().map(|strategy| json!(strategy));
        Self {
            replicas: json!(egress.spec.replicas),
            strategy: strategy.unwrap_or_else(|| json!({"type": "RollingUpdate"})),
            pods: pods_of(egress, image),
        }
    }

    fn applied(&self, generation: i64) -> Applied {
        let PodTemplate { labels, annotations, spec } = &self.pods;
        let all = json!([self.replicas, self.strategy, labels, annotations, spec]).to_string();
        Applied {
            hash: digest::hex(&all, 32),
            generation,
            labels: labels.keys().cloned().collect(),
            annotations: annotations.keys().cloned().collect(),
        }
    }
}

/// What an Egress's Deployment needs.
pub(super) fn plan(known: &Egresses, egress: &Egress, of: &Of, image: &str, planned: &mut Planned) {
    let name = egress.name_any();
    let live = known.deployments.get(&format!("{}/{name}", of.namespace)).map(|live| &live.facts);
    let spec = Spec::of(egress, image);
    let Some(live) = live else {
        planned.writes.push(create(egress, of, &spec));
        return;
    };
    match whose(egress, &live.metadata) {
        Whose::Predecessors => {}
        Whose::Ours | Whose::Nobodys if live.selector == gateway_labels(&name) => {
            planned.writes.extend(change(egress, of, &spec, live));
        }
        _ => planned.take(create(egress, of, &spec), ChildKind::Deployment, &name),
    }
}

fn create(egress: &Egress, of: &Of, spec: &Spec) -> EgressWrite {
    let name = egress.name_any();
    let mut metadata = metadata(egress, &name);
    metadata["annotations"] = json!({APPLIED: spec.applied(1).text()});
    let PodTemplate { labels, annotations, spec: pod } = &spec.pods;
    let object = json!({
        "metadata": metadata,
        "spec": {
            "replicas": spec.replicas,
            "strategy": spec.strategy,
            "selector": {"matchLabels": gateway_labels(&name)},
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod},
        },
    });
    let subject = subject(egress, ChildKind::Deployment, &name);
    EgressWrite::Create { of: of.clone(), kind: ChildKind::Deployment, subject, object: Box::new(object) }
}

fn change(egress: &Egress, of: &Of, spec: &Spec, live: &DeploymentFacts) -> Option<EgressWrite> {
    let annotations = live.metadata.annotations.clone().unwrap_or_default();
    let (before, generation) = (Applied::of(&annotations), live.metadata.generation.unwrap_or_default());
    let mut operations = belonging(egress, &live.metadata);
    let mut applied = None;
    if before.as_ref() != Some(&spec.applied(generation)) {
        let before = before.unwrap_or_default();
        let next = spec.applied(generation + 1);
        let mut annotations = annotations;
        annotations.insert(APPLIED.to_owned(), next.text());
        let mut add =
            |path: &str, value: Value| operations.push(json!({"op": "add", "path": path, "value": value}));
        add("/metadata/annotations", json!(annotations));
        add("/spec/replicas", spec.replicas.clone());
        add("/spec/strategy", spec.strategy.clone());
        add("/spec/template/spec", json!(spec.pods.spec));
        let labels = merged(live.template.labels.as_ref(), &before.labels, &spec.pods.labels);
        add("/spec/template/metadata/labels", labels);
        let annotations =
            merged(live.template.annotations.as_ref(), &before.annotations, &spec.pods.annotations);
        add("/spec/template/metadata/annotations", annotations);
        applied = Some(next);
    }
    if operations.is_empty() {
        return None;
    }
    let (child, operations) = (at(&live.metadata), Box::new(tested(&live.metadata, operations)));
    Some(EgressWrite::Change { of: of.clone(), kind: ChildKind::Deployment, child, operations, applied })
}

/// The current entries without those of our last write, plus those of this one.
fn merged(
    live: Option<&BTreeMap<String, String>>,
    before: &[String],
    now: &BTreeMap<String, String>,
) -> Value {
    let mut all = live.cloned().unwrap_or_default();
    all.retain(|name, _| !before.contains(name));
    all.extend(now.clone());
    json!(all)
}
