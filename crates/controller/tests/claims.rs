//! A controller on the embedded API server, and claims: given as soon as they exist, freed when they are gone and nobody
//! uses them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by failing")]
#![allow(clippy::wildcard_imports, reason = "the bed is made for these tests")]

use std::time::Duration;

use bed::claims::*;
use bed::*;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tenure_api::coil::AddressPool;
use tenure_controller::Settings;
use tenure_controller_testbed as bed;
use tenure_testbed::faults::{Calls, Faults, Rule, Verb};

async fn dual_pool(client: &Client, name: &str, bits: i32, ipv4: &str, ipv6: &str) {
    let spec = json!({"blockSizeBits": bits, "subnets": [{"ipv4": ipv4, "ipv6": ipv6}], "cooling": "1s"});
    let pool = AddressPool::new(name, serde_json::from_value(spec).unwrap());
    pools(client).create(&PostParams::default(), &pool).await.unwrap();
}

async fn floating(client: &Client) -> usize {
    let all = blocks(client).list(&ListParams::default()).await.unwrap();
    all.iter().filter(|block| block.is_floating()).count()
}

/// The usual pool, and a controller that has the lead.
async fn started(seed: u64) -> (Client, Running) {
    let client = server(seed).await.client();
    pool(&client, "default", 2, "10.2.0.0/24").await;
    let controller = start_with(client.clone(), claiming("a"));
    (client, controller)
}

#[tokio::test(start_paused = true)]
async fn a_claim_gets_an_address_of_each_family_as_soon_as_it_exists_and_says_so() {
    let client = server(101).await.client();
    dual_pool(&client, "default", 5, "10.2.0.0/24", "fd00::/120").await;
    let early = claim(&client, "early", CLUSTER).await;
    let controller = start_with(client.clone(), claiming("a"));
    assert_eq!(
        given(&client, "early").await,
        ["10.2.0.0/32", "fd00::/128"],
        "also one that was there before"
    );
    let said = claims(&client).get("early").await.unwrap();
    let allocated = said.status.as_ref().unwrap().condition("IPsAllocated").unwrap().clone();
    assert_eq!(
        (allocated.status.as_str(), allocated.reason.as_str(), allocated.message.as_str()),
        ("True", "SuccessfulAllocation", "IP addresses successfully allocated")
    );
    assert_eq!(allocated.observed_generation, early.metadata.generation);
    assert!(said.finalizers().is_empty(), "nothing of ours keeps it");
    claim(&client, "late", CLUSTER).await;
    assert_eq!(given(&client, "late").await, ["10.2.0.1/32", "fd00::1/128"]);
    assert_eq!((floating(&client).await, check_claims(&client).await), (1, 2));
    let words = until("the pool to say so", async || {
        let status = pools(&client).get("default").await.unwrap().status?;
        let ready = status.conditions.into_iter().find(|it| it.type_ == "Ready")?;
        ready.message.contains("are for claims").then_some(ready.message)
    });
    assert_eq!(words.await, "7 of 8 blocks are free, 0 belong to nodes, 1 are for claims");
    for line in [
        "tenure_claims{network=\"cluster\",state=\"allocated\"} 2",
        "tenure_pool_floating_blocks{pool=\"default\"} 1",
        "tenure_pool_claimed_addresses{pool=\"default\",state=\"allocated\"} 2",
    ] {
        until(line, async || controller.metrics.text().unwrap().contains(line).then_some(())).await;
    }
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn five_thousand_claims_at_once_take_at_most_two_writes_each() {
    let server = server(102).await;
    let client = server.client();
    pool(&client, "default", 5, "10.0.0.0/16").await;
    for number in 0..5000 {
        claim(&client, &format!("c{number}"), CLUSTER).await;
    }
    let faults = Faults::seeded(102);
    let controller = start_with(faults.client(server.clone(), "default"), claiming("a"));
    until("all of them to have one", async || {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let text = controller.metrics.text().unwrap();
        text.contains("write=\"claim_status\",outcome=\"done\"} 5000").then_some(())
    })
    .await;
    let writes = Calls::of(Verb::Create).or(Verb::Update).or(Verb::Patch).or(Verb::Delete);
    let (statuses, blocks) = (
        faults.tally(&writes.clone().to("ipamclaims")).asked,
        faults.tally(&writes.to("addressblocks")).asked,
    );
    assert_eq!(check_claims(&client).await, 5000);
    assert!(statuses + blocks <= 2 * 5000, "{statuses} writes of claims and {blocks} of blocks");
    let text = controller.metrics.text().unwrap();
    let wrote: Vec<_> = text.lines().filter(|line| line.contains("writes_total")).collect();
    assert!((5000..5250).contains(&statuses) && blocks <= 160, "{statuses} and {blocks}: {wrote:#?}");
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_claims_addresses_come_from_the_pool_of_its_namespace() {
    let (client, controller) = started(103).await;
    pool(&client, "blue", 2, "10.9.0.0/24").await;
    let blue = json!({"metadata": {"name": "apps", "annotations": {"coil.cybozu.com/pool": "blue"}}});
    let blue: Namespace = serde_json::from_value(blue).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &blue).await.unwrap();
    let apps: Api<tenure_api::claims::IPAMClaim> = Api::namespaced(client.clone(), "apps");
    let spec =
        tenure_api::claims::IPAMClaimSpec { network: CLUSTER.to_owned(), interface: "eth0".to_owned() };
    apps.create(&PostParams::default(), &tenure_api::claims::IPAMClaim::new("c", spec)).await.unwrap();
    let ips = until("its address", async || {
        apps.get("c").await.ok()?.status.map(|status| status.ips).filter(|ips| !ips.is_empty())
    });
    assert_eq!(ips.await, ["10.9.0.0/32"]);
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn wished_addresses_are_given_if_they_are_free_and_else_refused_in_words() {
    let (client, controller) = started(104).await;
    node(&client, "node1").await;
    ask(&client, "r", "node1", "default").await;
    answer(&client, "r").await.unwrap();
    claim_with(&client, "one", CLUSTER, Some("10.2.0.77")).await;
    assert_eq!(given(&client, "one").await, ["10.2.0.77/32"], "its block was nobody's");
    claim_with(&client, "two", CLUSTER, Some("10.2.0.77/24")).await;
    let (reason, message) = refused(&client, "two").await;
    assert_eq!(reason, "IPAddressConflict");
    assert!(message.contains("10.2.0.77 belongs to claim default/one"), "{message}");
    let event = bed::ranges::told(&client, "default", "IPAddressConflict", "two").await;
    assert_eq!(event.message.as_deref(), Some(message.as_str()));
    claim_with(&client, "of-node", CLUSTER, Some("10.2.0.1")).await;
    let (reason, message) = refused(&client, "of-node").await;
    assert_eq!(reason, "IPAddressConflict");
    assert!(message.contains("AddressBlock default-0, which belongs to node node1"), "{message}");
    for (name, wish, words) in [
        ("outside", "192.0.2.1", "192.0.2.1 is not an address of AddressPool \"default\""),
        ("nonsense", "10.2.0.300", "annotation tenure/ips"),
        ("two-wishes", "10.2.0.81, 10.2.0.82", "are not the addresses of one hold"),
    ] {
        claim_with(&client, name, CLUSTER, Some(wish)).await;
        let (reason, message) = refused(&client, name).await;
        assert!(reason == "Invalid" && message.contains(words), "{name}: {reason}: {message}");
    }
    delete_claim(&client, "one").await;
    assert_eq!(given(&client, "two").await, ["10.2.0.77/32"], "as soon as it is free, also while it cools");
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_comes_with_a_status_keeps_those_addresses_or_says_who_has_them() {
    let client = server(105).await.client();
    pool(&client, "default", 2, "10.2.0.0/24").await;
    for (name, ips) in
        [("first", &["10.2.0.9/32"][..]), ("second", &["10.2.0.9"]), ("third", &["10.2.0.10/24"])]
    {
        claim(&client, name, CLUSTER).await;
        import(&client, name, ips).await;
        tokio::time::sleep(Duration::from_millis(1_050)).await;
    }
    claim(&client, "plain", CLUSTER).await;
    let controller = start_with(client.clone(), claiming("a"));
    assert_eq!(given(&client, "first").await, ["10.2.0.9/32"]);
    assert_eq!(given(&client, "third").await, ["10.2.0.10/32"]);
    assert_eq!(given(&client, "plain").await, ["10.2.0.8/32"], "the wished ones come first");
    let (reason, message) = refused(&client, "second").await;
    assert!(reason == "IPAddressConflict" && message.contains("claim default/first"), "{reason}: {message}");
    let second = claims(&client).get("second").await.unwrap().status.unwrap();
    assert_eq!(second.ips, ["10.2.0.9"], "what it wishes for is not forgotten");
    delete_claim(&client, "first").await;
    assert_eq!(given(&client, "second").await, ["10.2.0.9/32"]);
    check_claims(&client).await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_without_a_free_address_says_so_and_a_claim_is_served_as_soon_as_one_is_freed() {
    let client = server(106).await.client();
    pool(&client, "default", 1, "10.2.0.0/30").await;
    node(&client, "node1").await;
    let controller = start_with(client.clone(), claiming("a"));
    ask(&client, "r", "node1", "default").await;
    answer(&client, "r").await.unwrap();
    for name in ["a", "b"] {
        claim(&client, name, CLUSTER).await;
        given(&client, name).await;
    }
    claim(&client, "c", CLUSTER).await;
    let (reason, message) = refused(&client, "c").await;
    assert_eq!(reason, "SubnetExhausted");
    assert!(message.contains("append a subnet"), "{message}");
    assert!(claims(&client).get("c").await.unwrap().status.unwrap().ips.is_empty());
    bed::ranges::told(&client, "default", "SubnetExhausted", "c").await;
    let had = given(&client, "a").await;
    delete_claim(&client, "a").await;
    assert_eq!(given(&client, "c").await, had, "cooling gives way");
    claim(&client, "d", CLUSTER).await;
    refused(&client, "d").await;
    return_block(&client, "default-0").await;
    given(&client, "d").await;
    assert_eq!(check_claims(&client).await, 3);
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn empty_floating_blocks_go_back_and_a_pool_that_is_deleted_goes_with_its_last_record() {
    let (client, controller) = started(107).await;
    for number in 0..9 {
        claim(&client, &format!("c{number}"), CLUSTER).await;
        given(&client, &format!("c{number}")).await;
    }
    assert_eq!(floating(&client).await, 3);
    for number in 4..9 {
        delete_claim(&client, &format!("c{number}")).await;
    }
    until("empty blocks to go back", async || (floating(&client).await == 1).then_some(())).await;
    assert_eq!(check_claims(&client).await, 4);
    pools(&client).delete("default", &DeleteParams::default()).await.unwrap();
    claim(&client, "late", CLUSTER).await;
    let (_, message) = refused(&client, "late").await;
    assert!(message.contains("is being deleted"), "{message}");
    for number in 0..4 {
        assert!(pools(&client).get_opt("default").await.unwrap().is_some());
        delete_claim(&client, &format!("c{number}")).await;
    }
    until("the pool to go", async || {
        pools(&client).get_opt("default").await.unwrap().is_none().then_some(())
    })
    .await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn invariant_7_a_claims_address_returns_after_the_claim_is_gone_and_no_pod_uses_it() {
    let (client, controller) = started(108).await;
    let old = claim(&client, "c", CLUSTER).await;
    assert_eq!(given(&client, "c").await, ["10.2.0.0/32"]);
    use_claim(&client, "pod", "c", Some(&["10.2.0.0"])).await;
    delete_claim(&client, "c").await;
    tokio::time::sleep(Duration::from_millis(2_600)).await;
    assert_eq!(on_record(&client).await.get("10.2.0.0"), old.uid().as_ref(), "a pod uses it");
    // A claim of the same name is another one, and has another address.
    let new = claim(&client, "c", CLUSTER).await;
    assert_eq!(given(&client, "c").await, ["10.2.0.1/32"]);
    tokio::time::sleep(Duration::from_millis(2_600)).await;
    assert_eq!(on_record(&client).await.get("10.2.0.0"), old.uid().as_ref(), "a pod still uses it");
    bed::ranges::delete_pod(&client, "pod").await;
    until("the address to return", async || {
        (!on_record(&client).await.contains_key("10.2.0.0")).then_some(())
    })
    .await;
    assert_eq!(on_record(&client).await.get("10.2.0.1"), new.uid().as_ref());
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_deleted_while_nobody_led_is_freed_and_what_lives_is_kept() {
    let (client, controller) = started(109).await;
    for name in ["stays", "goes"] {
        claim(&client, name, CLUSTER).await;
        given(&client, name).await;
    }
    controller.kill().await;
    delete_claim(&client, "goes").await;
    claim(&client, "comes", CLUSTER).await;
    let controller = start_with(client.clone(), claiming("b"));
    assert_eq!(given(&client, "comes").await, ["10.2.0.2/32"]);
    until("the address to be freed", async || (on_record(&client).await.len() == 2).then_some(())).await;
    assert_eq!(check_claims(&client).await, 2);
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_killed_at_any_point_gives_no_address_twice_and_loses_none() {
    let server = server(110).await;
    let client = server.client();
    pool(&client, "default", 2, "10.2.0.0/24").await;
    for number in 0..200 {
        claim(&client, &format!("c{number}"), CLUSTER).await;
    }
    for life in 0..5_u64 {
        let faults = Faults::seeded(life);
        let writes = Calls::of(Verb::Create).or(Verb::Update).or(Verb::Patch).or(Verb::Delete);
        let mine = |calls: &Calls| {
            let (claims, blocks) = (calls.clone().to("ipamclaims"), calls.clone().to("addressblocks"));
            faults.tally(&claims).asked + faults.tally(&blocks).asked
        };
        faults.add(Rule::delay(Duration::from_millis(2)..=Duration::from_millis(8)).on(writes.clone()));
        let settings = Settings { workers: 2, ..claiming(&format!("life{life}")) };
        let controller = start_with(faults.client(server.clone(), "default"), settings);
        // Killed after so many writes, the answers to which it may not have heard.
        until("some writes", async || (mine(&writes) > 3 * life).then_some(())).await;
        controller.kill().await;
        if life % 3 == 1 {
            delete_claim(&client, &format!("c{life}")).await;
        }
    }
    let controller = start_with(client.clone(), claiming("last"));
    until("all to be served and the rest freed", async || {
        let all = claims(&client).list(&ListParams::default()).await.unwrap();
        let served = all.iter().filter(|claim| tenure_claims::status::is_held(claim)).count();
        (served == all.items.len() && on_record(&client).await.len() == served).then_some(())
    })
    .await;
    assert_eq!(check_claims(&client).await, 198);
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn networks_that_are_missing_do_not_opt_in_or_disagree_are_said_and_those_of_others_left_alone() {
    let (client, controller) = started(111).await;
    bed::ranges::define_attachments(&client).await;
    let routed = |name: &str, more: &Value| {
        let mut config = json!({"cniVersion": "1.0.0", "name": name, "type": "tenure"});
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        config.to_string()
    };
    let yes = json!({"allowPersistentIPs": true});
    let attach = bed::machines::attachment;
    attach(&client, "out", &routed("out", &json!({}))).await;
    attach(&client, "yes", &routed("yes", &yes)).await;
    attach(&client, "one", &routed("both", &yes)).await;
    attach(&client, "other", &routed("both", &json!({"allowPersistentIPs": true, "pool": "blue"}))).await;
    let ovn = json!({"name": "ovn", "type": "ovn-k8s-cni-overlay", "allowPersistentIPs": true});
    attach(&client, "ovn", &ovn.to_string()).await;
    for name in ["out", "yes", "both", "ovn", "nowhere"] {
        claim(&client, name, name).await;
    }
    given(&client, "yes").await;
    for (name, reason, words) in [
        ("out", "PersistentIPsNotAllowed", "put \"allowPersistentIPs\": true into its configuration"),
        ("both", "InternalError", "both define network \"both\""),
        ("nowhere", "NetworkNotFound", "there is no network \"nowhere\""),
    ] {
        let (said, message) = refused(&client, name).await;
        assert!(said == reason && message.contains(words), "{name}: {said}: {message}");
    }
    assert_eq!(claims(&client).get("ovn").await.unwrap().status, None, "it is somebody else's");
    attach(&client, "out", &routed("out", &yes)).await;
    given(&client, "out").await;
    // The network of a claim that has its address is changed: it keeps the address, and cannot use it.
    bed::machines::network(&client, "range", "10.7.0.0/24", true).await;
    let network = |name: &str| Patch::Merge(json!({"spec": {"network": name}}));
    claims(&client).patch("yes", &PatchParams::default(), &network("range")).await.unwrap();
    let (reason, message) = refused(&client, "yes").await;
    assert!(reason == "Invalid" && message.contains("Change it back"), "{reason}: {message}");
    claims(&client).patch("yes", &PatchParams::default(), &network("yes")).await.unwrap();
    given(&client, "yes").await;
    check_claims(&client).await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_restored_a_moment_after_the_claim_is_what_the_claim_gets() {
    let (client, controller) = started(112).await;
    claim(&client, "c", CLUSTER).await;
    assert_eq!(given(&client, "c").await, ["10.2.0.0/32"]);
    // As a backup tool writes it: all of the status, and no word of ours in it.
    import(&client, "c", &["10.2.0.50/32"]).await;
    until("the restored address", async || (given(&client, "c").await == ["10.2.0.50/32"]).then_some(()))
        .await;
    assert_eq!(check_claims(&client).await, 1);
    controller.stop().await;
}

/// The list is taken before the block is made, and heard of after the answer: the block is there all the same.
#[tokio::test(start_paused = true)]
async fn a_block_that_is_made_while_blocks_are_listed_anew_is_not_taken_for_vanished() {
    let server = server(117).await;
    let client = server.client();
    pool(&client, "default", 2, "10.2.0.0/24").await;
    let faults = Faults::seeded(117);
    let blocks = |verb| Calls::of(verb).to("addressblocks");
    let late = Duration::from_millis(600);
    let late = faults.add(Rule::delay(late..=late).on(blocks(Verb::Create)).times(1));
    let controller = start_with(faults.client(server.clone(), "default"), claiming("a"));
    claim(&client, "one", CLUSTER).await;
    until("a block to be asked for", async || (faults.struck(late) == 1).then_some(())).await;
    faults.expire_watches(&blocks(Verb::Watch));
    assert_eq!(given(&client, "one").await, ["10.2.0.0/32"]);
    assert_eq!(faults.tally(&blocks(Verb::List)).asked, 2, "listed at the start and once anew");
    controller.stop().await;
}
