//! A stand-in for KubeVirt's controllers: it watches machines, instances and migrations, and makes launcher pods with the
//! labels, annotations, owners and finalizers that KubeVirt gives them, in its order of events. Nothing runs in them.
//!
//! | what a person does | what happens |
//! |---|---|
//! | machine with `runStrategy: Always` | instance (owned by the machine, finalizer), launcher pod (owned by the instance) |
//! | `runStrategy: Halted` | instance deleted; its pods are deleted; its finalizer goes when they are gone |
//! | instance deleted | the same, and the machine makes another |
//! | migration | second launcher pod on another node; when it has its networks: the signals on it, then the first one finishes |
//! | migration deleted before that | second launcher pod deleted |
//! | interface added to the machine, or `state: absent` | the instance, then the pod's annotation; at last the machine's list |
//! | machine deleted | instance deleted; the machine's finalizer goes when the instance is gone |
//!
//! Everything is decided from what is there, so a step that was lost to a conflict is done at the next look.

pub mod kinds;
mod launcher;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::stream::{self, StreamExt as _};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tenure_handles::{Clock as _, SystemClock};
use tenure_testbed::cluster::Cluster;

use kinds::Kind;
use launcher::Launcher;

/// On a machine, until its instance is gone.
const OF_MACHINE: &str = "kubevirt.io/virtualMachineControllerFinalize";
/// On an instance, until its pods are gone.
const OF_INSTANCE: &str = "foregroundDeleteVirtualMachine";
/// On a migration: the target gets no signal as long as this is there. The test's own.
pub const HOLD: &str = "test/hold";
/// Steps that failed are looked at again after this.
const AGAIN: Duration = Duration::from_millis(500);

/// Namespace and name of a machine, its instance and their pods.
type Name = (String, String);

/// The stand-in, and what it has heard.
pub struct KubeVirt<'c> {
    cluster: &'c Cluster,
    client: Client,
    seen: BTreeMap<(Kind, String, String), DynamicObject>,
}

impl<'c> KubeVirt<'c> {
    pub fn new(cluster: &'c Cluster) -> Result<Self> {
        Ok(Self { cluster, client: cluster.client()?, seen: BTreeMap::new() })
    }

    /// Does what KubeVirt does, as long as nobody drops it.
    pub async fn run(mut self) {
        let watch = |kind: Kind| {
            let config = match kind {
                Kind::Pod => watcher::Config::default().labels("kubevirt.io=virt-launcher"),
                _ => watcher::Config::default(),
            };
            let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind.resource());
            watcher(api, config).map(move |event| (kind, event)).boxed()
        };
        let mut events = stream::select_all(Kind::ALL.map(watch)).ready_chunks(64);
        let mut waiting = BTreeSet::new();
        loop {
            tokio::select! {
                heard = events.next() => {
                    let heard = heard.unwrap_or_default().into_iter();
                    waiting.extend(heard.filter_map(|(kind, event)| self.hear(kind, event.ok()?)).flatten());
                }
                () = tokio::time::sleep(AGAIN), if !waiting.is_empty() => {}
            }
            let looked = waiting.iter().map(|name| async { (name.clone(), self.look(name).await) });
            let looked = futures::future::join_all(looked).await;
            // What failed is looked at again: somebody else has changed the object, or it is gone by now.
            waiting = looked.into_iter().filter(|(_, done)| done.is_err()).map(|(name, _)| name).collect();
        }
    }

    /// Remembers what was heard; whom it concerns.
    fn hear(&mut self, kind: Kind, event: Event<DynamicObject>) -> Option<BTreeSet<Name>> {
        let (object, gone) = match event {
            Event::Apply(object) | Event::InitApply(object) => (object, false),
            Event::Delete(object) => (object, true),
            Event::Init | Event::InitDone => return None,
        };
        let namespace = object.namespace()?;
        let about = match kind {
            Kind::Machine | Kind::Instance => object.name_any(),
            Kind::Migration => text(&object.data["spec"]["vmiName"]),
            Kind::Pod => object.annotations().get("kubevirt.io/domain").cloned().unwrap_or_default(),
        };
        let key = (kind, namespace.clone(), object.name_any());
        if gone {
            self.seen.remove(&key);
        } else {
            self.seen.insert(key, object);
        }
        Some(BTreeSet::from([(namespace, about)]))
    }

    fn get(&self, kind: Kind, (namespace, name): &Name) -> Option<&DynamicObject> {
        self.seen.get(&(kind, namespace.clone(), name.clone()))
    }

    /// All of a kind in the namespace of this name.
    fn of_namespace<'s>(&'s self, kind: Kind, name: &'s Name) -> impl Iterator<Item = &'s DynamicObject> {
        self.seen
            .iter()
            .filter(move |((it, namespace, _), _)| *it == kind && *namespace == name.0)
            .map(|(_, it)| it)
    }

    /// Does whatever a machine, its instance and its migrations need next.
    async fn look(&self, name: &Name) -> Result<()> {
        if let Some(machine) = self.get(Kind::Machine, name) {
            self.machine(machine, name).await?;
        }
        if let Some(instance) = self.get(Kind::Instance, name) {
            let pods = self.launchers(instance, name);
            self.instance(instance, &pods, name).await?;
            for migration in self.of_namespace(Kind::Migration, name) {
                if text(&migration.data["spec"]["vmiName"]) == name.1 {
                    self.migration(migration, instance, &pods, name).await?;
                }
            }
        }
        Ok(())
    }

    async fn machine(&self, machine: &DynamicObject, name: &Name) -> Result<()> {
        let instance = self.get(Kind::Instance, name);
        let machines = Kind::Machine.within(&self.client, &name.0);
        let finalized = machine.finalizers().iter().any(|it| it == OF_MACHINE);
        if machine.metadata.deletion_timestamp.is_some() {
            return match instance {
                Some(instance) => self.delete(Kind::Instance, instance).await,
                None if finalized => without_finalizer(&machines, machine, OF_MACHINE).await,
                None => Ok(()),
            };
        }
        if !finalized {
            let all: Vec<&str> =
                machine.finalizers().iter().map(String::as_str).chain([OF_MACHINE]).collect();
            return patch(&machines, machine, json!({"metadata": {"finalizers": all}})).await;
        }
        let runs = machine.data["spec"]["runStrategy"] == "Always";
        let wanted = &machine.data["spec"]["template"]["spec"];
        match instance {
            None if runs => {
                let instance = json!({
                    "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
                    "metadata": {
                        "name": name.1, "labels": {"kubevirt.io/vm": name.1}, "finalizers": [OF_INSTANCE],
                        "ownerReferences": [Kind::Machine.owner(machine)],
                    },
                    "spec": wanted,
                });
                create(&Kind::Instance.within(&self.client, &name.0), instance).await
            }
            Some(instance) if !runs => self.delete(Kind::Instance, instance).await,
            Some(instance)
                if !devices_are(&instance.data["spec"], wanted) && lacks_nothing(instance, wanted) =>
            {
                let spec = json!({"domain": {"devices": wanted["domain"]["devices"]}, "networks": wanted["networks"]});
                patch(&Kind::Instance.within(&self.client, &name.0), instance, json!({"spec": spec})).await
            }
            _ => Ok(()),
        }
    }

    /// The launcher pods of an instance, in the order of their names.
    fn launchers(&self, instance: &DynamicObject, name: &Name) -> Vec<Launcher<'_>> {
        let uid = instance.uid().unwrap_or_default();
        let pods: Vec<_> = self
            .seen
            .iter()
            .filter(|((kind, namespace, _), _)| *kind == Kind::Pod && *namespace == name.0)
            .collect();
        pods.into_iter()
            .map(|(_, pod)| Launcher(pod))
            .filter(|pod| pod.0.labels().get("kubevirt.io/created-by") == Some(&uid))
            .collect()
    }

    async fn instance(&self, instance: &DynamicObject, pods: &[Launcher<'_>], name: &Name) -> Result<()> {
        let instances = Kind::Instance.within(&self.client, &name.0);
        let of_pods = Kind::Pod.within(&self.client, &name.0);
        let finalized = instance.finalizers().iter().any(|it| it == OF_INSTANCE);
        let active: BTreeMap<String, String> = pods.iter().filter_map(Launcher::place).collect();
        let known: BTreeMap<String, String> =
            serde_json::from_value(instance.data["status"]["activePods"].clone()).unwrap_or_default();
        if active != known {
            let gone = known.keys().filter(|uid| !active.contains_key(*uid));
            let mut all = json!(active);
            gone.for_each(|uid| all[uid] = Value::Null);
            patch(&instances, instance, json!({"status": {"activePods": all}})).await?;
        }
        if instance.metadata.deletion_timestamp.is_some() {
            for pod in pods {
                self.delete(Kind::Pod, pod.0).await?;
            }
            return if pods.is_empty() && finalized {
                without_finalizer(&instances, instance, OF_INSTANCE).await
            } else {
                Ok(())
            };
        }
        if !finalized {
            // A person made it, without a machine.
            let all: Vec<&str> =
                instance.finalizers().iter().map(String::as_str).chain([OF_INSTANCE]).collect();
            return patch(&instances, instance, json!({"metadata": {"finalizers": all}})).await;
        }
        if pods.is_empty() {
            let uid = instance.uid().context("a UID")?;
            return create(&of_pods, launcher::pod(instance, &uid, None, "")?).await;
        }
        let networks = launcher::networks(instance)?;
        for pod in pods.iter().filter(|pod| !pod.finished() && pod.selected() != networks) {
            let annotations = json!({launcher::NETWORKS: networks});
            patch(&of_pods, pod.0, json!({"metadata": {"annotations": annotations}})).await?;
        }
        self.unplugged(instance, pods, name).await?;
        let running = pods
            .iter()
            .find(|pod| pod.attached() && !pod.is_target() && instance.data["status"]["nodeName"].is_null());
        if let Some(pod) = running {
            self.runs_at(instance, pod, pods).await?;
        }
        Ok(())
    }

    /// The machine runs in a pod: the instance says so, and so do its pods' labels.
    async fn runs_at(
        &self,
        instance: &DynamicObject,
        at: &Launcher<'_>,
        pods: &[Launcher<'_>],
    ) -> Result<()> {
        let namespace = instance.namespace().unwrap_or_default();
        let node = at.node().context("a node")?;
        let labels = json!({"labels": {"kubevirt.io/nodeName": node}});
        for pod in pods.iter().filter(|pod| !pod.finished()) {
            patch(&Kind::Pod.within(&self.client, &namespace), pod.0, json!({"metadata": labels})).await?;
        }
        let runs = json!({"metadata": labels, "status": {"phase": "Running", "nodeName": node, "launcher": at.0.name_any()}});
        patch(&Kind::Instance.within(&self.client, &namespace), instance, runs).await
    }

    /// What is absent goes from the lists of instance and machine when no pod has it any more.
    async fn unplugged(&self, instance: &DynamicObject, pods: &[Launcher<'_>], name: &Name) -> Result<()> {
        let without = |spec: &Value| {
            let gone: Vec<&Value> = list(&spec["domain"]["devices"]["interfaces"])
                .filter(|it| it["state"] == "absent")
                .filter(|it| {
                    let interface = it["name"].as_str().and_then(|name| kinds::interface_of(name).ok());
                    !pods.iter().any(|pod| pod.has(interface.unwrap_or_default()))
                })
                .map(|it| &it["name"])
                .collect();
            if gone.is_empty() {
                return None;
            }
            let stay =
                |all: &Value| json!(list(all).filter(|it| !gone.contains(&&it["name"])).collect::<Vec<_>>());
            let interfaces = stay(&spec["domain"]["devices"]["interfaces"]);
            Some(
                json!({"domain": {"devices": {"interfaces": interfaces}}, "networks": stay(&spec["networks"])}),
            )
        };
        // The machine first: what is in its list and not in the instance's would be plugged in again.
        if let Some(machine) = self.get(Kind::Machine, name)
            && let Some(spec) = without(&machine.data["spec"]["template"]["spec"])
        {
            let machines = Kind::Machine.within(&self.client, &name.0);
            patch(&machines, machine, json!({"spec": {"template": {"spec": spec}}})).await?;
        }
        if let Some(spec) = without(&instance.data["spec"]) {
            patch(&Kind::Instance.within(&self.client, &name.0), instance, json!({"spec": spec})).await?;
        }
        Ok(())
    }

    async fn migration(
        &self,
        migration: &DynamicObject,
        instance: &DynamicObject,
        pods: &[Launcher<'_>],
        name: &Name,
    ) -> Result<()> {
        let uid = migration.uid().context("a UID")?;
        let of_pods = Kind::Pod.within(&self.client, &name.0);
        let target = pods.iter().find(|pod| pod.migration() == Some(&uid));
        let done = migration.data["status"]["phase"] == "Succeeded";
        let handed_over = target.is_some_and(|target| target.0.annotations().contains_key(launcher::READY));
        if migration.metadata.deletion_timestamp.is_some() {
            // Only before the machine runs there can it be taken back.
            if let Some(target) = target.filter(|_| !handed_over) {
                self.delete(Kind::Pod, target.0).await?;
            }
            return without_finalizer(
                &Kind::Migration.within(&self.client, &name.0),
                migration,
                OF_MIGRATION,
            )
            .await;
        }
        let from = instance.data["status"]["nodeName"].as_str();
        let (Some(from), false, None) = (from, done, &instance.metadata.deletion_timestamp) else {
            return Ok(());
        };
        let Some(target) = target else {
            return create(&of_pods, launcher::pod(instance, &uid, Some(&migration.name_any()), from)?).await;
        };
        let held = migration.annotations().contains_key(HOLD);
        if target.attached() && !handed_over && !held {
            let now = SystemClock.now().to_jiff().to_string();
            let node = target.node().context("a node")?;
            let signals =
                json!({"annotations": {launcher::READY: now}, "labels": {"kubevirt.io/nodeName": node}});
            return patch(&of_pods, target.0, json!({"metadata": signals})).await;
        }
        if handed_over {
            self.runs_at(instance, target, pods).await?;
            for source in pods.iter().filter(|pod| pod.0.name_any() != target.0.name_any() && !pod.finished())
            {
                let source = source.0.name_any();
                let done = ["exec", "-n", &name.0, &source, "--", "touch", launcher::DONE];
                self.cluster.kubectl(&done).await?;
            }
            let migrations = Kind::Migration.within(&self.client, &name.0);
            let status = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
            migrations.patch_status(&migration.name_any(), &PatchParams::default(), &status).await?;
        }
        Ok(())
    }

    /// Deletes the very object, if that has not been done yet.
    async fn delete(&self, kind: Kind, object: &DynamicObject) -> Result<()> {
        if object.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let preconditions = Some(Preconditions { uid: object.uid(), ..Preconditions::default() });
        let only_this = DeleteParams { preconditions, ..DeleteParams::default() };
        let api = kind.within(&self.client, &object.namespace().unwrap_or_default());
        settled(api.delete(&object.name_any(), &only_this).await.map(drop), &[404])
    }
}

/// On a migration, until it is taken back.
const OF_MIGRATION: &str = "kubevirt.io/migrationJobFinalize";

/// A migration, as a person asks for it.
pub fn migration(name: &str, of: &str, held: bool) -> Value {
    let annotations = if held { json!({HOLD: "true"}) } else { json!({}) };
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": name, "annotations": annotations, "finalizers": [OF_MIGRATION]},
        "spec": {"vmiName": of},
    })
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn devices_are(one: &Value, other: &Value) -> bool {
    one["domain"]["devices"] == other["domain"]["devices"] && one["networks"] == other["networks"]
}

/// Whether the machine's list can be the instance's: one that lacks an interface that the instance has is not newer, but has been
/// cleared of what was unplugged, and the instance will be in a moment.
fn lacks_nothing(instance: &DynamicObject, wanted: &Value) -> bool {
    let names =
        |spec: &Value| -> BTreeSet<String> { list(&spec["networks"]).map(|it| text(&it["name"])).collect() };
    names(&instance.data["spec"]).is_subset(&names(wanted))
}

async fn create(api: &Api<DynamicObject>, object: Value) -> Result<()> {
    let object: DynamicObject = serde_json::from_value(object)?;
    settled(api.create(&PostParams::default(), &object).await.map(drop), &[409])
}

/// Changes the object if it is still as it was seen.
async fn patch(api: &Api<DynamicObject>, object: &DynamicObject, mut patch: Value) -> Result<()> {
    patch["metadata"]["resourceVersion"] = json!(object.resource_version());
    let version = Patch::Merge(without_version_for(object, patch));
    settled(api.patch(&object.name_any(), &PatchParams::default(), &version).await.map(drop), &[404])
}

/// Pods change all the time by their kubelets; nobody else changes what is changed of them here.
fn without_version_for(object: &DynamicObject, mut patch: Value) -> Value {
    if object.types.as_ref().is_none_or(|types| types.kind == "Pod")
        && let Some(metadata) = patch["metadata"].as_object_mut()
    {
        metadata.remove("resourceVersion");
        metadata.insert("uid".to_owned(), json!(object.uid()));
    }
    patch
}

async fn without_finalizer(api: &Api<DynamicObject>, object: &DynamicObject, finalizer: &str) -> Result<()> {
    let stay: Vec<&String> = object.finalizers().iter().filter(|it| *it != finalizer).collect();
    patch(api, object, json!({"metadata": {"finalizers": stay}})).await
}

/// Takes these answers for good: what was to be done is so.
fn settled(outcome: kube::Result<()>, fine: &[u16]) -> Result<()> {
    match outcome {
        Err(kube::Error::Api(status)) if fine.contains(&status.code) => Ok(()),
        outcome => Ok(outcome?),
    }
}
