//! Live reads of nodes and pods before something is taken from them. A watch may be behind; the API server is not.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, Client};
use tenure_api::read::Read;
use tenure_ipam::{Address, Subnet};

use crate::nodes::is_out_of_service;

/// Whether a node of this name exists, or a living pod is bound to it.
pub async fn node_is_in_use(client: &Client, node: &str) -> Result<bool, kube::Error> {
    if Api::<Read<Node>>::all(client.clone()).get_opt(node).await?.is_some() {
        return Ok(true);
    }
    // All addresses that a pod reports: its status lacks those of interfaces that other plugins created.
    has_user(client, node, None).await
}

/// Whether anybody can use what a node has that is missing or out of service.
pub async fn is_in_use_out_of_service(
    client: &Client,
    node: &str,
    addresses: Option<&Subnet>,
) -> Result<bool, kube::Error> {
    let live = Api::<Read<Node>>::all(client.clone()).get_opt(node).await?;
    // A node that cannot be read has no known taints.
    if !live.is_none_or(|live| live.is().as_ref().is_some_and(is_out_of_service)) {
        return Ok(true);
    }
    has_user(client, node, addresses).await
}

/// Whether a pod that is bound to a node has, or may still get, one of these addresses; any address if none are
/// given.
async fn has_user(client: &Client, node: &str, addresses: Option<&Subnet>) -> Result<bool, kube::Error> {
    let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let pods = Api::<Read<Pod>>::all(client.clone()).list(&of_node).await?;
    // A pod that cannot be read may use anything.
    Ok(pods.iter().any(|pod| pod.as_result().map_or(true, |pod| may_use(pod, addresses))))
}

/// Whether a pod has, or may still get, one of these addresses.
fn may_use(pod: &Pod, addresses: Option<&Subnet>) -> bool {
    let host_network = pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or_default();
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    if host_network || phase == "Succeeded" || phase == "Failed" {
        return false;
    }
    let ips = pod.status.as_ref().and_then(|status| status.pod_ips.as_deref()).unwrap_or_default();
    let Some(addresses) = addresses.filter(|_| !ips.is_empty()) else { return true };
    let within = |ip: &str| match ip.parse::<std::net::IpAddr>() {
        Ok(ip) => {
            let ip = Address::from(ip);
            [addresses.ipv4, addresses.ipv6].into_iter().flatten().any(|cidr| cidr.contains(ip))
        }
        Err(_) => true,
    };
    ips.iter().any(|ip| within(&ip.ip))
}
