//! Objects of the API, as a server without our rules, or one from before them, may store them; and the annotation that
//! names a pool, which anybody who may edit a namespace writes; and whole objects among others of every kind that is watched.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Node as NodeObject, Pod as PodObject};
use kube::core::{ObjectList, WatchEvent};
use kube::{Resource, ResourceExt};
use tenure_agent::node::{Attach, Done, PoolFacts, Ticket, Wish};
use tenure_agent::{Action, Event, HoldKey, Node, Pod, Settings};
use tenure_api::claims::IPAMClaim;
use tenure_api::coil::{self, AddressBlock, AddressPool, BlockRequest, EnginePool};
use tenure_api::networks::NetworkAttachmentDefinition;
use tenure_api::overlap::overlaps;
use tenure_api::read::Read;
use tenure_api::whereabouts::{IPPool, NodeSlicePool, OverlappingRangeIPReservation};
use tenure_handles::Timestamp;
use tenure_ipam::IntervalSet;

use crate::{Violation, hold, plugin};

pub(crate) fn run(input: &[u8]) -> Result<(), Violation> {
    let text = String::from_utf8_lossy(input);
    annotation(&text)?;
    lists(&text)?;
    if let Ok(pool) = serde_json::from_slice::<AddressPool>(input) {
        let _ = overlaps([&pool, &pool]);
        match EnginePool::try_from(&pool.spec) {
            Err(error) => hold(!error.to_string().is_empty(), || "a pool is refused without words".into())?,
            Ok(engine) => {
                let _ = (engine.excluded_blocks(), engine.address_capacity());
                let _ = engine.usage(&IntervalSet::new(), &IntervalSet::new());
                if let Some(block) = engine.pool().subnets().next() {
                    let _ = engine.space(&block);
                }
            }
        }
    }
    if let Ok(block) = serde_json::from_slice::<AddressBlock>(input) {
        let _ =
            (block.spec.to_subnet(), block.pool(), block.node(), block.request_uid(), block.is_reserved());
    }
    if let Ok(request) = serde_json::from_slice::<BlockRequest>(input) {
        let _ = request.outcome();
    }
    Ok(())
}

/// Any JSON as an object among others: whatever it is, the others are read, and it is said what is wrong with it.
fn lists(text: &str) -> Result<(), Violation> {
    // No server holds what is no JSON, or a number beyond all floating-point ones.
    if serde_json::from_str::<Read<IPAMClaim>>(text).is_err() {
        return Ok(());
    }
    beside::<AddressPool>(text, r#","spec":{"subnets":[{"ipv4":"10.0.0.0/24"}]}"#)?;
    beside::<AddressBlock>(text, r#","index":0"#)?;
    beside::<BlockRequest>(text, r#","spec":{"nodeName":"n","poolName":"p"}"#)?;
    beside::<IPPool>(text, r#","spec":{"range":"10.0.0.0/24","allocations":{}}"#)?;
    beside::<NodeSlicePool>(text, r#","spec":{"range":"10.0.0.0/24","sliceSize":"/26"}"#)?;
    beside::<OverlappingRangeIPReservation>(text, r#","spec":{"podref":"a/b"}"#)?;
    beside::<NetworkAttachmentDefinition>(text, "")?;
    beside::<IPAMClaim>(text, "")?;
    beside::<NodeObject>(text, "")?;
    beside::<PodObject>(text, "")?;
    beside::<StatefulSet>(text, "")
}

fn beside<K>(text: &str, rest: &str) -> Result<(), Violation>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let list = format!(
        r#"{{"apiVersion":"v1","kind":"List","metadata":{{}},"items":[{text},{{"metadata":{{"name":"good"}}{rest}}}]}}"#
    );
    let kind = K::kind(&());
    let found: ObjectList<Read<K>> =
        serde_json::from_str(&list).map_err(|error| format!("a list of {kind} cannot be read: {error}"))?;
    let read = found.items.iter().find(|read| read.name_any() == "good" && read.as_result().is_ok());
    hold(read.is_some() && found.items.len() == 2, || format!("another {kind} is hidden"))?;
    if let Err(unreadable) = found.items[0].as_result() {
        hold(!unreadable.why.is_empty(), || format!("{kind}: it cannot be read, without words"))?;
    }
    let event = format!(r#"{{"type":"MODIFIED","object":{text}}}"#);
    serde_json::from_str::<WatchEvent<Read<K>>>(&event)
        .map(drop)
        .map_err(|error| format!("an event of {kind} ends its watch: {error}"))
}

/// A namespace names this text as its pool: a pool of that name serves, any other is refused by its name.
fn annotation(text: &str) -> Result<(), Violation> {
    if let Ok(name) = coil::request_name(text, "node-1") {
        hold(tenure_api::names::is_object_name(&name), || format!("{name:?} is no name of an object"))?;
    }
    if let Some((pool, index)) = coil::split_block_name(text) {
        hold(coil::block_name(pool, index) == text, || {
            format!("{text:?} is split into {pool:?} and {index}")
        })?;
    }
    let mut node = Node::new(Settings::new("node-1"));
    let now = Timestamp::from_millis(1);
    let facts = PoolFacts { block_bits: 5, ..PoolFacts::default() };
    for event in [
        Event::PoolChanged { name: "default".into(), facts },
        Event::Journal(tenure_agent::journal::Image::default()),
        Event::Kernel(Vec::new()),
        Event::ApiRead,
    ] {
        node.handle(event, now);
    }
    let key = HoldKey::new("k8s", "c1", "eth0").map_err(|error| error.to_string())?;
    let attach = Attach {
        key,
        pool: text.to_owned(),
        pod: Pod::default(),
        netns: String::new(),
        wiring: None,
        wish: Wish::default(),
        claim_use: None,
    };
    for action in node.handle(Event::Add { ticket: Ticket(1), attach }, now) {
        match action {
            Action::Answer { outcome: Err(failure), .. } => {
                let failure = tenure_cni::Failure::from(failure);
                plugin::named(failure.code.into(), &failure.message, &failure.details)?;
                let named = failure.message.contains(text) || failure.message.contains(&format!("{text:?}"));
                hold(named, || format!("pool {text:?} is refused with {failure}"))?;
            }
            Action::Answer { outcome: Ok(Done::Added { .. }), .. } => {
                return Err(format!("an address out of the pool {text:?}, of which there is no block"));
            }
            Action::AskForBlock { pool, .. } => {
                hold(pool == "default", || format!("a block of the pool {pool:?} is asked for"))?;
            }
            _ => {}
        }
    }
    Ok(())
}
