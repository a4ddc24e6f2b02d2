//! What a key already has, for callers that would otherwise have to ask others.

use tenure_ipam::Address;

use super::Node;
use super::attachment::AddressLocation;
use crate::key::HoldKey;

/// What a key has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holding {
    /// The addresses of a claim.
    Claim(Vec<Address>),
    /// An address of a block.
    Ordinary,
}

impl Node {
    /// What a key has and keeps. For a link that only the kernel knows, an ADD must ask again.
    pub fn holding(&self, key: &HoldKey) -> Option<Holding> {
        let attachment = self.attachments.get(&key.id()).filter(|it| it.key == *key && !it.is_leaving())?;
        match &attachment.place {
            AddressLocation::Claim(use_state) => Some(Holding::Claim(use_state.every_address())),
            AddressLocation::Block { .. } => Some(Holding::Ordinary),
            AddressLocation::Nowhere | AddressLocation::Stray(_) => None,
        }
    }
}
