//! Google's cloud: the calls of its Compute API that attaching addresses and making ranges need, and no more.
//!
//! The official library brings 892,000 generated lines, and leaves an empty list out of a request, which Google takes for "unchanged":
//! with it the last alias of an interface can never be removed. Here lists are always sent.
//!
//! Calls go over the HTTP and TLS stack that the Kubernetes client brings. Nothing is retried here.

mod addresses;
mod errors;
mod http;
mod metadata;
mod ranges;
mod token;
mod wire;

use std::sync::Arc;

use ::http::Method;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::addresses::Endpoints;
use self::http::Http;
pub use self::metadata::{Aliases, Metadata};
pub use self::ranges::{Addresses, InternalRange, SecondaryRange, Subnetwork};
pub use self::token::{Secret, TokenSource, Tokens};
use self::wire::{AggregatedInstances, Instance, InterfaceUpdate, Operation, Operations, last_part};
use crate::cloud::{Cloud, Observed, Owner, Progress, Ticket, Update};
use crate::error::{CloudError, ErrorKind};
use crate::interface::{AliasRange, InterfaceId};

/// So many alias ranges an interface can have, whatever their size.
pub const RANGES_PER_INTERFACE: usize = 150;

/// A project of Google's cloud.
#[derive(Clone, Debug)]
pub struct Gcp {
    project: String,
    endpoints: Endpoints,
    http: Http,
    tokens: Arc<Tokens>,
}

impl Gcp {
    /// The project, at these addresses, with tokens from that source. Makes no call.
    pub fn new(project: &str, endpoints: Endpoints, tokens: Tokens) -> Result<Self, CloudError> {
        Ok(Self { project: project.to_owned(), endpoints, http: Http::new()?, tokens: Arc::new(tokens) })
    }

    /// One call with a token.
    async fn call<B: Serialize, T: DeserializeOwned>(
        &self,
        act: &str,
        method: Method,
        url: &str,
        body: Option<&B>,
    ) -> Result<T, CloudError> {
        let token = self.tokens.get().await?;
        let answer = self.http.send(act, method, url, Some(&token), body).await?;
        let read = answer.read(act);
        if matches!(&read, Err(error) if error.kind == ErrorKind::Denied && answer.status() == 401) {
            // It was revoked before its time: the next call gets another one.
            self.tokens.forget().await;
        }
        read
    }

    async fn get<T: DeserializeOwned>(&self, act: &str, url: &str) -> Result<T, CloudError> {
        self.call::<(), T>(act, Method::GET, url, None).await
    }

    async fn instance(&self, interface: &InterfaceId) -> Result<Observed, CloudError> {
        let act = format!("reading {interface}");
        let url = self.endpoints.instance(&self.project, interface)?;
        let instance: Instance = self.get(&act, &url).await?;
        let found = instance.network_interfaces.into_iter().find(|found| found.name == interface.name);
        let found = found.ok_or_else(|| {
            CloudError::new(ErrorKind::NotFound, format!("{act}: the instance has no such interface"))
        })?;
        // A list that is not understood in full is not written: what is missing in an update is removed.
        let aliases = found.alias_ip_ranges.iter().map(|alias| alias.read(&act)).collect::<Result<_, _>>()?;
        Ok(Observed { aliases, version: found.fingerprint, limit: RANGES_PER_INTERFACE })
    }

    async fn update(&self, update: &Update) -> Result<Ticket, CloudError> {
        let act = format!("changing the alias ranges of {}", update.interface);
        let url = self.endpoints.update(&self.project, &update.interface, &update.request)?;
        let body = InterfaceUpdate::new(&update.version, &update.aliases);
        let operation: Operation = self.call(&act, Method::PATCH, &url, Some(&body)).await?;
        Ok(Ticket(operation.name))
    }

    async fn operation(&self, interface: &InterfaceId, ticket: &Ticket) -> Result<Progress, CloudError> {
        let act = format!("asking about operation {} of {interface}", ticket.0);
        let url = self.endpoints.zone_operation(&self.project, &interface.zone, &ticket.0)?;
        let operation: Operation = self.get(&act, &url).await?;
        Ok(operation.progress(&format!("changing the alias ranges of {interface}")))
    }

    async fn unfinished_operation(&self, interface: &InterfaceId) -> Result<Option<Ticket>, CloudError> {
        let act = format!("looking for unfinished operations of {interface}");
        let url = self.endpoints.unfinished_operations(&self.project, &interface.zone)?;
        let operations: Operations = self.get(&act, &url).await?;
        let of_instance = |operation: &Operation| last_part(&operation.target_link) == interface.instance;
        let found = operations.items.into_iter().filter(of_instance).find(|operation| !operation.is_done());
        Ok(found.map(|operation| Ticket(operation.name)))
    }

    async fn owner_of(
        &self,
        region: &str,
        range: &AliasRange,
        page: Option<&str>,
    ) -> Result<Owner, CloudError> {
        let act = format!("looking for the instance that has {range}");
        let url = self.endpoints.all_instances(&self.project, page)?;
        let found: AggregatedInstances = self.get(&act, &url).await?;
        if let Some(owner) = found.owner(region, range) {
            return Ok(Owner::Interface(owner));
        }
        let next = found.next_page_token.filter(|token| !token.is_empty());
        Ok(next.map_or(Owner::Nobody, Owner::NextPage))
    }
}

impl Cloud for Gcp {
    fn observe<'a>(&'a self, interface: &'a InterfaceId) -> BoxFuture<'a, Result<Observed, CloudError>> {
        self.instance(interface).boxed()
    }

    fn apply<'a>(&'a self, update: &'a Update) -> BoxFuture<'a, Result<Ticket, CloudError>> {
        self.update(update).boxed()
    }

    fn poll<'a>(
        &'a self,
        interface: &'a InterfaceId,
        ticket: &'a Ticket,
    ) -> BoxFuture<'a, Result<Progress, CloudError>> {
        self.operation(interface, ticket).boxed()
    }

    fn unfinished<'a>(
        &'a self,
        interface: &'a InterfaceId,
    ) -> BoxFuture<'a, Result<Option<Ticket>, CloudError>> {
        self.unfinished_operation(interface).boxed()
    }

    fn owner<'a>(
        &'a self,
        region: &'a str,
        range: &'a AliasRange,
        page: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Owner, CloudError>> {
        self.owner_of(region, range, page).boxed()
    }
}
