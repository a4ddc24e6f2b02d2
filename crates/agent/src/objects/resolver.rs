//! Resolves a pod's pool: the one that the administrator's network configuration names, else the one that the pod's namespace
//! names, else `default`. The pod itself cannot choose, so nobody can use somebody else's pool.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::PartialObjectMeta;
use kube::{Api, ResourceExt};
use tenure_api::coil::{DEFAULT_POOL, annotation};
use tenure_api::names::is_object_name;
use tenure_cni::{Code, Failure};
use tenure_watch::{Cache, Connection, Seen};

use super::{KnownPool, Shared, lock};
use crate::coil::{Asked, Resolve};
use crate::key::Pod;

/// The limit of the one live read if a namespace is not known yet.
const LIVE_READ: Duration = Duration::from_millis(1_500);
/// A pool's name is the value of a label of its blocks.
const LONGEST_POOL_NAME: usize = 63;

/// Resolves pods' pools. Cheap to clone.
#[derive(Clone)]
pub struct Resolver {
    connection: Connection,
    /// The pool that each namespace names, if it names one.
    namespaces: Arc<Mutex<Cache<Seen<Option<String>>>>>,
    pools: Arc<Mutex<Cache<Seen<KnownPool>>>>,
    outside_kubernetes: bool,
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolver")
            .field("outside_kubernetes", &self.outside_kubernetes)
            .finish_non_exhaustive()
    }
}

/// Who named a pool.
enum Source<'a> {
    Configuration,
    Namespace(&'a str),
    Nobody,
}

impl Resolve for Resolver {
    async fn resolve(&self, asked: Asked) -> Result<(String, Pod), Failure> {
        let Asked { pod, pool } = asked;
        let Some(pod) = pod else {
            if !self.outside_kubernetes {
                return Err(no_pod());
            }
            let source = if pool.is_some() { Source::Configuration } else { Source::Nobody };
            let pool = self.check(pool.unwrap_or_else(|| DEFAULT_POOL.to_owned()), &source)?;
            return Ok((pool, Pod::default()));
        };
        let pool = match pool {
            Some(pool) => self.check(pool, &Source::Configuration)?,
            None => match self.annotation(&pod.namespace).await? {
                Some(pool) => self.check(pool, &Source::Namespace(&pod.namespace))?,
                None => self.check(DEFAULT_POOL.to_owned(), &Source::Nobody)?,
            },
        };
        Ok((pool, Pod { namespace: pod.namespace, name: pod.name, uid: pod.uid }))
    }
}

impl Resolver {
    pub(super) fn new(shared: &Shared) -> Self {
        Self {
            connection: shared.connection.clone(),
            namespaces: Arc::clone(&shared.namespaces),
            pools: Arc::clone(&shared.pools),
            outside_kubernetes: shared.options.outside_kubernetes,
        }
    }

    /// The pool that a namespace names, if it names one.
    async fn annotation(&self, namespace: &str) -> Result<Option<String>, Failure> {
        let known = lock(&self.namespaces).facts(namespace).cloned();
        if let Some(pool) = known {
            return Ok(pool);
        }
        if self.outside_kubernetes {
            // A runtime without Kubernetes has its own namespaces.
            return Ok(None);
        }
        let namespaces: Api<Namespace> = Api::all(self.connection.client());
        let act = || format!("reading Namespace {namespace:?}");
        let read = namespaces.get_metadata_opt(namespace);
        let why = match self.connection.once(LIVE_READ, act, read).await {
            Ok(Some(found)) => return Ok(pool_of(&found)),
            Ok(None) => {
                let message = format!("there is no namespace {namespace:?}, so that nobody knows its pool");
                return Err(Failure::new(Code::TryAgainLater, message)
                    .detail("accepted is the namespace of a pod in this cluster"));
            }
            Err(error) => error,
        };
        let message =
            format!("cannot read the annotations of namespace {namespace:?}, which may name a pool: {why}");
        Err(Failure::new(Code::TryAgainLater, message)
            .detail("the namespace is new to this node, and the API server cannot be asked about it now"))
    }

    /// Refuses invalid pool names. Whether the pool exists, the node knows.
    fn check(&self, pool: String, source: &Source<'_>) -> Result<String, Failure> {
        if !is_object_name(&pool) || pool.len() > LONGEST_POOL_NAME {
            return Err(no_pool_name(&pool, source));
        }
        let pools = lock(&self.pools);
        if let Some(KnownPool::Invalid(why)) = pools.facts(&pool) {
            let message = format!("AddressPool {pool:?}{} cannot be used: {why}", named_by(source));
            return Err(Failure::new(Code::TryAgainLater, message).detail("correct or replace the pool"));
        }
        Ok(pool)
    }
}

/// The pool that a namespace names, if it names one.
pub(super) fn pool_of(namespace: &PartialObjectMeta<Namespace>) -> Option<String> {
    namespace.annotations().get(annotation::POOL).cloned()
}

fn named_by(source: &Source<'_>) -> String {
    match source {
        Source::Configuration => ", which the network configuration names,".to_owned(),
        Source::Namespace(namespace) => {
            format!(", which annotation {} of namespace {namespace:?} names,", annotation::POOL)
        }
        Source::Nobody => String::new(),
    }
}

fn no_pool_name(pool: &str, source: &Source<'_>) -> Failure {
    let (code, place) = match source {
        Source::Namespace(namespace) => {
            (Code::TryAgainLater, format!("annotation {} of namespace {namespace:?}", annotation::POOL))
        }
        _ => (Code::InvalidConfig, "pool of the network configuration".to_owned()),
    };
    Failure::new(code, format!("{place} is {pool:?}, which is no name of an AddressPool")).detail(
        "accepted is the name of an AddressPool: lower-case letters, digits, '-' and '.', at most 63 characters, \
         starting and ending with a letter or digit",
    )
}

fn no_pod() -> Failure {
    Failure::new(Code::InvalidEnvironment, "CNI_ARGS has neither K8S_POD_NAMESPACE nor K8S_POD_NAME")
        .detail("accepted are both, as the kubelet's runtime gives them; a host without Kubernetes runs tenured --standalone")
}
