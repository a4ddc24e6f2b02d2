//! Networks with `"ipam": {"type": "gcp-ipam"}`: pods get alias addresses of their machine, which move with them.
//!
//! | module | owns |
//! |---|---|
//! | `source` | this node's alias ranges as blocks: watches, the machine's metadata, and the node's `NodeAliases` |
//! | `state` | what it has and wants, without I/O |
//! | `write` | the writes of its `NodeAliases` |
//! | `facts` | alias pools in the node's terms |
//! | `marks` | what pods' annotations say of alias addresses |
//! | `refusal` | error texts |
//!
//! A range is a block of the node once the controller has attached it *and* the machine's metadata has it: then packets arrive. So an ADD
//! takes a block that is already there, and makes no call. A pod that names an address (`live.cast.ai/ip`) gets exactly that one, once the
//! controller has moved it here for this pod, and never another.
//!
//! An address has the prefix length of its pool's range, and that range's first address, which no pod gets, is the gateway: `ptp` makes the
//! route through the gateway before the one to it, so it fails with a gateway that is not on the link.

mod facts;
mod marks;
mod refusal;
mod source;
mod state;
mod write;

use std::time::Duration;

use serde_json::{Map, Value};
use tenure_cni::{Address as CniAddress, CniResult, Code, Failure, NetworkConfig, Route};
use tenure_ipam::Address;

pub use source::{AliasOptions, Aliases};
pub use state::PoolChoice;

use crate::claims::{Claimed, Claims, addresses_of, not_of};
use crate::key::Pod;
use crate::node::{Attach, ClaimUse, Node, Wish};
use crate::pods::Pods;
use crate::serve::{Answered, Call, Deleted, Dialect, PodName};
use marks::Marks;
use source::Pool;

/// What the node's pools of alias ranges are called: this, and the name of the `IPPool`. No `AddressPool` has a slash.
pub(crate) const POOLS: &str = "alias/";
/// What the node waits for at a start.
pub(crate) const SOURCE: &str = "its alias ranges from the API server";
/// How long an ADD waits for the cloud to attach the addresses of a claim.
const REACHED: Duration = Duration::from_secs(10);
/// The dialect's name, as `ipam.type` has it.
const TYPE: &str = "gcp-ipam";

/// Serves networks of alias addresses.
#[derive(Debug)]
pub struct GcpIpam {
    aliases: Aliases,
    pods: Pods<Marks>,
    claims: Option<Claims>,
}

impl GcpIpam {
    /// A dialect over these sources.
    pub fn new(aliases: Aliases, pods: Pods) -> Self {
        Self { aliases, pods: pods.keep(), claims: None }
    }

    /// Pods may also refer to claims.
    #[must_use]
    pub fn with_claims(self, claims: Option<Claims>) -> Self {
        Self { claims, ..self }
    }

    async fn hold(&self, call: &Call<'_>) -> Result<CniResult, Failure> {
        let name = call.pod_name()?.ok_or_else(refusal::no_pod)?;
        let routes = routes(call)?;
        let pool = self.pool(call)?;
        let found = self.pods.find(&name).await.map_err(|why| refusal::unknown_pod(&name, &why))?;
        let found = found.filter(|found| found.is(&name)).ok_or_else(|| refusal::missing_pod(&name))?;
        let named =
            found.facet.address.as_deref().map(|text| named_address(&name, text, &pool)).transpose()?;
        let mut attach = Attach {
            key: call.key()?,
            pool: pool.key.clone(),
            pod: Pod { namespace: name.namespace.clone(), name: name.name.clone(), uid: found.uid.clone() },
            netns: call.message.netns.clone(),
            wiring: None,
            wish: Wish {
                only: named.into_iter().collect(),
                kept_for_pod: named.is_some(),
                ..Wish::default()
            },
            claim_use: None,
        };
        if let Some(claims) = &self.claims {
            // Boxed, because it is larger than all the rest.
            attach.claim_use = Box::pin(self.claimed(claims, call, &name, &pool)).await?;
        }
        if let Some((claim_use, address)) = attach.claim_use.as_ref().zip(named) {
            return Err(refusal::names_both(&name, address, &claim_use.claim_name));
        }
        let held = call.try_hold(attach).await?;
        let held =
            held.map_err(|error| refusal::failure(error, &pool.name, named, self.aliases.trouble(named)))?;
        if found.facet.leaving {
            // It was marked before it had an address.
            self.aliases.leaves(&found.uid).await;
        }
        let mut result = CniResult { routes, ..CniResult::default() };
        for address in held.addresses.iter() {
            let range = pool.range_of(address);
            let prefix = range.map_or(address.family().bits(), |range| range.prefix());
            result.ips.push(CniAddress {
                address: format!("{address}/{prefix}"),
                gateway: range.map(|range| range.first().to_ip()),
                interface: None,
            });
        }
        Ok(result)
    }

    /// The claim that the interface of a call is to have, once packets for its addresses arrive here. A pod that its claim moves to
    /// later gets them before that.
    async fn claimed(
        &self,
        claims: &Claims,
        call: &Call<'_>,
        name: &PodName,
        pool: &Pool,
    ) -> Result<Option<ClaimUse>, Failure> {
        let nowhere = |_: &str| false;
        let Claimed::New { claim_use, .. } = claims.claimed(call, (&call.key()?, name), &nowhere).await?
        else {
            return Ok(None);
        };
        for address in addresses_of(&claim_use) {
            if pool.range_of(address).is_none() {
                return Err(not_of(&claim_use, address, &format!("IPPool {:?}", pool.name)));
            }
            if claim_use.reached {
                let reached = self.aliases.reached(address, REACHED).await;
                reached.map_err(|why| refusal::not_reached(&claim_use.claim_name, address, why))?;
            }
        }
        Ok(Some(claim_use))
    }

    /// The pool of a call: the node has one, and the configuration may repeat its name.
    fn pool(&self, call: &Call<'_>) -> Result<Pool, Failure> {
        let pool = self.aliases.pool().map_err(|why| refusal::no_pool(&why))?;
        match ipam(call, "pool") {
            None | Some(Value::Null) => Ok(pool),
            Some(Value::String(name)) if *name == pool.name => Ok(pool),
            Some(other) => Err(refusal::other_pool(other, &pool.name)),
        }
    }

    async fn release(&self, call: &Call<'_>) -> Result<Deleted, Failure> {
        // The address of a marked pod must be kept for it before it is free.
        if let Some(name) = call.pod_name().ok().flatten()
            && let Some(pod) =
                self.pods.last_known(&name).await.filter(|pod| pod.facet.leaving && pod.is(&name))
        {
            self.aliases.leaves(&pod.uid).await;
        }
        call.release().await?;
        Ok(Deleted::Done)
    }

    async fn inspect(&self, call: &Call<'_>) -> Result<(), Failure> {
        let attach = Attach {
            key: call.key()?,
            pool: String::new(),
            pod: Pod::default(),
            netns: call.message.netns.clone(),
            wiring: None,
            wish: Wish::default(),
            claim_use: None,
        };
        call.inspect(attach, call.expected()).await
    }

    async fn serves(&self, call: &Call<'_>) -> Result<(), Failure> {
        let unavailable = |failure: Failure| Failure { code: Code::NotAvailable.number(), ..failure };
        if !call.node.look(Node::is_ready).await? {
            let message = "tenured reads its journal, the kernel and the API server";
            return Err(Failure::new(Code::NotAvailable, message).detail("it will serve when all is read"));
        }
        let pool = self.pool(call).map_err(unavailable)?;
        let key = pool.key.clone();
        let left = call.node.look(move |node| {
            let pools = node.pools();
            let found = pools.into_iter().find(|found| found.name == key);
            found.map_or(0, |found| found.counts.free + found.counts.cooling)
        });
        match self.aliases.trouble(None) {
            Some(trouble) if left.await? == 0 => {
                Err(unavailable(refusal::nothing_left(&pool.name, &trouble)))
            }
            _ => Ok(()),
        }
    }
}

/// The address that a pod names.
fn named_address(pod: &PodName, text: &str, pool: &Pool) -> Result<Address, Failure> {
    let address: Address = text.trim().parse().map_err(|_| refusal::no_address(pod, text))?;
    if pool.range_of(address).is_none() {
        return Err(refusal::foreign_address(pod, address, &pool.name));
    }
    if !pool.moves() {
        return Err(refusal::immovable(pod, address, &pool.name));
    }
    Ok(address)
}

/// The routes of the configuration; if it has none, the default route.
fn routes(call: &Call<'_>) -> Result<Vec<Route>, Failure> {
    match ipam(call, "routes") {
        None | Some(Value::Null) => {
            Ok(vec![Route { dst: "0.0.0.0/0".to_owned(), gw: None, more: Map::new() }])
        }
        Some(routes) => serde_json::from_value(routes.clone()).map_err(|error| {
            Failure::new(Code::InvalidConfig, format!("field ipam.routes cannot be read: {error}"))
                .detail("accepted is what the host-local plugin takes")
        }),
    }
}

/// A field of our part of the configuration.
fn ipam<'c>(call: &'c Call<'_>, field: &str) -> Option<&'c Value> {
    call.network.json.get("ipam")?.get(field)
}

impl Dialect for GcpIpam {
    fn accepts(&self) -> &'static str {
        "\"gcp-ipam\" as ipam.type"
    }

    fn is_for(&self, network: &NetworkConfig) -> bool {
        network.ipam.as_deref() == Some(TYPE)
    }

    fn add<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a, CniResult> {
        Box::pin(self.hold(call))
    }

    fn del<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a, Deleted> {
        Box::pin(self.release(call))
    }

    fn check<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a> {
        Box::pin(self.inspect(call))
    }

    fn gc<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a> {
        Box::pin(call.collect())
    }

    fn status<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a> {
        Box::pin(self.serves(call))
    }
}

#[cfg(test)]
mod tests;
