//! Coil's dialect: `"type": "tenure"` or `"coil"`, as the plugin that creates the interface or as `ipam` of
//! another.
//!
//! Addresses come from blocks of pools, which this node requests from the controller, or from a claim.

mod claimed;
mod network;
mod refusal;
mod reply;
mod request;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tenure_cni::{CniResult, Code, Failure, NetworkConfig};

pub(crate) use refusal::{failure, unavailable};
pub use request::{Asked, Resolve};

use crate::claims::Claims;
use crate::egress::{Attachment, Egress};
use crate::key::Pod;
use crate::node::{Event, Node};
use crate::serve::{Answered, Call, Deleted, Dialect};
use network::Network;
use reply::Gateways;
use request::{Request, is_ours};

/// Serves Coil's networks.
#[derive(Debug)]
pub struct Coil<R> {
    resolve: R,
    gateways: Gateways,
    claims: Option<Claims>,
    egress: Option<Egress>,
}

impl<R: Resolve> Coil<R> {
    /// Serves pods from the pools that `resolve` returns. The pods use these addresses as their gateways.
    pub fn new(resolve: R, (gateway_v4, gateway_v6): (Ipv4Addr, Ipv6Addr)) -> Self {
        let gateways = Gateways { v4: IpAddr::V4(gateway_v4), v6: IpAddr::V6(gateway_v6) };
        Self { resolve, gateways, claims: None, egress: None }
    }

    /// Pods may also refer to claims.
    #[must_use]
    pub fn with_claims(self, claims: Option<Claims>) -> Self {
        Self { claims, ..self }
    }

    /// Pods may also use Egresses.
    #[must_use]
    pub fn with_egress(self, egress: Option<Egress>) -> Self {
        Self { egress, ..self }
    }

    async fn attach_pod(&self, call: &Call<'_>) -> Result<CniResult, Failure> {
        let request = Request::read(call);
        request.refuse_chain()?;
        let asked = request.asked()?;
        // What is refused is refused before anything is held.
        let leaves = match self.egress.as_ref().filter(|_| !request.addresses_only) {
            Some(egress) => Some((egress, egress.wanted(asked.pod.as_ref()).await?)),
            None => None,
        };
        let refers = self.claims.as_ref().and_then(|claims| Some((claims, asked.pod.clone()?)));
        let (pool, pod) = self.resolve.resolve(asked).await?;
        let network = if request.addresses_only { Some(self.network(&request, &pool).await?) } else { None };
        let attach = match refers {
            None => request.attach(pool, pod)?,
            Some((claims, name)) => {
                // Boxed, because it is larger than all the rest.
                Box::pin(claimed::attach(claims, &request, &name, (pool, pod))).await?
            }
        };
        let (key, pod) = (attach.key.clone(), attach.pod.clone());
        let held = call.hold(attach).await?;
        if let Some((egress, wanted)) = leaves {
            let addresses = held.addresses.iter().map(tenure_ipam::Address::to_ip);
            let attachment = Attachment::new(&key, &pod, &call.message.netns, addresses);
            egress.attach(attachment, &wanted).await?;
        }
        match (network, held.link) {
            (Some(network), _) => reply::of_addresses(&request, &network, held.addresses, held.subnet),
            (None, Some(link)) => Ok(reply::of_interface(&request, held.addresses, link, self.gateways)),
            (None, None) => Err(Failure::new(Code::Internal, "the node made no interface")),
        }
    }

    /// The network that another plugin creates.
    async fn network(&self, request: &Request<'_>, pool: &str) -> Result<Network, Failure> {
        let name = pool.to_owned();
        let facts = request.call.node.look(move |node| node.pool_facts(&name).cloned()).await?;
        Network::read(request, pool, facts, self.gateways)
    }
}

impl<R: Resolve> Dialect for Coil<R> {
    fn accepts(&self) -> &'static str {
        "\"tenure\" or \"coil\" as one of them"
    }

    fn is_for(&self, network: &NetworkConfig) -> bool {
        is_ours(network)
    }

    fn add<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a, CniResult> {
        Box::pin(self.attach_pod(call))
    }

    fn del<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a, Deleted> {
        Box::pin(async move {
            let (key, interface) = (call.key()?, !Request::read(call).addresses_only);
            let (container, ifname) = (key.container().to_owned(), key.interface().to_owned());
            call.node.call(move |ticket| Event::Del { ticket, key, interface }).await?;
            if let Some(egress) = &self.egress {
                egress.detached(&container, &ifname);
            }
            Ok(Deleted::Done)
        })
    }

    fn check<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a> {
        Box::pin(async move {
            // A hold stays, whatever pool its namespace names by now.
            let attach = Request::read(call).attach(String::new(), Pod::default())?;
            let key = attach.key.clone();
            call.inspect(attach, call.expected()).await?;
            // Of an interface that another plugin made, egress is not ours.
            let egress = self.egress.as_ref().filter(|_| !Request::read(call).addresses_only);
            let Some(egress) = egress else { return Ok(()) };
            let wanted = egress.wanted(call.pod_name()?.as_ref()).await?;
            let addresses = call.expected().into_iter().map(tenure_ipam::Address::to_ip);
            egress
                .check(&Attachment::new(&key, &Pod::default(), &call.message.netns, addresses), &wanted)
                .await
        })
    }

    fn gc<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a> {
        Box::pin(call.collect())
    }

    fn status<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a> {
        Box::pin(async move { call.node.look(Node::status).await?.map_err(unavailable) })
    }
}
