//! What a key has already, for those who would have to ask others what it is to have.

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
    /// What a key has, if it is to keep that. Of what only the kernel knows, an ADD must say anew what it is.
    pub fn holding(&self, key: &HoldKey) -> Option<Holding> {
        let attachment = self.attachments.get(&key.id()).filter(|it| it.key == *key && !it.is_leaving())?;
        match &attachment.place {
            AddressLocation::Claim(use_state) => Some(Holding::Claim(use_state.every_address())),
            AddressLocation::Block { .. } => Some(Holding::Ordinary),
            AddressLocation::Nowhere | AddressLocation::Stray(_) => None,
        }
    }
}
