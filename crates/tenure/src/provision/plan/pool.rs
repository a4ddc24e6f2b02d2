//! What is to be done about the pool itself, once its ranges are there.

use anyhow::{Context, Result, bail};
use kube::ResourceExt;
use tenure_api::cloud::{AliasPoolSpec, AliasRange};

use super::{Count, Found, Mode, Plan, Step, Wanted};
use crate::provision::seen::Seen;

pub(super) fn steps(wanted: &Wanted, seen: &Seen, ranges: &[Found], plan: &mut Plan) -> Result<()> {
    let object = format!("IPPool {}", wanted.pool);
    let words = |of: &[Found]| {
        of.iter().map(|it| it.cidr.as_deref().unwrap_or("(as above)")).collect::<Vec<_>>().join(", ")
    };
    // Before the cloud is ready for it there is no pool: addresses could not be attached.
    let ready = plan.next().is_none();
    let Some(pool) = &seen.pool else {
        let step = if ready { Step::CreatePool(spec(wanted, ranges)?) } else { Step::Later };
        plan.push("create", object, &words(ranges), Some(step));
        return Ok(());
    };
    plan.push("create", object.clone(), &pool.spec.cidr, None);
    let has = |found: &&Found| {
        std::iter::once((&pool.spec.secondary_range_name, &pool.spec.cidr))
            .chain(pool.spec.ranges.iter().map(|range| (&range.secondary_range_name, &range.cidr)))
            .any(|(name, cidr)| *name == found.range && found.cidr.as_ref().is_none_or(|found| found == cidr))
    };
    for range in &pool.spec.ranges {
        plan.push("append", object.clone(), &range.cidr, None);
    }
    let new: Vec<Found> = ranges
        .iter()
        .filter(|found| !has(found))
        .map(|found| Found { range: found.range.clone(), cidr: found.cidr.clone() })
        .collect();
    if new.is_empty() {
        return Ok(());
    }
    if wanted.mode == Mode::Static && wanted.count == Count::AtLeast(1) {
        bail!(
            "IPPool \"{}\" exists and does not have {}; give --grow to append it, or --pool NAME for another pool",
            pool.name_any(),
            words(&new)
        );
    }
    let step = if ready { Step::AppendToPool(alias_ranges(&new)?) } else { Step::Later };
    plan.push("append", object, &words(&new), Some(step));
    Ok(())
}

fn spec(wanted: &Wanted, ranges: &[Found]) -> Result<AliasPoolSpec> {
    let mut ranges = alias_ranges(ranges)?.into_iter();
    let first = ranges.next().context("a pool has a range")?;
    Ok(AliasPoolSpec {
        cidr: first.cidr,
        subnet: wanted.place.path(),
        secondary_range_name: first.secondary_range_name,
        ranges: ranges.collect(),
        ..AliasPoolSpec::default()
    })
}

fn alias_ranges(found: &[Found]) -> Result<Vec<AliasRange>> {
    let of = |found: &Found| {
        let cidr = found.cidr.clone().with_context(|| format!("range {} has no addresses", found.range))?;
        Ok(AliasRange { cidr, secondary_range_name: found.range.clone() })
    };
    found.iter().map(of).collect()
}
