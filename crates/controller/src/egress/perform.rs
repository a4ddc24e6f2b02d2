//! Performing writes for Egresses.

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};
use tenure_api::coil::{Egress, EgressClients};
use tenure_api::release::RELEASING;

use super::deployment::Applied;
use super::known::Refusal;
use super::write::{ChildKind, EgressWrite, Of};
use crate::executor::{Answer, Outcome, exactly, json_patch, settle};
use crate::kind::{Kind, Observation};
use crate::live::node_is_in_use;
use crate::part::Perform;
use crate::world::World;
use crate::write::{At, Operation, of};

/// Codes with which the API server refuses what it will never accept.
const REFUSALS: [u16; 3] = [400, 403, 422];
/// How much of its message a condition repeats.
const WORDS: usize = 1024;

/// Performs through one client.
pub(super) struct EgressPerformer {
    client: Client,
}

/// A kind of child.
trait Owned: Kind + Serialize + kube::Resource<Scope = NamespaceResourceScope> {}

impl<K: Kind + Serialize + kube::Resource<Scope = NamespaceResourceScope>> Owned for K {}

impl Perform for EgressPerformer {
    fn perform<'a>(&'a self, operation: &'a dyn Operation) -> BoxFuture<'a, Answer> {
        async move {
            match of::<EgressWrite>(operation) {
                Some(write) => self.write(write).await,
                None => Ok((Outcome::Failed(format!("this is no write for an Egress: {operation:?}")), None)),
            }
        }
        .boxed()
    }
}

impl EgressPerformer {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    fn api<K: Owned>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn write(&self, write: &EgressWrite) -> Answer {
        match write {
            EgressWrite::Create { of, kind, object, .. } => {
                let created = match kind {
                    ChildKind::Account => self.create::<ServiceAccount>(of, object).await,
                    ChildKind::Role => self.create::<Role>(of, object).await,
                    ChildKind::Binding => self.create::<RoleBinding>(of, object).await,
                    ChildKind::Service => self.create::<Service>(of, object).await,
                    ChildKind::Budget => self.create::<PodDisruptionBudget>(of, object).await,
                    ChildKind::Deployment => self.create::<Deployment>(of, object).await,
                };
                noted(of, *kind, created)
            }
            EgressWrite::Change { of, kind, child, operations, applied } => {
                let changed = match kind {
                    ChildKind::Account => self.change::<ServiceAccount>(of, child, operations).await,
                    ChildKind::Role => self.change::<Role>(of, child, operations).await,
                    ChildKind::Binding => self.change::<RoleBinding>(of, child, operations).await,
                    ChildKind::Service => self.change::<Service>(of, child, operations).await,
                    ChildKind::Budget => self.change::<PodDisruptionBudget>(of, child, operations).await,
                    ChildKind::Deployment => {
                        self.change_deployment(of, child, operations, applied.as_ref()).await
                    }
                };
                noted(of, *kind, changed)
            }
            EgressWrite::DeleteBudget { namespace, budget } => {
                self.delete::<PodDisruptionBudget>(namespace, budget).await
            }
            EgressWrite::Status { namespace, egress, status } => {
                let patch = json!({"metadata": {"resourceVersion": egress.version}, "status": status});
                let api = self.api::<Egress>(namespace);
                let written =
                    api.patch_status(&egress.name, &PatchParams::default(), &Patch::Merge(patch)).await;
                settle(&api, egress, written, gone::<Egress>(namespace)).await
            }
            EgressWrite::MarkClients { namespace, clients, node, mark } => {
                if node_is_in_use(&self.client, node).await? {
                    return Ok((Outcome::Superseded, None));
                }
                self.annotate(namespace, clients, json!(mark)).await
            }
            EgressWrite::UnmarkClients { namespace, clients } => {
                self.annotate(namespace, clients, Value::Null).await
            }
            EgressWrite::ReleaseClients { namespace, clients, node } => {
                if node_is_in_use(&self.client, node).await? {
                    let (_, observed) = self.annotate(namespace, clients, Value::Null).await?;
                    return Ok((Outcome::Superseded, observed));
                }
                self.delete::<EgressClients>(namespace, clients).await
            }
        }
    }

    /// Creates a child with all its fields, including those newer than this program.
    async fn create<K: Owned>(&self, of: &Of, object: &Value) -> Answer {
        let resource = ApiResource::erase::<K>(&());
        let mut object: DynamicObject =
            serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)?;
        object.types = Some(kube::core::TypeMeta {
            api_version: resource.api_version.clone(),
            kind: resource.kind.clone(),
        });
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &of.namespace, &resource);
        match api.create(&PostParams::default(), &object).await {
            Ok(made) => {
                let made = serde_json::to_value(made).and_then(serde_json::from_value::<K>);
                Ok((Outcome::Done, Some(Observation::is(made.map_err(kube::Error::SerdeError)?))))
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let there = self.api::<K>(&of.namespace).get_opt(&object.name_any()).await?;
                Ok((Outcome::Superseded, there.map(Observation::is)))
            }
            Err(error) => Err(error),
        }
    }

    async fn change<K: Owned>(&self, of: &Of, child: &At, operations: &Value) -> Answer {
        let api = self.api::<K>(&of.namespace);
        let written = json_patch(&api, &child.name, operations.clone()).await;
        settle(&api, child, written, gone::<K>(&of.namespace)).await
    }

    /// The same; afterwards the Deployment names its own generation.
    async fn change_deployment(
        &self,
        of: &Of,
        child: &At,
        operations: &Value,
        applied: Option<&Applied>,
    ) -> Answer {
        let api = self.api::<Deployment>(&of.namespace);
        let mut written = json_patch(&api, &child.name, operations.clone()).await;
        if let (Ok(deployment), Some(applied)) = (&written, applied)
            && let Some(correction) = applied.corrected(deployment.metadata.generation.unwrap_or_default())
        {
            let now = At::of(deployment);
            let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": now.version});
            let corrected = json_patch(&api, &now.name, json!([test, correction])).await;
            // If somebody has written meanwhile, the next plan sees it.
            written = corrected.or(written);
        }
        settle(&api, child, written, gone::<Deployment>(&of.namespace)).await
    }

    async fn annotate(&self, namespace: &str, clients: &At, mark: Value) -> Answer {
        let metadata = json!({"resourceVersion": clients.version, "annotations": {RELEASING: mark}});
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let api = self.api::<EgressClients>(namespace);
        let written = api.patch(&clients.name, &PatchParams::default(), &patch).await;
        settle(&api, clients, written, gone::<EgressClients>(namespace)).await
    }

    /// Deletes exactly this object at exactly this version.
    async fn delete<K: Owned>(&self, namespace: &str, at: &At) -> Answer {
        let (api, gone) = (self.api::<K>(namespace), gone::<K>(namespace));
        match api.delete(&at.name, &exactly(at)).await {
            Ok(_) => Ok((Outcome::Done, Some(gone(at.clone())))),
            Err(kube::Error::Api(status)) if status.code == 404 => {
                Ok((Outcome::Done, Some(gone(at.clone()))))
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let there = api.get_opt(&at.name).await?;
                Ok((Outcome::Superseded, Some(there.map_or_else(|| gone(at.clone()), Observation::is))))
            }
            Err(error) => Err(error),
        }
    }
}

fn gone<K: Kind>(namespace: &str) -> impl Fn(At) -> Observation + use<K> {
    let namespace = namespace.to_owned();
    move |at| Observation::gone_from::<K>(&namespace, at)
}

/// Records what the API server refuses, so that the Egress reports it, and when it stops refusing.
fn noted(of: &Of, kind: ChildKind, answer: Answer) -> Answer {
    let refusal = |message| Refusal { egress: of.key(), of: (of.uid.clone(), of.generation), kind, message };
    match answer {
        Err(kube::Error::Api(status)) if REFUSALS.contains(&status.code) => {
            let words: String = status.message.chars().take(WORDS).collect();
            let note = refusal(Some(words.clone()));
            let observed = Observation::new(move |world: &mut World| world.egress_mut().note(note));
            Ok((Outcome::Failed(words), Some(observed)))
        }
        Ok((Outcome::Done, observed)) => {
            let note = refusal(None);
            let accepted = Observation::new(move |world: &mut World| {
                let known = world.egress().refusals.get(&note.egress);
                if known.is_some_and(|known| known.kind == note.kind && known.message.is_some()) {
                    world.egress_mut().note(note);
                }
            });
            Ok((Outcome::Done, Observation::all(observed.into_iter().chain([accepted]).collect())))
        }
        other => other,
    }
}
