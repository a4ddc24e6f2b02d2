//! Error texts for pods that get no address of a pool: what is wrong, with its value, and what to do.

use tenure_cni::{Code, Failure};

use crate::node::{CallError, PoolError};

/// How to name another pool.
const ANOTHER: &str = "create the pool, or name another in the namespace's annotation coil.cybozu.com/pool";

/// An error about a pool, as text.
pub(crate) fn failure(error: PoolError) -> Failure {
    let later = |message: String| Failure::new(Code::TryAgainLater, message);
    match error {
        PoolError::Missing { pool, pod } => {
            let user = match pod.namespace.as_str() {
                "" => String::new(),
                namespace => format!(", which namespace {namespace:?} uses"),
            };
            later(format!("there is no AddressPool {pool:?}{user}")).detail(ANOTHER)
        }
        PoolError::Deleting(pool) => {
            later(format!("AddressPool {pool:?} is being deleted and gives no new addresses"))
                .detail("name another pool in the namespace's annotation coil.cybozu.com/pool")
        }
        PoolError::Gone(pool) => later(format!("AddressPool {pool:?} is gone")).detail(ANOTHER),
        PoolError::Exhausted { pool, message } => {
            later(format!("AddressPool {pool:?} has no address left for this node: {message}")).detail(
                "append a subnet to the pool, delete pods that use it, or name another pool in the namespace's annotation coil.cybozu.com/pool",
            )
        }
        PoolError::Unusable { pool, message } => {
            later(format!("AddressPool {pool:?} cannot be carved into blocks: {message}"))
                .detail("kubectl describe addresspool says what is wrong with it")
        }
        PoolError::TimedOut { pool, waited, trouble } => {
            let waited = waited.as_secs_f32();
            let reason = trouble.map(|message| format!(": {message}")).unwrap_or_default();
            later(format!("no block of AddressPool {pool:?} came for this node within {waited} s{reason}"))
                .detail("is tenure-controller running, and can this node reach the API server?")
        }
        PoolError::NoneAtAll => {
            Failure::new(Code::NotAvailable, "there is no AddressPool to assign addresses from")
                .detail("create an AddressPool named \"default\"")
        }
        PoolError::NothingLeft(reasons) => {
            let message = format!("no pool has an address left ({})", reasons.join("; "));
            Failure::new(Code::NotAvailable, message).detail("append a subnet to a pool, or delete pods")
        }
    }
}

/// Why a STATUS is refused.
pub(crate) fn unavailable(error: CallError) -> Failure {
    Failure { code: Code::NotAvailable.number(), ..Failure::from(error) }
}
