//! From the node's decision to the plan of an interface, and from the kernel's errors to the runtime's.

use std::net::IpAddr;

use tenure_linux::chain;
use tenure_linux::netns;
use tenure_linux::pod::{CheckError, Identity, PodPlan, SetupError};
use tenure_linux::socket::{self, Kind};
use tenure_linux::uplink::Uplink;

use crate::key::{HoldKey, Pod};
use crate::node::{KernelError, KernelErrorKind, WireJob};

/// The MTU if there is no uplink.
const USUAL_MTU: u32 = 1500;

/// The parts of a plan that come from the node itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    mtu: Option<u32>,
    addresses: Vec<IpAddr>,
}

impl Node {
    /// Records the uplink.
    pub(super) fn learn(&mut self, uplink: Option<&Uplink>) {
        self.mtu = uplink.map(|uplink| uplink.mtu);
        self.addresses = uplink.into_iter().flat_map(|it| &it.addresses).map(ipnet::IpNet::addr).collect();
    }

    /// The node's own source address for packets to a pod's address.
    pub(super) fn source_for(&self, address: IpAddr) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|own| own.is_ipv4() == address.is_ipv4())
    }

    /// The plan for a job, and the path of the pod's namespace.
    pub(super) fn plan(&self, job: WireJob) -> Result<(PodPlan, String), KernelError> {
        let addresses: Vec<IpAddr> = job.addresses.iter().map(tenure_ipam::Address::to_ip).collect();
        let mtu = job.wiring.mtu.or(self.mtu).unwrap_or(USUAL_MTU);
        let sources = addresses.iter().filter_map(|address| self.source_for(*address)).collect();
        let mut plan = PodPlan::new(identity(&job.key, &job.pod), addresses, mtu);
        plan.sources = sources;
        plan.reached = job.reached;
        plan.mac = match &job.wiring.mac {
            None => None,
            Some(text) => Some(text.parse().map_err(|_| KernelError {
                kind: KernelErrorKind::Invalid,
                message: format!("runtimeConfig.mac is {text:?}"),
                remedy: "accepted is a unicast Ethernet address such as 0a:00:00:00:00:01".to_owned(),
            })?),
        };
        Ok((plan, job.wiring.netns))
    }
}

/// The owner of an interface.
pub(super) fn identity(key: &HoldKey, pod: &Pod) -> Identity {
    Identity {
        container: key.container().to_owned(),
        interface: key.interface().to_owned(),
        network: key.network().to_owned(),
        namespace: pod.namespace.clone(),
        pod: pod.name.clone(),
    }
}

pub(super) fn no_namespace(path: &str, error: &netns::Error) -> KernelError {
    let kind = if error.is_gone() { KernelErrorKind::Gone } else { KernelErrorKind::Retry };
    KernelError::new(kind, format!("CNI_NETNS {path:?} cannot be used: {}", chain(error)))
}

pub(super) fn not_set_up(error: &SetupError) -> KernelError {
    KernelError::new(kind(error.kind()), chain(error))
}

pub(super) fn not_destroyed(key: &HoldKey, error: &socket::Error) -> KernelError {
    let message = format!("cannot take the interface of {key} out of service: {}", chain(error));
    KernelError::new(KernelErrorKind::Retry, message)
}

pub(super) fn not_checked(error: &CheckError) -> KernelError {
    KernelError::new(KernelErrorKind::Other, chain(error))
}

fn kind(kind: Kind) -> KernelErrorKind {
    match kind {
        Kind::Retry => KernelErrorKind::Retry,
        Kind::Gone => KernelErrorKind::Gone,
        Kind::Invalid => KernelErrorKind::Invalid,
        Kind::Exists | Kind::Denied => KernelErrorKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use tenure_ipam::Addresses;

    use super::*;
    use crate::node::{Job, Wiring};

    fn job(wiring: Wiring) -> WireJob {
        WireJob {
            job: Job(1),
            key: HoldKey::new("k8s", "c0ffee", "eth0").unwrap(),
            pod: Pod { namespace: "shop".into(), name: "web-0".into(), uid: String::new() },
            addresses: Addresses { ipv4: Some([10, 2, 0, 1].into()), ipv6: Some(1.into()) },
            reached: true,
            wiring,
        }
    }

    fn uplink() -> Uplink {
        let addresses = ["192.0.2.7/24", "2001:db8::7/64"].map(|net| net.parse().unwrap()).into();
        Uplink { index: 2, name: "eth0".into(), mtu: 9000, mac: None, addresses }
    }

    #[test]
    fn a_plan_takes_from_the_uplink_what_the_call_does_not_say() {
        let mut node = Node::default();
        let (plan, netns) =
            node.plan(job(Wiring { netns: "/run/netns/x".into(), ..Wiring::default() })).unwrap();
        assert_eq!((plan.mtu, plan.sources.len(), netns.as_str()), (1500, 0, "/run/netns/x"));
        node.learn(Some(&uplink()));
        let (plan, _) = node.plan(job(Wiring::default())).unwrap();
        let sources: Vec<String> = plan.sources.iter().map(ToString::to_string).collect();
        assert_eq!((plan.mtu, sources), (9000, vec!["192.0.2.7".to_owned(), "2001:db8::7".to_owned()]));
        let (plan, _) = node.plan(job(Wiring { mtu: Some(1400), ..Wiring::default() })).unwrap();
        assert_eq!(plan.mtu, 1400);
        assert_eq!(plan.identity.alias(), "tenure/c0ffee/eth0/k8s/shop/web-0");
    }

    #[test]
    fn an_ethernet_address_that_is_none_is_refused_by_value() {
        let wiring = Wiring { mac: Some("zz".into()), ..Wiring::default() };
        let failure = Node::default().plan(job(wiring)).unwrap_err();
        assert_eq!(failure.kind, KernelErrorKind::Invalid);
        assert!(failure.message.contains("zz"), "{failure:?}");
    }
}
