//! The configuration files of a node's programs, and their paths on it.

use std::net::Ipv4Addr;
use std::path::Path;

use serde_json::json;

use crate::cluster::images;

pub(super) const AUTHORITY: &str = "/etc/kubernetes/authority.crt";
pub(super) const CONTAINERD: &str = "/etc/kubernetes/containerd.toml";
pub(super) const KUBELET: &str = "/etc/kubernetes/kubelet.json";
pub(super) const KUBELET_ACCESS: &str = "/etc/kubernetes/kubelet.kubeconfig";
pub(super) const KUBE_PROXY: &str = "/etc/kubernetes/kube-proxy.json";
pub(super) const KUBE_PROXY_ACCESS: &str = "/etc/kubernetes/kube-proxy.kubeconfig";

/// containerd 2, with only what a kubelet needs.
pub(super) fn containerd(runc: &Path) -> String {
    let (pause, runc) = (json!(images::PAUSE), json!(runc));
    // `opt` would create a directory on the machine. Without CAP_SYS_RESOURCE a process can raise its OOM
    // score, but never lower it: hence `restrict_oom_score_adj`.
    format!(
        r#"version = 3
disabled_plugins = [
  "io.containerd.internal.v1.opt", "io.containerd.internal.v1.tracing", "io.containerd.nri.v1.nri",
  "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.erofs", "io.containerd.snapshotter.v1.zfs",
]

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = {pause}

[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["/opt/cni/bin"]
conf_dir = "/etc/cni/net.d"
use_internal_loopback = true

[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "runc"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = {runc}
SystemdCgroup = false
"#
    )
}

/// The kubelet. Only the API server is its client.
pub(super) fn kubelet(address: Ipv4Addr, cgroup: &str) -> String {
    let configuration = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": AUTHORITY},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "failCgroupV1": false,
        "failSwapOn": false,
        // The machine's memory and disk do not concern the node.
        "evictionHard": {
            "memory.available": "10Mi", "nodefs.available": "1%", "imagefs.available": "1%",
            "nodefs.inodesFree": "1%", "imagefs.inodesFree": "1%",
        },
        "imageGCHighThresholdPercent": 100,
        // Files with the values it expects shadow the kernel settings; it must not set the machine's.
        "protectKernelDefaults": true,
        "oomScoreAdj": 0,
        "resolvConf": "",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        // Tests wait for its work.
        "syncFrequency": "10s",
        "logging": {"verbosity": 2},
    });
    format!("{configuration:#}\n")
}

/// kube-proxy, without the settings that only the machine's own network namespace has.
pub(super) fn kube_proxy(node: &str, pods: &str) -> String {
    let configuration = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": KUBE_PROXY_ACCESS},
        "clusterCIDR": pods,
        "conntrack": {"maxPerCore": 0, "min": 0},
        "healthzBindAddress": "127.0.0.1:10256",
        "hostnameOverride": node,
        "metricsBindAddress": "127.0.0.1:10249",
        "mode": "nftables",
        "oomScoreAdj": 0,
    });
    format!("{configuration:#}\n")
}

/// The reference plugins ptp and host-local, for pods with addresses of `pods`.
pub(super) fn ptp(pods: &str) -> String {
    let configuration = json!({
        "cniVersion": "1.0.0",
        "name": "testbed",
        "plugins": [{
            "type": "ptp",
            "ipMasq": false,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": pods}]], "routes": [{"dst": "0.0.0.0/0"}]},
        }],
    });
    format!("{configuration:#}\n")
}
