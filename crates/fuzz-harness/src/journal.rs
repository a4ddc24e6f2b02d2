//! A journal's file, whatever it is: opened, replayed by a node, and opened again.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tenure_agent::journal::{Image, Journal, Note, Origin, codec};
use tenure_agent::node::{Attach, PoolFacts, SeenBlock, Ticket, Wiring, Wish};
use tenure_agent::{Event, HoldKey, Node, Pod, Settings};
use tenure_handles::Timestamp;

use crate::{Violation, hold};

/// Where the journals of the corpus come from.
pub(crate) fn origin() -> Origin {
    Origin { boot: "boot".into(), node: "node-1".into() }
}

pub(crate) fn run(input: &[u8]) -> Result<(), Violation> {
    if let Ok(reading) = codec::read(input) {
        let parts = reading.whole.checked_add(reading.torn);
        hold(parts.is_some_and(|parts| parts <= input.len()) && reading.damaged <= input.len(), || {
            format!(
                "{} bytes are {} whole, {} torn, {} damaged",
                input.len(),
                reading.whole,
                reading.torn,
                reading.damaged
            )
        })?;
        replay(reading.image)?;
    }
    let directory = tempfile::tempdir().map_err(|error| format!("no place for a journal: {error}"))?;
    let place = directory.path();
    fs::write(place.join("journal"), input).map_err(|error| format!("cannot write a journal: {error}"))?;
    let (image, notes) = open(place)?;
    for note in &notes {
        match note {
            Note::SetAside { path, .. } => {
                let kept = fs::read(path).map_err(|error| format!("{note}: {error}"))?;
                hold(kept == input, || format!("{note}, but it is not what was there"))?;
            }
            Note::Missing { .. } => {}
            Note::Torn { bytes, .. } => hold(*bytes <= input.len(), || format!("{note} of {}", input.len()))?,
        }
    }
    let (again, notes) = open(place)?;
    hold(notes.is_empty(), || format!("the journal that was begun anew is bad: {notes:?}"))?;
    let holds = |image: &Image| image.holds().cloned().collect::<Vec<_>>();
    hold(holds(&again) == holds(&image), || "a second start knows other holds than the first".into())
}

fn open(place: &Path) -> Result<(Image, Vec<Note>), Violation> {
    let opened = Journal::open(place, &origin(), |_| {});
    let opened = opened.map_err(|error| format!("a journal was not replaced but refused: {error}"))?;
    Ok((opened.image, opened.notes))
}

/// A node starts from an image. Whatever it says, the node neither fails nor assigns what it says is held.
pub(crate) fn replay(image: Image) -> Result<(), Violation> {
    let held: Vec<_> = image.holds().map(|hold| hold.addresses).collect();
    let mut node = Node::new(Settings::new("node-1"));
    let mut now = Timestamp::from_millis(1);
    let pool = |name: &str| Event::PoolChanged {
        name: name.to_owned(),
        facts: PoolFacts { block_bits: 5, ..PoolFacts::default() },
    };
    let mut events = vec![pool("default")];
    for (uid, block) in image.blocks() {
        let Some(facts) = &block.facts else { continue };
        events.push(pool(&facts.pool));
        events.push(Event::BlockSeen(SeenBlock {
            name: facts.name.clone(),
            uid: uid.to_owned(),
            node: "node-1".into(),
            pool: facts.pool.clone(),
            subnet: facts.subnet,
            reserved: false,
            deleting: false,
            releasing: false,
            draining: false,
            pod: None,
        }));
    }
    let pools: Vec<String> =
        image.blocks().filter_map(|(_, block)| Some(block.facts.clone()?.pool)).collect();
    events.extend([Event::Journal(image), Event::Kernel(Vec::new()), Event::ApiRead]);
    for event in events {
        node.handle(event, now);
    }
    for (number, pool) in pools.into_iter().take(4).enumerate() {
        let key =
            HoldKey::new("garbage", format!("new-{number}"), "eth0").map_err(|error| error.to_string())?;
        let attach = Attach {
            key,
            pool,
            pod: Pod::default(),
            netns: String::new(),
            wiring: Some(Wiring::default()),
            wish: Wish::default(),
            claim_use: None,
        };
        let actions = node.handle(Event::Add { ticket: Ticket(number as u64), attach }, now);
        for action in actions {
            if let tenure_agent::Action::Wire(job) = action {
                let twice = held.iter().any(|held| {
                    let same_v4 = held.ipv4.is_some() && held.ipv4 == job.addresses.ipv4;
                    same_v4 || held.ipv6.is_some() && held.ipv6 == job.addresses.ipv6
                });
                hold(!twice, || format!("{:?} was held and is handed out again", job.addresses))?;
            }
        }
    }
    for pause in [Duration::from_secs(1), Duration::from_hours(1), Duration::MAX] {
        now = now.plus(pause);
        node.handle(Event::Tick, now);
    }
    Ok(())
}
