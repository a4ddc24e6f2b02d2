//! Writes what this node wants: one write for all that changed, guarded by the generation that was read.

use std::sync::Arc;

use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use tenure_api::cloud::{NodeAliases, NodeAliasesSpec};
use tenure_watch::{CallError, Epoch, Heard, Identity, json_patch};

use super::source::{KnownObject, Shared};
use crate::objects::lock;

/// So many writes in a row that find another object are no coincidence.
const CONFLICTS: usize = 5;

impl Shared {
    /// Writes what changed, all of it at once.
    pub(super) async fn write_behind(self: Arc<Self>) {
        let (mut backoff, mut conflicts) = (self.connection.backoff(), 0);
        loop {
            self.dirty.notified().await;
            tokio::time::sleep(self.options.debounce).await;
            while let Some(spec) = self.unwritten() {
                match self.write(spec).await {
                    Ok(()) => {
                        backoff.reset();
                        conflicts = 0;
                        // What came meanwhile waits for more, too.
                        tokio::time::sleep(self.options.debounce).await;
                    }
                    Err(error) if (error.is_conflict() || error.is_missing()) && conflicts < CONFLICTS => {
                        conflicts += 1;
                        self.read_object().await;
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the alias ranges that this node wants cannot be written yet");
                        self.act(|state| state.not_written(&error.to_string()));
                        backoff.wait().await;
                        self.read_object().await;
                        conflicts = 0;
                    }
                }
            }
        }
    }

    fn unwritten(&self) -> Option<NodeAliasesSpec> {
        lock(&self.state).unwritten()
    }

    async fn write(&self, spec: NodeAliasesSpec) -> Result<(), CallError> {
        let (api, name) = (self.api(), &self.name);
        let (call, known) = {
            let objects = lock(&self.objects);
            let known = objects.facts(name).and_then(|known| known.generation);
            (objects.epoch(), known.zip(objects.uid(name).map(str::to_owned)))
        };
        let act = || format!("writing NodeAliases {name:?}");
        let written = match known {
            None => {
                let object = NodeAliases::new(name, spec);
                let plain = PostParams::default();
                self.insist(act, || api.create(&plain, &object)).await?
            }
            Some((generation, uid)) => {
                let operations = json!([
                    {"op": "test", "path": "/metadata/uid", "value": uid},
                    {"op": "test", "path": "/metadata/generation", "value": generation},
                    {"op": "replace", "path": "/spec", "value": spec},
                ]);
                self.insist(act, || json_patch(&api, name, operations.clone())).await?
            }
        };
        self.show(call, &written);
        Ok(())
    }

    /// Reads this node's object, where the watch may be behind.
    async fn read_object(&self) {
        let (api, name) = (self.api(), &self.name);
        let call = lock(&self.objects).epoch();
        let act = || format!("reading NodeAliases {name:?}");
        match self.insist(act, || api.get_opt(name)).await {
            Ok(Some(object)) => self.show(call, &object),
            Ok(None) => {
                let uid = lock(&self.objects).uid(name).map(str::to_owned);
                if let Some(uid) = uid {
                    self.hear_object(Heard::Gone(name.clone(), uid));
                }
            }
            Err(error) => tracing::warn!(%error, "the alias ranges of this node cannot be read"),
        }
    }

    /// Processes the object from the answer to a call of this epoch.
    fn show(&self, call: Epoch, object: &NodeAliases) {
        let (identity, known) = (Identity::named(&object.metadata), KnownObject::of(object));
        self.hear_object(Heard::Answered(call, identity, Some(known)));
    }

    fn api(&self) -> Api<NodeAliases> {
        Api::all(self.connection.client())
    }
}
