//! Error texts for pods that get no alias address: what is wrong, with its value, and what to do.

use serde_json::Value;
use tenure_api::cloud::annotation;
use tenure_cni::{Code, Failure};
use tenure_ipam::Address;

use crate::node::{CallError, PoolError};
use crate::serve::PodName;

fn later(message: String) -> Failure {
    Failure::new(Code::TryAgainLater, message)
}

/// Why the node gave nothing. `trouble` is what the controller or the machine says about it.
pub(super) fn failure(
    error: CallError,
    pool: &str,
    named: Option<Address>,
    trouble: Option<String>,
) -> Failure {
    let CallError::Pool(error) = error else { return error.into() };
    match (error, named) {
        (PoolError::TimedOut { waited, .. }, Some(address)) => {
            not_moved(address, waited.as_secs_f32(), trouble)
        }
        (PoolError::TimedOut { waited, trouble: said, .. }, None) => {
            let why = said.or(trouble).map(|why| format!(": {why}")).unwrap_or_default();
            let waited = waited.as_secs_f32();
            later(format!("no address of IPPool {pool:?} was attached to this machine within {waited} s{why}"))
                .detail("is tenure-controller running with --cloud? kubectl describe nodealiases shows what this node has and lacks")
        }
        (PoolError::Exhausted { message, .. }, _) => {
            later(format!("IPPool {pool:?} has no address left for this node: {message}"))
                .detail("append a range to the pool, or delete pods that use it")
        }
        (PoolError::Unusable { message, .. }, _) => {
            later(format!("IPPool {pool:?} cannot be used: {message}"))
        }
        (PoolError::Deleting(_), _) => {
            later(format!("IPPool {pool:?} is being deleted and gives no new addresses"))
        }
        _ => no_pool(&format!("there is no IPPool {pool:?}")),
    }
}

fn not_moved(address: Address, waited: f32, trouble: Option<String>) -> Failure {
    let why = trouble.unwrap_or_else(|| "it was not moved to this node".to_owned());
    later(format!(
        "the pod names {address} ({}), which did not become its own within {waited} s: {why}",
        annotation::ADDRESS
    ))
    .detail(format!(
        "an address moves here if a pod of the same namespace holds it and has the annotation {}; the events of the pod say what is \
         missing",
        annotation::MOVE_OUT
    ))
}

pub(super) fn not_reached(claim: &str, address: Address, why: Option<String>) -> Failure {
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    later(format!("{address} of IPAMClaim {claim} is not attached to this machine yet{why}")).detail(
        "the address is attached when the claim's pod before this one has ended; kubectl describe nodealiases shows what this node has",
    )
}

pub(super) fn no_pool(why: &str) -> Failure {
    later(format!("this node has no pool of alias addresses: {why}"))
        .detail("create an IPPool (ipam.gcp-cni.cast.ai), or run tenure provision gcp")
}

pub(super) fn other_pool(named: &Value, pool: &str) -> Failure {
    Failure::new(Code::InvalidConfig, format!("ipam.pool is {named}")).detail(format!(
        "accepted on this node is {pool:?}, or no such field; a node has alias addresses of one pool (--alias-pool of tenured)"
    ))
}

pub(super) fn nothing_left(pool: &str, trouble: &str) -> Failure {
    later(format!("no address of IPPool {pool:?} is free on this node: {trouble}"))
}

pub(super) fn no_pod() -> Failure {
    Failure::new(Code::InvalidEnvironment, "CNI_ARGS has neither K8S_POD_NAMESPACE nor K8S_POD_NAME")
        .detail("accepted are both, as the kubelet's runtime gives them")
}

pub(super) fn unknown_pod(PodName { namespace, name, .. }: &PodName, why: &str) -> Failure {
    later(format!("whether pod {namespace}/{name} must have a certain address is not known: {why}"))
        .detail("the pod is new to this node, and the API server cannot be asked about it now")
}

pub(super) fn missing_pod(PodName { namespace, name, .. }: &PodName) -> Failure {
    later(format!("there is no pod {namespace}/{name}, or it is another one by now"))
}

pub(super) fn no_address(PodName { namespace, name, .. }: &PodName, text: &str) -> Failure {
    later(format!("annotation {} of pod {namespace}/{name} is {text:?}", annotation::ADDRESS))
        .detail("accepted is an address such as 10.111.0.5")
}

pub(super) fn foreign_address(
    PodName { namespace, name, .. }: &PodName,
    address: Address,
    pool: &str,
) -> Failure {
    let message = format!(
        "annotation {} of pod {namespace}/{name} is {address}, which is not of IPPool {pool:?}",
        annotation::ADDRESS
    );
    later(message).detail("accepted is an address that a pod of the same namespace has and moves out with")
}

pub(super) fn names_both(
    PodName { namespace, name, .. }: &PodName,
    address: Address,
    claim: &str,
) -> Failure {
    later(format!(
        "pod {namespace}/{name} names {address} ({}) and refers to IPAMClaim {claim}",
        annotation::ADDRESS
    ))
    .detail("accepted is one of the two")
}

pub(super) fn immovable(PodName { namespace, name, .. }: &PodName, address: Address, pool: &str) -> Failure {
    let message = format!(
        "pod {namespace}/{name} names {address} ({}), and IPPool {pool:?} attaches whole blocks, whose addresses cannot move",
        annotation::ADDRESS
    );
    later(message).detail("accepted is an address of a pool with attach: address")
}
