//! Binding a pod to a node.

use serde_json::{Value, json};

use super::Writer;
use crate::meta;
use crate::schema::{Cause, Path};
use crate::status::{Grouped, Status, quote};
use crate::store::Key;

impl Writer<'_> {
    /// Binds the pod `name` to the node that the binding names, unless it already has one.
    pub(crate) async fn bind(&self, namespace: &str, name: &str, binding: &Value) -> Result<(), Status> {
        let node = binding["target"]["name"].as_str().unwrap_or_default();
        if node.is_empty() {
            let cause = Cause::required(&Path::Text("target.name"), "");
            let given = meta::text(binding, "name");
            return Err(Status::invalid(Grouped { group: "", name: "Binding" }, given, &[cause]));
        }
        let key = Key::new(namespace, name);
        loop {
            let latest = self.core.store.latest(&self.resource.collection, &key);
            let Some(existing) = latest.object else {
                let status = Status::not_found(Grouped { group: "", name: "pods" }, name);
                return Err(self.refuse(latest.settled_at, status).await);
            };
            let bound = existing.value["spec"]["nodeName"].as_str().unwrap_or_default();
            let why = if existing.is_terminating() {
                format!("pod {name} is being deleted, cannot be assigned to a host")
            } else if bound.is_empty() {
                String::new()
            } else {
                format!("pod {name} is already assigned to node {}", quote(bound))
            };
            if !why.is_empty() {
                let status = Status::conflict(Grouped { group: "", name: "pods/binding" }, name, &why);
                return Err(self.refuse(latest.settled_at, status).await);
            }
            if self.options.dry_run {
                return Ok(());
            }
            let mut value = existing.value.clone();
            value["spec"]["nodeName"] = json!(node);
            schedule(&mut value, &self.core.now());
            if self.commit(&key, Some(existing.version), value, false, Vec::new()).await?.is_some() {
                return Ok(());
            }
        }
    }
}

fn schedule(pod: &mut Value, now: &str) {
    let condition =
        json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now});
    let conditions = &mut pod["status"]["conditions"];
    match conditions.as_array_mut() {
        None => *conditions = json!([condition]),
        Some(list) => match list.iter_mut().find(|one| one["type"] == "PodScheduled") {
            Some(existing) => *existing = condition,
            None => list.push(condition),
        },
    }
}
