//! More enactments than reservations that can be listed.

use serde_json::json;
use tenure_api::nmstate::{NodeIPPool, NodeNetworkConfigurationEnactment};

use super::*;

fn enactment(number: usize, address: Option<&str>) -> EnactmentFacts {
    let allocated: Vec<&str> = address.into_iter().collect();
    let ippool = if allocated.is_empty() { json!({}) } else { json!({"p": {"allocated": allocated}}) };
    let object: NodeNetworkConfigurationEnactment = serde_json::from_value(json!({
        "apiVersion": "nmstate.io/v1beta1", "kind": "NodeNetworkConfigurationEnactment",
        "metadata": {"name": format!("n{number:05}.s"), "uid": format!("u{number}"), "resourceVersion": "1"},
        "status": {"ippool": ippool},
    }))
    .unwrap();
    EnactmentFacts::seen(object).facts
}

#[test]
fn five_thousand_nodes_at_once_get_their_addresses_by_writes_that_the_schema_accepts() {
    let pool: NodeIPPool = serde_json::from_value(json!({
        "apiVersion": "nmstate.io/v1", "kind": "NodeIPPool", "metadata": {"name": "p", "uid": "p"},
        "spec": {"range": {"cidr": "10.0.0.0/16"}},
    }))
    .unwrap();
    let mut pool = PoolFacts::seen(pool).facts;
    let range = pool.range.clone().unwrap();
    let mut all: Vec<EnactmentFacts> = (0..5_000).map(|number| enactment(number, None)).collect();
    let (mut stale, now) = (Stale::new(), Timestamp::from_millis(1_000_000));
    let mut writes = 0;
    for _ in 0..40 {
        let members: Vec<Member<'_>> = all.iter().map(|facts| Member { facts, asks: 1, wants: 1 }).collect();
        let look = look(&pool, &members, &Around::default(), &mut stale, Duration::from_secs(30), now);
        if let Some(NodeAddressWrite::Pool { status, .. }) = look.write {
            writes += 1;
            assert!(status.promised.len() <= PROMISES, "{} promises", status.promised.len());
            assert_eq!(status.conditions[0].reason, "ReconciledPool");
            pool.object.status = Some(*status);
        }
        // Some of them name what is reserved for them.
        let promised = pool.object.status.clone().unwrap().promised;
        let unnamed = promised
            .iter()
            .filter(|it| all.iter().any(|known| known.at.uid == it.uid && known.addresses.is_empty()));
        for it in unnamed.take(700).cloned().collect::<Vec<_>>() {
            let number: usize = it.uid[1..].parse().unwrap();
            let address = range.address(u128::try_from(it.offset).unwrap()).unwrap().to_string();
            all[number] = enactment(number, Some(&address));
        }
    }
    let held: BTreeSet<&String> = all.iter().flat_map(|it| it.addresses.values().flatten()).collect();
    assert_eq!(held.len(), 5_000, "each has its own");
    assert!(writes <= 5, "{writes} writes");
}
