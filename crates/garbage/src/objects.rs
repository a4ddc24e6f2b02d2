//! Objects of the API, as a server without our rules, or one from before them, may store them; and the annotation that
//! names a pool, which anybody who may edit a namespace writes.

use tenure_agent::node::{Attach, Done, PoolFacts, Ticket, Wish};
use tenure_agent::{Action, Event, HoldKey, Node, Pod, Settings};
use tenure_api::coil::{self, AddressBlock, AddressPool, BlockRequest, EnginePool};
use tenure_api::overlap::overlaps;
use tenure_handles::Timestamp;
use tenure_ipam::IntervalSet;

use crate::{Broken, hold, plugin};

pub(crate) fn enter(input: &[u8]) -> Result<(), Broken> {
    let text = String::from_utf8_lossy(input);
    annotation(&text)?;
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

/// A namespace names this text as its pool: a pool of that name serves, any other is refused by its name.
fn annotation(text: &str) -> Result<(), Broken> {
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
        guest: None,
    };
    for action in node.handle(Event::Add { ticket: Ticket(1), attach }, now) {
        match action {
            Action::Answer { outcome: Err(failure), .. } => {
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
