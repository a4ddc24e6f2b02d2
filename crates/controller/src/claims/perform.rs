//! Performing writes of claims.

mod moves;
mod owners;
mod records;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::{Api, Client};
use tenure_api::claims::IPAMClaim;
use tenure_api::coil::AddressBlock;

use super::write::{ClaimWrite, MoveWrite, OwnerWrite};
use crate::executor::{Answer, Outcome};
use crate::part::Perform;
use crate::whereabouts::LedgerApi;
use crate::write::{Operation, of};

/// Performs through one client.
#[derive(Clone)]
pub(super) struct ClaimsPerformer {
    client: Client,
    blocks: Api<AddressBlock>,
    ranges: LedgerApi,
}

impl ClaimsPerformer {
    /// The namespace of ledgers that have records of claims.
    pub(super) fn new(client: Client, namespace: &str) -> Self {
        let ranges = LedgerApi::new(client.clone(), namespace);
        Self { blocks: Api::all(client.clone()), ranges, client }
    }

    fn claims(&self, namespace: &str) -> Api<IPAMClaim> {
        Api::namespaced(self.client.clone(), namespace)
    }
}

impl Perform for ClaimsPerformer {
    fn perform<'a>(&'a self, operation: &'a dyn Operation) -> BoxFuture<'a, Answer> {
        async move {
            if let Some(write) = of::<ClaimWrite>(operation) {
                self.write_claim(write).await
            } else if let Some(write) = of::<MoveWrite>(operation) {
                self.write_move(write).await
            } else if let Some(write) = of::<OwnerWrite>(operation) {
                self.write_owned(write).await
            } else {
                Ok((Outcome::Failed(format!("this is no write of claims: {operation:?}")), None))
            }
        }
        .boxed()
    }
}
