//! Ranges with slices: this node assigns from its own slice without asking anybody.

use tenure_cni::{Code, Failure};
use tenure_ipam::Address;
use tenure_whereabouts::config::{Config, RangeConfig};
use tenure_whereabouts::slices::slice_pools;

use super::Whereabouts;
use crate::key::{HoldKey, Pod};
use crate::node::{Attach, Wish};
use crate::serve::Call;
use crate::whereabouts::slices::Slice;

impl Whereabouts {
    /// An address from this node's slice of each range, or none.
    pub(super) async fn hold_of_slices(
        &self,
        key: &HoldKey,
        call: &Call<'_>,
        config: &Config,
        preferred: &[Option<Address>],
    ) -> Result<Vec<Address>, Failure> {
        let slices = self.slices_of(config).await?;
        let mut parts = Vec::new();
        for (number, (range, slice)) in config.ranges.iter().zip(&slices).enumerate() {
            let mut wish = wish(range, slice)?;
            wish.preferred = preferred.get(number).copied().flatten();
            parts.push(attach(key, number, call, config, slice, wish));
        }
        let mut addresses = Vec::new();
        for part in parts {
            addresses.extend(call.hold(part).await?.addresses.iter().next());
        }
        Ok(addresses)
    }

    /// Checks that each part is held and has the addresses that the ADD answered.
    pub(super) async fn check_slices(
        &self,
        key: &HoldKey,
        call: &Call<'_>,
        config: &Config,
        expected: &[Address],
    ) -> Result<(), Failure> {
        let slices = self.slices_of(config).await?;
        for (number, (range, slice)) in config.ranges.iter().zip(&slices).enumerate() {
            let same = config.ranges.iter().filter(|other| other.cidr() == range.cidr()).count() > 1;
            let of_range = |address: &&Address| !same && range.cidr().contains(**address);
            let expected = expected.iter().filter(of_range).copied().collect();
            let attach = attach(key, number, call, config, slice, Wish::default());
            call.inspect(attach, expected).await?;
        }
        Ok(())
    }

    /// This node's slice of each range.
    pub(super) async fn slices_of(&self, config: &Config) -> Result<Vec<Slice>, Failure> {
        let pools =
            slice_pools(config).map_err(|error| Failure::new(Code::InvalidConfig, error.to_string()))?;
        let mut slices = Vec::new();
        for (name, _) in pools {
            slices.push(self.slices.slice(&name).await?);
        }
        Ok(slices)
    }
}

/// Which addresses of a slice the range assigns.
fn wish(range: &RangeConfig, slice: &Slice) -> Result<Wish, Failure> {
    let Some(within) = range.within(slice.cidr) else {
        let message =
            format!("slice {} of this node has no address of {} to assign", slice.cidr, range.range_text());
        return Err(Failure::new(Code::TryAgainLater, message)
            .detail("accepted is an exclude, range_start and range_end that leave each slice an address"));
    };
    let only: Vec<Address> = range.pick.iter().copied().filter(|it| slice.cidr.contains(*it)).collect();
    if only.is_empty() && !range.pick.is_empty() {
        let message = format!("none of pick_addresses is in slice {} of this node", slice.cidr);
        return Err(Failure::new(Code::TryAgainLater, message)
            .detail("accepted are pick_addresses of every node's slice, or a network without slices"));
    }
    Ok(Wish { within: Some(within), only, preferred: None, lowest: true, kept_for_pod: false })
}

fn attach(
    key: &HoldKey,
    number: usize,
    call: &Call<'_>,
    config: &Config,
    slice: &Slice,
    wish: Wish,
) -> Attach {
    let arguments = &config.arguments;
    let pod = Pod {
        namespace: arguments.pod_namespace.clone(),
        name: arguments.pod_name.clone(),
        uid: arguments.pod_uid.clone(),
    };
    Attach {
        key: key.part(u32::try_from(number).unwrap_or(u32::MAX)),
        pool: slice.pool.clone(),
        pod,
        netns: call.message.netns.clone(),
        wiring: None,
        wish,
        claim_use: None,
    }
}
