//! The plan to remove a pool, and what was made for it. What somebody else made stays.

use anyhow::{Result, ensure};

use super::{Plan, Step, Wanted};
use crate::provision::seen::Seen;

pub(super) fn plan(wanted: &Wanted, seen: &Seen) -> Result<Plan> {
    let mut plan = Plan::new(&wanted.pool);
    if let Some(pool) = &seen.pool {
        let status = pool.status.clone().unwrap_or_default();
        let in_status = usize::try_from(status.allocated).unwrap_or_default();
        let in_use = in_status.max(seen.records).max(pool.spec.allocations.len());
        ensure!(
            in_use == 0,
            "IPPool \"{}\" has {in_use} addresses in use; delete the pods that have them, and try again when its status says that \
             none is allocated",
            wanted.pool
        );
        plan.push("delete", format!("IPPool {}", wanted.pool), &pool.spec.cidr, Some(Step::DeletePool));
    }
    let ours: Vec<(&String, &tenure_cloud::gcp::InternalRange)> = seen.reservations.iter().collect();
    for range in &seen.subnet.secondary_ip_ranges {
        let linked = range.reserved_internal_range.rsplit('/').next().unwrap_or_default();
        if ours.iter().any(|(name, _)| *name == linked) {
            let step = Step::RemoveRange(range.range_name.clone());
            let object = format!("secondary range {}", range.range_name);
            plan.push("remove", object, &range.ip_cidr_range, Some(step));
        }
    }
    // From the last to the first: whoever looks for them stops at the first that is missing.
    let mut ours: Vec<_> = ours.into_iter().collect();
    ours.sort_by_key(|(name, _)| (name.len(), (*name).clone()));
    for (name, reserved) in ours.into_iter().rev() {
        let step = Step::Release(name.clone());
        plan.push("release", format!("internal range {name}"), &reserved.ip_cidr_range, Some(step));
    }
    Ok(plan)
}
