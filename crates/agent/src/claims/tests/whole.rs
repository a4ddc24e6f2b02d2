//! A node, the API server and a real controller together: claims from the first wish to the last pod.

use serde_json::{Value, json};

use super::bed::*;

/// A network that pods may name, under the name of its configuration.
async fn define(bed: &Bed, name: &str, mut network: Value) -> Value {
    network["name"] = json!(name);
    if let Some(ipam) = network.get_mut("ipam") {
        ipam["network_name"] = json!(name);
    }
    bed.network(name, &network).await;
    network
}

async fn pod(bed: &Bed, name: &str, network: &str, claim: &str) -> At {
    let networks = json!([{"name": network, "ipam-claim-reference": claim}]).to_string();
    bed.pod(name, json!({tenure_api::claims::annotation::NETWORKS: networks})).await
}

async fn status(bed: &Bed, claim: &str) -> Vec<String> {
    let claim = bed.claims(bed.namespace).get(claim).await.unwrap();
    claim.status.map(|status| status.ips).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_given_its_addresses_used_passed_on_and_kept() {
    let (bed, _controller) = Bed::controlled().await;
    let agent = bed.agent().await;
    for (name, network) in [("routed", routed()), ("shared", dual(shared())), ("sliced", dual(sliced()))] {
        let network = define(&bed, name, network).await;
        let claim = format!("vm.{name}");
        let (one, two) = (format!("{name}-one"), format!("{name}-two"));
        let one = pod(&bed, &one, name, &claim).await;
        // The pod comes first, and waits.
        let adding = agent.add(&network, &one);
        let making = bed.claim_with(bed.namespace, json!({"name": claim}), name, "net1");
        let (given, _) = tokio::join!(adding, making);
        let mut given = given.unwrap();
        let claim_use = |at: &At, reached: bool| bed.claim_use(&at.container, &claim, reached);
        assert_eq!(agent.holds().await, [claim_use(&one, true)]);
        // Another comes, and has the address only when the first is gone.
        let two = pod(&bed, &two, name, &claim).await;
        assert_eq!(agent.add(&network, &two).await.unwrap(), given);
        assert_eq!(agent.holds().await, [claim_use(&one, true), claim_use(&two, false)]);
        bed.delete_pod(&one).await;
        until("the commit", async || {
            (agent.holds().await == [claim_use(&one, false), claim_use(&two, true)]).then_some(())
        })
        .await;
        agent.del(&network, &one).await.unwrap();
        agent.del(&network, &two).await.unwrap();
        let mut kept = status(&bed, &claim).await;
        kept.sort();
        given.sort();
        assert_eq!(kept, given, "the claim has them still");
        assert_eq!(agent.holds().await, [""; 0]);
    }
}
