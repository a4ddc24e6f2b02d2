//! Where a scenario plays: a namespace of its own, with what people do there.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenure_api::claims::IPAMClaim;
use tenure_handles::{Clock as _, SystemClock};
use tenure_testbed::cluster::images;
use tenure_testbed::wait::eventually;

use crate::kubevirt::kinds::{Kind, Nic, devices};
use crate::kubevirt::{HOLD, migration};
use crate::stage::{Family, Stage};
use tenure_tests::networks::NETS;

/// A namespace of a scenario.
pub struct ScenarioNamespace<'s> {
    pub stage: &'s Stage<'s>,
    pub namespace: String,
    pub family: Family,
}

/// A pod with its addresses, by the names of its interfaces.
#[derive(Clone, Debug)]
pub struct Running {
    pub name: String,
    pub uid: String,
    pub node: String,
    pub interfaces: BTreeMap<String, BTreeSet<IpAddr>>,
    /// Hardware addresses of the additional interfaces.
    pub macs: BTreeMap<String, String>,
}

impl<'s> ScenarioNamespace<'s> {
    /// Makes the namespace.
    pub async fn make(stage: &'s Stage<'s>, namespace: String, family: Family) -> Result<Self> {
        let annotations = match family.pool() {
            Some(pool) => json!({"coil.cybozu.com/pool": pool}),
            None => json!({}),
        };
        let metadata = json!({"name": namespace, "annotations": annotations});
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(stage.client.clone());
        namespaces.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        Ok(Self { stage, namespace, family })
    }

    pub fn claims(&self) -> Api<IPAMClaim> {
        Api::namespaced(self.stage.client.clone(), &self.namespace)
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.stage.client.clone(), &self.namespace)
    }

    pub fn objects(&self, kind: Kind) -> Api<DynamicObject> {
        kind.within(&self.stage.client, &self.namespace)
    }

    /// The networks of a machine: the pods' own, one that is not sliced and one that is, all of the place's family.
    pub fn nics(&self) -> Vec<Nic> {
        let additional = self.family.networks().map(|name| Nic::on(name, &format!("{NETS}/{name}")));
        [Nic::of_pods()].into_iter().chain(additional).collect()
    }

    /// Creates a machine that runs.
    pub async fn create_machine(&self, name: &str, nics: &[Nic]) -> Result<()> {
        let machine = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name},
            "spec": {"runStrategy": "Always", "template": {"metadata": {}, "spec": devices(nics)}},
        });
        self.objects(Kind::Machine).create(&PostParams::default(), &serde_json::from_value(machine)?).await?;
        Ok(())
    }

    /// Creates an instance without a machine.
    pub async fn create_instance(&self, name: &str, nics: &[Nic]) -> Result<()> {
        let instance = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": name},
            "spec": devices(nics),
        });
        self.objects(Kind::Instance)
            .create(&PostParams::default(), &serde_json::from_value(instance)?)
            .await?;
        Ok(())
    }

    pub async fn change_machine(&self, name: &str, change: Value) -> Result<()> {
        let patch = Patch::Merge(change);
        self.objects(Kind::Machine).patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Stops a machine; returns when its instance is gone.
    pub async fn stop(&self, name: &str) -> Result<()> {
        self.change_machine(name, json!({"spec": {"runStrategy": "Halted"}})).await?;
        self.is_gone(Kind::Instance, name).await
    }

    /// Starts a machine, on a node if one is named.
    pub async fn start(&self, name: &str, node: Option<&str>) -> Result<()> {
        let selector = node.map(|node| json!({"kubernetes.io/hostname": node}));
        let template = json!({"spec": {"nodeSelector": selector}});
        self.change_machine(name, json!({"spec": {"runStrategy": "Always", "template": template}})).await
    }

    /// Ends the instance that runs; the machine makes another.
    pub async fn restart(&self, name: &str) -> Result<()> {
        let before = self.objects(Kind::Instance).get(name).await?.uid();
        self.delete(Kind::Instance, name, PropagationPolicy::Background).await?;
        eventually(&format!("another instance of {name}"), async || {
            let now = self.objects(Kind::Instance).get_opt(name).await?;
            Ok(now.filter(|now| now.uid() != before).map(drop))
        })
        .await
    }

    /// Asks for a migration; `held` ones get no further than that the target has its networks.
    pub async fn migrate(&self, name: &str, of: &str, held: bool) -> Result<()> {
        let object = serde_json::from_value(migration(name, of, held))?;
        self.objects(Kind::Migration).create(&PostParams::default(), &object).await?;
        Ok(())
    }

    /// Lets a migration go on.
    pub async fn go_on(&self, migration: &str) -> Result<()> {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {HOLD: null}}}));
        self.objects(Kind::Migration).patch(migration, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    pub async fn delete(&self, kind: Kind, name: &str, policy: PropagationPolicy) -> Result<()> {
        let params = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        self.objects(kind).delete(name, &params).await?;
        Ok(())
    }

    pub async fn is_gone(&self, kind: Kind, name: &str) -> Result<()> {
        eventually(&format!("{kind:?} {name} is gone"), async || {
            Ok(self.objects(kind).get_opt(name).await?.is_none().then_some(()))
        })
        .await
    }

    /// The launcher pod in which a machine runs, with its networks. Not `other`, if that is one.
    pub async fn runs(&self, name: &str, other: Option<&Running>) -> Result<Running> {
        let launcher = eventually(&format!("{name} runs"), async || {
            let instance = self.objects(Kind::Instance).get_opt(name).await?;
            let launcher = instance.and_then(|it| it.data["status"]["launcher"].as_str().map(str::to_owned));
            if launcher.is_none() {
                bail!("{}", self.troubles().await?);
            }
            Ok(launcher.filter(|launcher| other.is_none_or(|other| other.name != *launcher)))
        })
        .await?;
        self.pod_runs(&launcher).await
    }

    /// What pods of the place wait for: for whoever reads that something did not happen.
    async fn troubles(&self) -> Result<String> {
        let mut words = Vec::new();
        for pod in self.pods().list(&kube::api::ListParams::default()).await?.items {
            let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
            let seen = self.stage.multus.seen(&pod.uid().unwrap_or_default());
            let field = format!("involvedObject.uid={}", pod.uid().unwrap_or_default());
            let events: Api<k8s_openapi::api::core::v1::Event> =
                Api::namespaced(self.stage.client.clone(), &self.namespace);
            let told = events.list(&kube::api::ListParams::default().fields(&field)).await?;
            let told = told.items.into_iter().filter_map(|it| it.message).rfind(|it| it.contains("fail"));
            words.push(format!(
                "{} is {phase}: {:?} {:?}",
                pod.name_any(),
                seen.refusal,
                told.unwrap_or_default()
            ));
        }
        Ok(if words.is_empty() { "there is no pod".to_owned() } else { words.join("; ") })
    }

    /// Waits until a pod runs and has all networks that it selects.
    pub async fn pod_runs(&self, name: &str) -> Result<Running> {
        let what = format!("pod {}/{name} runs with its networks", self.namespace);
        eventually(&what, async || match self.running(name).await? {
            Some(running) => Ok(Some(running)),
            None => bail!("{}", self.troubles().await?),
        })
        .await
    }

    /// A pod, if it runs and has its networks.
    pub async fn running(&self, name: &str) -> Result<Option<Running>> {
        let Some(pod) = self.pods().get_opt(name).await? else { return Ok(None) };
        let (uid, status) = (pod.uid().context("a UID")?, pod.status.clone().unwrap_or_default());
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let (Some(node), Some("Running")) = (node, status.phase.as_deref()) else { return Ok(None) };
        let mut own = BTreeSet::new();
        for ip in status.pod_ips.unwrap_or_default() {
            own.insert(ip.ip.parse()?);
        }
        if own.is_empty() {
            return Ok(None);
        }
        let mut interfaces = BTreeMap::from([("eth0".to_owned(), own)]);
        let mut macs = BTreeMap::new();
        if let Some(selected) = pod.annotations().get(tenure_tests::caller::SELECTED) {
            let seen = self.stage.multus.seen(&uid);
            let count = if selected.contains('[') {
                serde_json::from_str::<Vec<Value>>(selected)?.len()
            } else {
                selected.split(',').count()
            };
            if seen.refusal.is_some() || seen.interfaces.len() != count {
                return Ok(None);
            }
            for (interface, given) in seen.interfaces {
                interfaces
                    .insert(interface.clone(), given.addresses.iter().map(ipnet::IpNet::addr).collect());
                macs.insert(interface, given.mac);
            }
        }
        Ok(Some(Running { name: name.to_owned(), uid, node, interfaces, macs }))
    }

    /// Creates a pod that sleeps, with these annotations, on a node if one is named.
    pub async fn create_pod(&self, name: &str, annotations: &Value, node: Option<&str>) -> Result<()> {
        let pod = json!({
            "metadata": {"name": name, "annotations": annotations},
            "spec": pod_spec(node, "trap 'exit 0' TERM; until [ -e /tmp/done ]; do sleep 0.2 & wait $!; done"),
        });
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        Ok(())
    }

    /// Deletes a pod; returns when it is gone and all its networks were taken away.
    pub async fn delete_pod(&self, name: &str) -> Result<()> {
        let Some(pod) = self.pods().get_opt(name).await? else { return Ok(()) };
        self.pods().delete(name, &DeleteParams::default()).await?;
        self.pod_is_gone(name, &pod.uid().context("a UID")?).await
    }

    /// Waits until a pod is gone, and all that it had was taken away.
    pub async fn pod_is_gone(&self, name: &str, uid: &str) -> Result<()> {
        eventually(&format!("pod {name} is gone"), async || {
            let now = self.pods().get_opt(name).await?;
            let seen = self.stage.multus.seen(uid);
            let taken = seen.ended || seen.interfaces.is_empty();
            Ok((now.is_none_or(|now| now.uid().as_deref() != Some(uid)) && taken).then_some(()))
        })
        .await
    }

    /// Creates a claim as a person does: nobody owns it.
    pub async fn create_claim(&self, name: &str, network: &str, annotations: &Value) -> Result<IPAMClaim> {
        let claim = json!({
            "apiVersion": "k8s.cni.cncf.io/v1alpha1", "kind": "IPAMClaim",
            "metadata": {"name": name, "annotations": annotations}, "spec": {"network": network, "interface": ""},
        });
        Ok(self.claims().create(&PostParams::default(), &serde_json::from_value(claim)?).await?)
    }
}

/// What a pod of a scenario is made of.
pub fn pod_spec(node: Option<&str>, command: &str) -> Value {
    let selector = node.map(|node| json!({"kubernetes.io/hostname": node}));
    json!({
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "automountServiceAccountToken": false,
        "nodeSelector": selector,
        "containers": [{"name": "c", "image": images::BUSYBOX, "command": ["sh", "-c", command]}],
    })
}

/// Nothing of what was asked for changes for so long.
pub async fn stays<T: PartialEq + std::fmt::Debug>(
    what: &str,
    so_long: Duration,
    mut get: impl AsyncFnMut() -> Result<T>,
) -> Result<()> {
    let (start, before) = (SystemClock.now(), get().await?);
    while SystemClock.now().since(start) < so_long {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = get().await.with_context(|| what.to_owned())?;
        ensure!(now == before, "{what}: it was {before:?} and is {now:?}");
    }
    Ok(())
}
