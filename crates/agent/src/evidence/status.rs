//! The addresses that the API server shows for a pod: its status, and what other programs wrote into its
//! annotations. Both only add evidence: an address that is not listed may still be in use.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::Value;
use tenure_ipam::Address;

use crate::key::Pod as PodOf;
use crate::node::Use;

/// The annotation with the addresses of further interfaces, written by meta-plugins.
const NETWORK_STATUS: &str = "k8s.v1.cni.cncf.io/network-status";

/// The addresses of a pod, if it may run.
pub(super) fn of_pod(pod: &Pod) -> Option<Use> {
    let host = pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or_default();
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or_default();
    if host || matches!(phase, "Succeeded" | "Failed") {
        return None;
    }
    let own =
        status.and_then(|status| status.pod_ips.as_ref()).into_iter().flatten().map(|ip| ip.ip.as_str());
    let written = pod.annotations().get(NETWORK_STATUS).and_then(|text| serde_json::from_str(text).ok());
    let written: Value = written.unwrap_or_default();
    let interfaces = written.as_array().map(Vec::as_slice).unwrap_or_default();
    let further =
        interfaces.iter().filter_map(|it| it.get("ips")?.as_array()).flatten().filter_map(Value::as_str);
    let addresses: Vec<Address> = own.chain(further).filter_map(|text| text.parse().ok()).collect();
    (!addresses.is_empty()).then(|| Use {
        addresses,
        pod: PodOf {
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
            uid: pod.uid().unwrap_or_default(),
        },
        ..Use::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_pod_shows_adds_evidence_and_what_cannot_be_read_takes_none_away() {
        let addresses = |network: Option<&str>, status: Value| {
            let pod = json!({
                "metadata": {"name": "web-0", "annotations": network.map(|text| json!({NETWORK_STATUS: text}))},
                "status": status,
            });
            let used = of_pod(&serde_json::from_value(pod).unwrap());
            used.map(|used| used.addresses.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let status = json!({"phase": "Running", "podIPs": [{"ip": "10.2.0.1"}, {"ip": "nonsense"}]});
        let network = r#"[{"interface": "net1", "ips": ["10.1.0.2"]}, {"ips": "lies"}, 7]"#;
        assert_eq!(addresses(Some(network), status.clone()).unwrap(), ["10.2.0.1", "10.1.0.2"]);
        for lie in ["[]", "{", "null"] {
            assert_eq!(addresses(Some(lie), status.clone()).unwrap(), ["10.2.0.1"], "{lie}");
        }
        assert_eq!(addresses(None, json!({"phase": "Failed", "podIPs": [{"ip": "10.2.0.1"}]})), None);
    }
}
