//! An address that somebody has set by hand, and an agent that is killed while it changes an interface.

use anyhow::{Result, ensure};
use serde_json::Value;
use tenure_testbed::cluster::Cluster;
use tenure_testbed::wait::eventually;

use super::bed::{available, failing};

/// One address, for one node.
const FOREIGN: &str = r#"
apiVersion: nmstate.io/v1
kind: NodeIPPool
metadata: {name: foreign}
spec: {range: {cidr: "fd10:14::/64", start: "fd10:14::8", end: "fd10:14::8"}}
---
apiVersion: nmstate.io/v1
kind: NodeNetworkConfigurationPolicy
metadata: {name: foreign}
spec:
  nodeSelector: {kubernetes.io/hostname: NODE}
  capture: {six: ippool.foreign.allocate}
  desiredState:
    interfaces:
      - name: eth4
        ipv6:
          enabled: true
          address: [{ip: "{{ capture.six.ip }}", prefix-length: "{{ capture.six.prefix-length }}"}]
"#;
const ADDRESS: &str = "fd10:14::8";

/// Another node has the address, set by hand: it is told, and the address is not used. Then the agent is killed in mid-apply.
pub async fn by_hand(cluster: &Cluster) -> Result<()> {
    let (node, other) = (cluster.node(0), cluster.node(1));
    // The kernel asks five times: time enough to kill somebody. Hosts of the test bed do without by default.
    node.host().sysctl("net.ipv6.conf.eth4.accept_dad", "1")?;
    node.host().sysctl("net.ipv6.conf.eth4.dad_transmits", "5")?;
    other.host().ip(&format!("address add {ADDRESS}/64 dev eth4 nodad"))?;
    cluster.apply(&FOREIGN.replace("NODE", node.name())).await?;
    failing(cluster, node.name(), "foreign", "in use by another host of the segment").await?;
    eventually("the address to go", async || Ok(shown(cluster)?.is_empty().then_some(()))).await?;
    other.host().ip(&format!("address del {ADDRESS}/64 dev eth4"))?;
    // Now nobody objects, and while the kernel still asks, the agent is killed.
    eventually("the address to be tried", async || Ok((!shown(cluster)?.is_empty()).then_some(()))).await?;
    let on_node = format!("spec.nodeName={}", node.name());
    let killed = ["delete", "pod", "-n", "kube-system", "-l", "app.kubernetes.io/name=tenured"];
    let at_once = ["--field-selector", &on_node, "--force", "--grace-period=0"];
    cluster.kubectl(&[&killed[..], &at_once[..]].concat()).await?;
    available(cluster, "foreign", 1).await?;
    ensure!(shown(cluster)?.len() == 1);
    Ok(())
}

/// What the node has of it, also if the kernel has not yet made sure that nobody else has it.
fn shown(cluster: &Cluster) -> Result<Vec<Value>> {
    let links = cluster.node(0).host().namespace().ip_json(&["-6", "address", "show", "dev", "eth4"])?;
    let all = links[0]["addr_info"].as_array().cloned().unwrap_or_default();
    Ok(all.into_iter().filter(|it| it["local"] == ADDRESS).collect())
}
