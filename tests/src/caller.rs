//! A caller that does with a delegate what Multus does.
//!
//! It reads which networks a pod selects, takes the configuration of each from its definition, puts in the name if there is
//! none, and calls the main plugin on the pod's node with the sandbox's id and namespace and the pod's names. If one fails,
//! those before it are taken back. What came of it goes into the pod's network status; DELs are done in the reverse order with
//! what was remembered, and not with what the definitions say by then.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tenure_api::networks::NetworkAttachmentDefinition;
use tenure_testbed::cluster::{Cluster, Node};
use tenure_testbed::hosts::NetworkNamespace;

use crate::cri::Runtime;

pub const SELECTED: &str = "k8s.v1.cni.cncf.io/networks";
const STATUS: &str = "k8s.v1.cni.cncf.io/network-status";

/// A pod and its additional networks.
pub struct Attached<'c> {
    pub node: &'c Node,
    pub namespace: String,
    pub name: String,
    uid: String,
    /// The sandbox.
    pub container: String,
    netns: String,
    /// The pod's network namespace, for the test.
    pub inside: NetworkNamespace,
    pub delegates: Vec<Delegate>,
    /// Where configurations are written to.
    scratch: PathBuf,
}

/// One of its additional networks.
#[derive(Clone, Debug)]
pub struct Delegate {
    /// Namespace and name of the definition.
    pub definition: String,
    pub ifname: String,
    /// The main plugins' configurations, one after the other.
    chain: Vec<Value>,
    /// What the last one answered.
    pub result: Value,
}

/// What a pod wants: namespace and name of a definition, and the interface's name if it is said.
type Selection = (String, String, Option<String>);

/// The networks that a pod selects: as JSON, or with commas between.
fn selections(text: &str, namespace: &str) -> Result<Vec<Selection>> {
    let text_of = |value: &Value| value.as_str().map(str::to_owned);
    if text.contains(['[', '{', '"']) {
        let list: Vec<Value> = serde_json::from_str(text)?;
        let one = |it: &Value| {
            let own = text_of(&it["namespace"]).unwrap_or_else(|| namespace.to_owned());
            Ok((own, text_of(&it["name"]).context("a name")?, text_of(&it["interface"])))
        };
        return list.iter().map(one).collect();
    }
    let one = |part: &str| {
        let (network, ifname) = part.split_once('@').map_or((part, None), |(net, name)| (net, Some(name)));
        let (namespace, name) = network.split_once('/').unwrap_or((namespace, network));
        (namespace.to_owned(), name.to_owned(), ifname.map(str::to_owned))
    };
    Ok(text.split(',').map(str::trim).map(one).collect())
}

/// The configurations of a definition, as a runtime passes them to plugins: list or not.
fn chain_of(definition: &NetworkAttachmentDefinition) -> Result<Vec<Value>> {
    let mut config: Value = serde_json::from_str(&definition.spec.config)?;
    if config["name"].is_null() {
        config["name"] = json!(definition.name_any());
    }
    let Some(plugins) = config["plugins"].as_array() else { return Ok(vec![config]) };
    let one = |plugin: &Value| {
        let mut plugin = plugin.clone();
        (plugin["name"], plugin["cniVersion"]) = (config["name"].clone(), config["cniVersion"].clone());
        plugin
    };
    Ok(plugins.iter().map(one).collect())
}

/// The networks that a pod selects, none of them attached yet.
pub async fn delegates(client: &Client, pod: &Pod) -> Result<Vec<Delegate>> {
    let namespace = pod.namespace().unwrap_or_default();
    let selected = pod.annotations().get(SELECTED).context("no networks are selected")?;
    let mut delegates = Vec::new();
    for ((namespace, name, ifname), index) in selections(selected, &namespace)?.into_iter().zip(1..) {
        let definitions: Api<NetworkAttachmentDefinition> = Api::namespaced(client.clone(), &namespace);
        let chain = chain_of(&definitions.get(&name).await?)?;
        delegates.push(Delegate {
            definition: format!("{namespace}/{name}"),
            ifname: ifname.unwrap_or_else(|| format!("net{index}")),
            chain,
            result: Value::Null,
        });
    }
    Ok(delegates)
}

/// A pod that runs, with what it selects and nothing attached yet.
pub async fn find<'c>(cluster: &'c Cluster, namespace: &str, name: &str) -> Result<Attached<'c>> {
    let client = cluster.client()?;
    let pod = Api::<Pod>::namespaced(client.clone(), namespace).get(name).await?;
    let spec = pod.spec.as_ref().context("a spec")?;
    let node =
        cluster.nodes().find(|node| spec.node_name.as_deref() == Some(node.name())).context("a node")?;
    let uid = pod.uid().context("a UID")?;
    let runtime = Runtime::new(&node.path("/run/containerd/containerd.sock")?, node.cgroup());
    let (container, netns) = tokio::task::block_in_place(|| runtime.sandbox_of(&uid)).context(uid.clone())?;
    let delegates = delegates(&client, &pod).await?;
    // The same as the runtime names it, without a link that leads out of the node's own files.
    let own = netns.replacen("/var/run/", "/run/", 1);
    Ok(Attached {
        node,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid,
        container,
        inside: NetworkNamespace::open(name, &node.path(own)?)?,
        netns,
        delegates,
        scratch: cluster.directory().to_owned(),
    })
}

impl Attached<'_> {
    /// As records name the pod.
    pub fn podref(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Attaches all networks, or none.
    pub fn add(&mut self) -> Result<()> {
        for index in 0..self.delegates.len() {
            if let Err(failed) = self.add_one(index) {
                let taken_back = self.del_first(index + 1, &self.netns);
                return Err(failed.context(format!("all were taken back: {taken_back:?}")));
            }
        }
        Ok(())
    }

    /// Attaches one network.
    pub fn add_one(&mut self, index: usize) -> Result<()> {
        let mut previous = Value::Null;
        for config in self.delegates[index].chain.clone() {
            previous = self.call("ADD", index, &config, &previous, &self.netns)?;
        }
        self.delegates[index].result = previous;
        Ok(())
    }

    /// CHECK of all networks.
    pub fn check(&self) -> Result<()> {
        for (index, delegate) in self.delegates.iter().enumerate() {
            // Versions before 0.4.0 have no CHECK.
            for config in delegate.chain.iter().filter(|config| remembers(config)) {
                self.call("CHECK", index, config, &delegate.result, &self.netns)?;
            }
        }
        Ok(())
    }

    /// DEL of all networks, the last one first.
    pub fn del(&self) -> Result<()> {
        self.del_first(self.delegates.len(), &self.netns)
    }

    /// The same, for a pod that is gone with its namespace.
    pub fn del_late(&self) -> Result<()> {
        self.del_first(self.delegates.len(), "")
    }

    fn del_first(&self, count: usize, netns: &str) -> Result<()> {
        (0..count).rev().try_for_each(|index| self.del_of(index, netns))
    }

    /// DEL of one network.
    pub fn del_one(&self, index: usize) -> Result<()> {
        self.del_of(index, &self.netns)
    }

    fn del_of(&self, index: usize, netns: &str) -> Result<()> {
        let delegate = &self.delegates[index];
        for config in delegate.chain.iter().rev() {
            self.call("DEL", index, config, &delegate.result, netns)?;
        }
        Ok(())
    }

    /// Calls a main plugin on the pod's node.
    fn call(&self, verb: &str, index: usize, config: &Value, previous: &Value, netns: &str) -> Result<Value> {
        let delegate = &self.delegates[index];
        let mut config = config.clone();
        if !previous.is_null() && remembers(&config) {
            config["prevResult"] = previous.clone();
        }
        let input = self.scratch.join(format!("{}-{}-{}.json", self.namespace, self.name, delegate.ifname));
        fs::write(&input, config.to_string())?;
        let args = format!(
            "IgnoreUnknown=true;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_INFRA_CONTAINER_ID={};K8S_POD_UID={}",
            self.namespace, self.name, self.container, self.uid
        );
        let plugin = config["type"].as_str().context("a type")?;
        let command =
            self.node.command("sh").args(["-c", r#"exec "/opt/cni/bin/$0" <"$1""#, plugin]).arg(&input);
        let command = command.env("CNI_COMMAND", verb).env("CNI_PATH", "/opt/cni/bin").env("CNI_ARGS", args);
        let command = command.env("CNI_CONTAINERID", &self.container).env("CNI_IFNAME", &delegate.ifname);
        let output = command.env("CNI_NETNS", netns).output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            bail!("{verb} of {} for {}: {said}", delegate.definition, self.name);
        }
        if said.trim().is_empty() { Ok(Value::Null) } else { Ok(serde_json::from_str(&said)?) }
    }

    /// Writes the pod's network status.
    pub async fn publish(&self, client: &Client) -> Result<()> {
        let own: Vec<IpAddr> = self.addresses_of("eth0")?.iter().map(ipnet::IpNet::addr).collect();
        let first = json!({"name": "tenure", "interface": "eth0", "ips": own, "default": true, "dns": {}});
        let mut status = vec![first];
        for delegate in &self.delegates {
            let ips: Vec<IpAddr> = delegate.addresses()?.into_iter().map(|ip| ip.addr()).collect();
            status.push(json!({
                "name": delegate.definition, "interface": delegate.ifname, "ips": ips, "mac": delegate.mac(),
                "dns": {},
            }));
        }
        let patch = json!({"metadata": {"annotations": {STATUS: json!(status).to_string()}}});
        let pods: Api<Pod> = Api::namespaced(client.clone(), &self.namespace);
        pods.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// The addresses of an interface as the kernel has them, without link-local ones.
    pub fn addresses_of(&self, interface: &str) -> Result<Vec<ipnet::IpNet>> {
        let shown = self.inside.ip_json(&["address", "show", "dev", interface])?;
        let infos = shown[0]["addr_info"].as_array().cloned().unwrap_or_default();
        let global = infos.iter().filter(|info| info["scope"] == "global");
        let one = |info: &Value| {
            let text = format!("{}/{}", info["local"].as_str().unwrap_or_default(), info["prefixlen"]);
            text.parse().with_context(|| text)
        };
        global.map(one).collect()
    }

    /// The interfaces of the pod, with their hardware addresses.
    pub fn interfaces(&self) -> Result<BTreeMap<String, String>> {
        let shown = self.inside.ip_json(&["link", "show"])?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let links = shown.as_array().into_iter().flatten();
        Ok(links.map(|link| (text(&link["ifname"]), text(&link["address"]))).collect())
    }

    /// The pod has the interfaces and addresses that the plugins said, and no others.
    pub fn has_what_was_said(&self) -> Result<()> {
        let mut interfaces = self.interfaces()?;
        for own in ["lo", "eth0"] {
            interfaces.remove(own).with_context(|| format!("{} has no {own}", self.name))?;
        }
        for delegate in &self.delegates {
            let mac = interfaces.remove(&delegate.ifname);
            ensure!(
                mac.is_some() && mac.as_deref() == delegate.mac(),
                "{} has {mac:?}: {delegate:?}",
                self.name
            );
            let (mut said, mut has) = (delegate.addresses()?, self.addresses_of(&delegate.ifname)?);
            said.sort();
            has.sort();
            ensure!(said == has, "{} of {} has {has:?}: {said:?}", delegate.ifname, self.name);
        }
        ensure!(interfaces.is_empty(), "{} has also {interfaces:?}", self.name);
        Ok(())
    }
}

impl Delegate {
    /// Its addresses with their lengths.
    pub fn addresses(&self) -> Result<Vec<ipnet::IpNet>> {
        let ips = self.result["ips"].as_array().with_context(|| format!("{self:?} has no addresses"))?;
        ips.iter().map(|ip| Ok(ip["address"].as_str().context("an address")?.parse()?)).collect()
    }

    /// The hardware address of the interface in the pod.
    pub fn mac(&self) -> Option<&str> {
        let interfaces = self.result["interfaces"].as_array()?;
        let inside = interfaces.iter().find(|it| it["sandbox"].as_str().is_some_and(|path| !path.is_empty()));
        inside?["mac"].as_str()
    }
}

/// Whether a runtime passes on what an ADD has answered.
fn remembers(config: &Value) -> bool {
    config["cniVersion"].as_str().is_some_and(|version| version >= "0.4.0")
}
