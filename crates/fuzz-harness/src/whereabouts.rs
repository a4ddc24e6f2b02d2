//! A network of Whereabouts' dialect. Up to four lines: the CNI configuration, the flat file, `CNI_ARGS`, an `IPPool`.
//!
//! What is refused names the key, the value and what would be accepted. What is accepted can be answered: an ADD gets an
//! address of each range, inside it and not excluded, no two the same, or is refused with words.

use std::collections::BTreeSet;

use serde_json::Value;
use tenure_api::whereabouts::IPPool;
use tenure_cni::Failure;
use tenure_handles::Timestamp;
use tenure_whereabouts::config::{Arguments, Config};
use tenure_whereabouts::ledger::memory::Memory;
use tenure_whereabouts::ledger::{Answer, PoolId, Request, Want, Who};

use crate::{Violation, hold};

pub(crate) fn run(input: &[u8]) -> Result<(), Violation> {
    let text = String::from_utf8_lossy(input);
    let mut lines = text.lines();
    let (network, flat) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let (arguments, pool) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let Ok(network) = serde_json::from_str::<Value>(network) else { return Ok(()) };
    let flat: Option<Value> = serde_json::from_str(flat).ok();
    let arguments = match Arguments::parse(arguments) {
        Ok(arguments) => arguments,
        Err(refusal) => return worded(&refusal.into()),
    };
    let config = match Config::load(&network, flat.as_ref(), &arguments) {
        Ok(config) => config,
        Err(refusal) => return worded(&refusal.into()),
    };
    let mut memory = Memory::default();
    // One that has a pool's name and another range is in the way, for good: no server takes such an object.
    if let Ok(pool) = serde_json::from_str::<IPPool>(pool)
        && PoolId::of_object(&config.network, &pool, |_| false).is_some()
    {
        memory.put_pool(pool);
    }
    let who = Who { id: "id".into(), podref: config.podref(), uid: String::new(), ifname: "net1".into() };
    let request = Request::hold(who, Want::of(&config, &[]));
    let answers = memory.serve(&config.network, vec![request], Timestamp::default());
    match answers.into_iter().next() {
        Some(Answer::Held(addresses)) => {
            let different: BTreeSet<_> = addresses.iter().collect();
            hold(different.len() == addresses.len(), || format!("an address twice: {addresses:?}"))?;
            hold(addresses.len() == config.ranges.len(), || format!("not one of each: {addresses:?}"))?;
            let result = config.result(&addresses).to_json(config.version);
            hold(result.is_ok(), || format!("no result: {result:?}"))
        }
        Some(Answer::Refused(refusal)) => {
            hold(!refusal.to_string().is_empty(), || "a refusal without words".to_owned())
        }
        other => Err(format!("an ADD alone on its network is answered {other:?}")),
    }
}

/// A refusal says what is wrong, and what would be accepted.
fn worded(failure: &Failure) -> Result<(), Violation> {
    hold(!failure.message.is_empty(), || "a refusal without words".to_owned())?;
    let accepted = failure.details.contains("accepted") || failure.message.contains("accepted");
    hold(accepted, || format!("a refusal that does not say what would be accepted: {failure}"))
}
