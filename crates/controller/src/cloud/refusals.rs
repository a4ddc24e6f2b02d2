//! What the cloud refuses a pool, in words, and what to do. What one machine lacks is reported on its node.

use tenure_api::cloud::AliasPool;
use tenure_cloud::{CloudError, ErrorKind};

use super::context::Context;
use super::index::PoolView;

/// Why addresses of a pool cannot be attached or removed: the reason of the condition, and its message.
pub(super) fn of_pool(
    context: Context<'_>,
    object: &AliasPool,
    pool: &PoolView,
) -> Option<(&'static str, String)> {
    let ranges = pool.ranges.as_ref().ok()?;
    let mut nodes = context.refusals.iter().filter(|(_, refusal)| {
        let mut about = refusal.ranges.iter();
        about.any(|range| ranges.place(range.cidr.first()).is_some())
    });
    let (first, refusal) = nodes.next()?;
    let others = match nodes.count() {
        0 => String::new(),
        1 => " and at one more machine".to_owned(),
        count => format!(" and at {count} more machines"),
    };
    let (reason, remedy) = remedy(&refusal.error, object);
    Some((reason, format!("the cloud refuses at node \"{first}\"{others}: {}; {remedy}", refusal.error)))
}

fn remedy(error: &CloudError, object: &AliasPool) -> (&'static str, String) {
    match error.kind {
        ErrorKind::Denied => (
            "CloudDenied",
            "give the controller's account the permission that is missing (docs/gcp.md, Install); it is tried again by itself"
                .to_owned(),
        ),
        ErrorKind::Capacity => (
            "CloudQuota",
            "ask the cloud for a larger quota, lower spec.warm, end pods, or attach blocks in another pool (docs/gcp.md, Size it); it \
             is tried again by itself"
                .to_owned(),
        ),
        _ => {
            let spec = &object.spec;
            let first = (&spec.secondary_range_name, &spec.cidr);
            let all = spec.ranges.iter().map(|range| (&range.secondary_range_name, &range.cidr));
            let all = std::iter::once(first).chain(all).map(|(name, cidr)| match name.as_str() {
                "" => format!("{cidr} in its primary range"),
                name => format!("secondary range \"{name}\" with {cidr}"),
            });
            let all: Vec<String> = all.collect();
            let remedy = format!(
                "look whether subnet {} has {} (tenure provision gcp --dry-run says what is missing); it is tried again by itself",
                spec.subnet,
                all.join(", ")
            );
            ("CloudRefused", remedy)
        }
    }
}
