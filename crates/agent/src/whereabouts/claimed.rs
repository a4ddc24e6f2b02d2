//! Claims on Whereabouts' networks. They are on record before any ADD, so neither ledgers nor slices are
//! involved.

use tenure_cni::Failure;
use tenure_ipam::Address;
use tenure_whereabouts::config::{Config, RangeConfig};

use super::{Whereabouts, pod_name};
use crate::claims::{Claimed, Claims, addresses_of, lacks, not_of};
use crate::key::{HoldKey, Pod};
use crate::node::{Attach, ClaimUse, Holding, Wish};
use crate::serve::Call;
use crate::whereabouts::slices::POOLS;

impl Whereabouts {
    /// The addresses of the claim that the interface refers to, one per range; `None` if it refers to none.
    pub(super) async fn hold_of_claim(
        &self,
        claims: &Claims,
        key: &HoldKey,
        call: &Call<'_>,
        config: &Config,
    ) -> Result<Option<Vec<Address>>, Failure> {
        let pod = pod_name(config);
        let name = &call.network.name;
        // A holder in a shared ledger keeps its addresses.
        let has =
            |interface: &str| self.ledgers.attachment(name, &call.message.container_id, interface).is_some();
        if pod.name.is_empty() || has(&call.message.ifname) {
            return Ok(None);
        }
        let mut attach = attach(key, call, config);
        let ordered = match claims.claimed(call, (key, &pod), &has).await? {
            Claimed::Nothing => return Ok(None),
            Claimed::Again(addresses) => in_order(&addresses, config),
            Claimed::New { claim_use, pod_uid } => {
                let ordered = by_range(&claim_use, config)?;
                attach.pod.uid = pod_uid;
                attach.claim_use = Some(on_segment(claim_use, config));
                ordered
            }
        };
        call.hold(attach).await?;
        Ok(Some(ordered))
    }

    /// Whether the interface has a claim's addresses, as the ADD answered; an error if it has others.
    pub(super) async fn check_claim(
        &self,
        key: &HoldKey,
        call: &Call<'_>,
        config: &Config,
        expected: &[Address],
    ) -> Result<bool, Failure> {
        let held = key.clone();
        let Some(Holding::Claim(_)) = call.node.look(move |node| node.holding(&held)).await? else {
            return Ok(false);
        };
        let of_range =
            |address: &&Address| config.ranges.iter().any(|range| range.cidr().contains(**address));
        let expected = expected.iter().filter(of_range).copied().collect();
        let attach = attach(key, call, config);
        call.inspect(attach, expected).await?;
        Ok(true)
    }
}

/// The addresses get the prefix length of their range, whatever a claim's status says: only single hosts are
/// routed, and a range of one address is on a segment as well.
fn on_segment(claim_use: ClaimUse, config: &Config) -> ClaimUse {
    let prefix = |address: Address| {
        let range = config.ranges.iter().find(|range| range.cidr().contains(address));
        range.map_or(0, |range| range.cidr().prefix()).min(address.family().bits() - 1)
    };
    let addresses = claim_use.addresses.iter().map(|(address, _)| (*address, prefix(*address))).collect();
    ClaimUse { addresses, ..claim_use }
}

fn attach(key: &HoldKey, call: &Call<'_>, config: &Config) -> Attach {
    let pod = pod_name(config);
    Attach {
        key: key.clone(),
        // Addresses of ranges are unique within their network.
        pool: format!("{POOLS}{}", config.network),
        pod: Pod { namespace: pod.namespace, name: pod.name, uid: pod.uid },
        netns: call.message.netns.clone(),
        wiring: None,
        wish: Wish::default(),
        claim_use: None,
    }
}

/// A claim's addresses in the order of a network's ranges. Refuses addresses outside all ranges, and a claim
/// without one of each.
fn by_range(claim_use: &ClaimUse, config: &Config) -> Result<Vec<Address>, Failure> {
    let mut left: Vec<Address> = addresses_of(claim_use).collect();
    let mut ordered = Vec::new();
    for range in &config.ranges {
        let Some(place) = left.iter().position(|address| range.cidr().contains(*address)) else {
            // An address outside all ranges is a better error than a range without an address.
            if let Some(other) = left.iter().find(|address| !in_any(&config.ranges, **address)) {
                return Err(not_of(claim_use, *other, &ranges_of(config)));
            }
            return Err(lacks(
                claim_use,
                &format!("range {} of network {:?}", range.range_text(), config.name),
            ));
        };
        ordered.push(left.remove(place));
    }
    match left.first() {
        Some(other) => Err(not_of(claim_use, *other, &ranges_of(config))),
        None => Ok(ordered),
    }
}

/// A claim's addresses in the order of a network's ranges, even if the ranges changed since.
fn in_order(addresses: &[Address], config: &Config) -> Vec<Address> {
    let mut left = addresses.to_vec();
    let mut of_range = |range: &RangeConfig| {
        let place = left.iter().position(|address| range.cidr().contains(*address))?;
        Some(left.remove(place))
    };
    let ordered: Option<Vec<Address>> = config.ranges.iter().map(&mut of_range).collect();
    ordered.unwrap_or_else(|| addresses.to_vec())
}

fn in_any(ranges: &[RangeConfig], address: Address) -> bool {
    ranges.iter().any(|range| range.cidr().contains(address))
}

fn ranges_of(config: &Config) -> String {
    let texts: Vec<String> = config.ranges.iter().map(RangeConfig::range_text).collect();
    format!("network {:?} ({})", config.name, texts.join(", "))
}
