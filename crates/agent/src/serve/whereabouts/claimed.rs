//! Claims on Whereabouts' networks: on record before anybody asks, so that neither ledgers nor slices have to do with it.

use tenure_cni::{Code, Failure};
use tenure_ipam::Address;
use tenure_whereabouts::config::Config;

use super::{Asked, Whereabouts, pod_name};
use crate::claims::Claims;
use crate::drive::Handle;
use crate::key::{HoldKey, Pod};
use crate::node::{Attach, Done, Event, Guest, Had, Wish};
use crate::serve::guests::{self, Due};
use crate::slices::POOLS;

impl Whereabouts {
    /// The addresses of the claim that the interface refers to, one of each range; nothing if it refers to none.
    pub(super) async fn hold_of_claim(
        &self,
        node: &Handle,
        claims: &Claims,
        key: &HoldKey,
        asked: &Asked<'_>,
        config: &Config,
    ) -> Result<Option<Vec<Address>>, Failure> {
        let pod = pod_name(config);
        let name = &asked.network.name;
        // Who has something in a shared ledger keeps it.
        let has =
            |interface: &str| self.ledgers.attachment(name, &asked.call.container_id, interface).is_some();
        if pod.name.is_empty() || has(&asked.call.ifname) {
            return Ok(None);
        }
        let mut attach = attach(key, asked, config);
        let ordered = match guests::due(claims, node, (key, &pod), asked.network, asked.call, &has).await? {
            Due::Ordinary => return Ok(None),
            Due::Again(addresses) => guests::in_order(&addresses, config),
            Due::New(lodger) => {
                let ordered = guests::by_range(&lodger.guest, config)?;
                attach.pod.uid = lodger.pod_uid;
                attach.guest = Some(on_segment(lodger.guest, config));
                ordered
            }
        };
        match node.call(move |ticket| Event::Add { ticket, attach }).await? {
            Done::Added { .. } => Ok(Some(ordered)),
            _ => Err(Failure::new(Code::Internal, "the node answered something else")),
        }
    }

    /// Whether the interface has a claim's addresses, as the ADD answered; a failure if it has others.
    pub(super) async fn check_claim(
        &self,
        node: &Handle,
        key: &HoldKey,
        asked: &Asked<'_>,
        config: &Config,
        expected: &[Address],
    ) -> Result<bool, Failure> {
        let held = key.clone();
        let Some(Had::Claim(_)) = node.look(move |node| node.had(&held)).await? else { return Ok(false) };
        let of_range =
            |address: &&Address| config.ranges.iter().any(|range| range.cidr().contains(**address));
        let expected = expected.iter().filter(of_range).copied().collect();
        let attach = attach(key, asked, config);
        node.call(move |ticket| Event::Check { ticket, attach, expected }).await?;
        Ok(true)
    }
}

/// The addresses have the length of their range, whatever a claim's status says: only single hosts are routed, and a range of
/// one address is on a segment as well.
fn on_segment(guest: Guest, config: &Config) -> Guest {
    let prefix = |address: Address| {
        let range = config.ranges.iter().find(|range| range.cidr().contains(address));
        range.map_or(0, |range| range.cidr().prefix()).min(address.family().bits() - 1)
    };
    let addresses = guest.addresses.iter().map(|(address, _)| (*address, prefix(*address))).collect();
    Guest { addresses, ..guest }
}

fn attach(key: &HoldKey, asked: &Asked<'_>, config: &Config) -> Attach {
    let pod = pod_name(config);
    Attach {
        key: key.clone(),
        // Addresses of ranges are unique among those of their network.
        pool: format!("{POOLS}{}", config.network),
        pod: Pod { namespace: pod.namespace, name: pod.name, uid: pod.uid },
        netns: asked.call.netns.clone(),
        wiring: None,
        wish: Wish::default(),
        guest: None,
    }
}
