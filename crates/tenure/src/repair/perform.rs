//! Performs one step: reads live what its safety depends on, and writes with the guard of what was read.

use anyhow::{Context, Result};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};
use tenure_api::coil::FINALIZER;

use super::plan::verdict;
use super::step::{Object, Operation, Step, Verdict};
use crate::check::Difference;
use crate::query::Source;
use crate::snapshot::Snapshot;

/// How often a step is tried whose object others change meanwhile.
const TRIES: usize = 3;

/// What came of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "outcome", content = "reason")]
pub(crate) enum Outcome {
    /// It is written.
    Done,
    /// Nothing was written, because something else is there than was planned for.
    Skipped(String),
    /// The write failed; nobody knows more than the reason says.
    Failed(String),
}

/// What a guarded write said.
enum Written {
    Yes,
    /// The object is not the one, or not in the version, that was read.
    Stale,
}

/// Performs a step for a finding.
pub(crate) async fn perform(source: &Source, difference: &Difference, step: &Step) -> Outcome {
    let mut step = step.clone();
    let mut again = step.evidence;
    for _ in 0..TRIES {
        if again {
            match planned_still(source, difference, &step).await {
                Ok(Ok(fresh)) => step = fresh,
                Ok(Err(why)) => return Outcome::Skipped(why),
                Err(error) => return Outcome::Failed(format!("{error:#}")),
            }
        }
        match write(source, &step).await {
            Ok(Written::Yes) => return Outcome::Done,
            Ok(Written::Stale) => again = true,
            Err(error) => return Outcome::Failed(format!("{error:#}")),
        }
    }
    Outcome::Skipped("it was changed by somebody else again and again; run `tenure repair` again".to_owned())
}

/// Reads everything again: the step in the present version of its object, if it is still what the plan would be.
async fn planned_still(
    source: &Source,
    difference: &Difference,
    step: &Step,
) -> Result<Result<Step, String>> {
    let now = Snapshot::of_everything(source).await?;
    Ok(match verdict(&now, difference) {
        Verdict::Repair(fresh) if fresh.is_same(step) => Ok(*fresh),
        Verdict::Repair(_) => Err("something else would be done now; run `tenure repair` again".to_owned()),
        Verdict::Heals(_) => Err("it is gone, or heals by itself now".to_owned()),
        Verdict::Cannot { because, .. } => Err(format!("something changed: {because}")),
    })
}

async fn write(source: &Source, step: &Step) -> Result<Written> {
    let Some(resource) = step.object.resource() else {
        source.agents.restart(&step.object.name).await.map_err(anyhow::Error::msg)?;
        return Ok(Written::Yes);
    };
    let client = source.client()?.clone();
    let api: Api<DynamicObject> = match &step.object.namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    };
    let act = || format!("{}: {}", step.object, step.operation);
    match &step.operation {
        Operation::Carve(block) => return create(source.client()?, block.as_ref(), &act()).await,
        Operation::Reserve(reservation) => {
            return create(source.client()?, reservation.as_ref(), &act()).await;
        }
        _ => {}
    }
    let there = api.get_opt(&step.object.name).await.with_context(act)?;
    let Some(there) = there.filter(|there| is_the_one(there, &step.object)) else {
        return Ok(Written::Stale);
    };
    let metadata = |key: &str, value: Value| json!({"metadata": {key: value}});
    let finalizers = |added: bool| {
        let own = there.finalizers().iter().filter(|it| *it != FINALIZER).cloned();
        let all: Vec<String> = own.chain(added.then(|| FINALIZER.to_owned())).collect();
        metadata("finalizers", json!(all))
    };
    let patch = match &step.operation {
        Operation::AddFinalizer => finalizers(true),
        Operation::RemoveFinalizer => finalizers(false),
        Operation::Label(key, value) => metadata("labels", json!({*key: value})),
        Operation::Annotate(key, value) => metadata("annotations", json!({*key: value})),
        Operation::DropRecords(keys) => {
            let records: serde_json::Map<String, Value> =
                keys.iter().map(|key| (key.clone(), Value::Null)).collect();
            json!({"spec": {"allocations": records}})
        }
        _ => return delete(&api, &there, &act()).await,
    };
    let written = merge(&api, &there, patch).await;
    Ok(if settle(written, &act())?.is_some() { Written::Yes } else { Written::Stale })
}

fn is_the_one(there: &DynamicObject, object: &Object) -> bool {
    there.uid().as_deref() == Some(&object.uid)
        && there.resource_version().as_deref() == Some(&object.resource_version)
}

/// A merge on the version that was read.
async fn merge(
    api: &Api<DynamicObject>,
    there: &DynamicObject,
    mut patch: Value,
) -> kube::Result<DynamicObject> {
    patch["metadata"]["resourceVersion"] = json!(there.resource_version());
    api.patch(&there.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await
}

/// Removes our finalizer on the version that was read, and deletes the version that this made.
async fn delete(api: &Api<DynamicObject>, there: &DynamicObject, act: &str) -> Result<Written> {
    let mut version = there.resource_version();
    let rest: Vec<&String> = there.finalizers().iter().filter(|it| *it != FINALIZER).collect();
    if rest.len() != there.finalizers().len() {
        let stripped = merge(api, there, json!({"metadata": {"finalizers": rest}})).await;
        let Some(stripped) = settle(stripped, act)? else { return Ok(Written::Stale) };
        if there.metadata.deletion_timestamp.is_some() {
            return Ok(Written::Yes);
        }
        version = stripped.resource_version();
    }
    let exactly = Preconditions { uid: there.uid(), resource_version: version };
    let deleted = api.delete(&there.name_any(), &DeleteParams::default().preconditions(exactly)).await;
    Ok(if settle(deleted, act)?.is_some() { Written::Yes } else { Written::Stale })
}

/// The name is the lock: if somebody else creates it first, this does nothing.
async fn create<K>(client: &Client, object: &K, act: &str) -> Result<Written>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + serde::de::DeserializeOwned,
{
    let resource = kube::core::ApiResource::erase::<K>(&());
    let api: Api<DynamicObject> = match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let object: DynamicObject = serde_json::from_value(serde_json::to_value(object)?)?;
    let created = api.create(&PostParams::default(), &object).await;
    Ok(if settle(created, act)?.is_some() { Written::Yes } else { Written::Stale })
}

/// `None` if the object changed, is gone, or is there already.
fn settle<T>(written: kube::Result<T>, act: &str) -> Result<Option<T>> {
    match written {
        Ok(written) => Ok(Some(written)),
        Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => Ok(None),
        Err(error) => Err(anyhow::Error::new(error).context(act.to_owned())),
    }
}
