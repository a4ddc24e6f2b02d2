//! The addresses that a claim must have: from its annotation, from a status that it came with, and from the network
//! selections of pods that refer to it.

use tenure_api::claims::annotation;
use tenure_claims::references;
use tenure_claims::status::Reason;
use tenure_ipam::{Address, Notation};

use super::super::known::Claim;
use super::{Inputs, Refused};

/// All of them, without duplicates; an error if one cannot be read.
pub(super) fn of(Inputs { world, index, .. }: Inputs<'_>, claim: &Claim) -> Result<Vec<Address>, Refused> {
    let mut wishes = Vec::new();
    let annotated = claim.object.metadata.annotations.as_ref().and_then(|all| all.get(annotation::IPS));
    let annotated = annotated.into_iter().flat_map(|text| text.split(',')).map(str::trim);
    for text in annotated.filter(|text| !text.is_empty()) {
        wishes.push(
            read(text).map_err(|words| unreadable(&format!("annotation {}", annotation::IPS), &words))?,
        );
    }
    for text in claim.object.status.iter().flat_map(|status| &status.ips) {
        wishes.push(read(text).map_err(|words| unreadable("status.ips", &words))?);
    }
    let network_of = |namespace: &str, name: &str| world.network(namespace, name).map(str::to_owned);
    for pod in index.users.of_claim(world, claim) {
        for (network, _, wanted) in references(pod, network_of) {
            if wanted.reference.is(&claim.facts, &network) {
                wishes.extend(wanted.ips);
            }
        }
    }
    wishes.sort_unstable();
    wishes.dedup();
    Ok(wishes)
}

fn read(text: &str) -> Result<Address, String> {
    let address = if text.contains('/') {
        Notation::Strict.address_and_cidr(text).map(|(address, _)| address)
    } else {
        Notation::Strict.address(text)
    };
    address.map_err(|error| error.to_string())
}

fn unreadable(place: &str, words: &str) -> Refused {
    Refused::new(
        Reason::Invalid,
        format!("{place}: {words}; accepted are addresses such as 10.0.0.5 or 10.0.0.5/24"),
    )
}
