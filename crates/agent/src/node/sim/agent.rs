//! The agent: the node, and its journal as bytes that a crash may truncate.

use std::collections::VecDeque;
use std::time::Duration;

use crate::journal::codec;
use crate::journal::{Image, Known, Origin, Record};
use crate::node::{Node, Planted, Settings};

use super::dice::Dice;

#[derive(Debug)]
pub(super) struct Agent {
    pub(super) node: Node,
    name: &'static str,
    planted: Option<Planted>,
    /// The number of earlier runs of the agent.
    pub(super) life: u64,
    journal: Vec<u8>,
    /// Where each record of this run ends in the journal.
    ends: Vec<usize>,
    /// How many of them are committed.
    pub(super) committed: usize,
    /// What this run and earlier ones committed.
    committed_len: usize,
    /// What certainly survives a crash now.
    pub(super) safe: Image,
    waiting: VecDeque<Record>,
}

impl Agent {
    pub(super) fn new(name: &'static str, planted: Option<Planted>) -> Self {
        let journal = begin(name);
        let committed_len = journal.len();
        Self {
            node: node(name, planted),
            name,
            planted,
            life: 0,
            journal,
            ends: Vec::new(),
            committed: 0,
            committed_len,
            safe: Image::default(),
            waiting: VecDeque::new(),
        }
    }

    pub(super) fn append(&mut self, position: u64, record: Record) {
        codec::put(&record, &mut self.journal);
        self.waiting.push_back(record);
        self.ends.push(self.journal.len());
        assert_eq!(position, self.ends.len() as u64, "positions are without gaps");
    }

    /// Commits up to one of the waiting records. Returns its position.
    pub(super) fn commit(&mut self, some: usize) -> Option<u64> {
        let waiting = self.ends.len() - self.committed;
        if waiting == 0 {
            return None;
        }
        let more = 1 + some % waiting;
        self.waiting.drain(..more).for_each(|record| self.safe.apply(record));
        self.committed += more;
        self.committed_len = self.ends[self.committed - 1];
        Some(self.committed as u64)
    }

    pub(super) fn has_waiting(&self) -> bool {
        self.committed < self.ends.len()
    }

    /// Crashes and restarts with what is left of the journal: all committed records, and a part of the rest.
    pub(super) fn restart(&mut self, cut: usize) -> Image {
        let uncertain = self.journal.len() - self.committed_len;
        self.journal.truncate(self.committed_len + cut % (uncertain + 1));
        let safe = image(&self.journal[..self.committed_len]);
        assert!(safe.blocks().eq(self.safe.blocks()), "the journal says what was committed");
        assert!(
            safe.claim_uses().eq(self.safe.claim_uses()),
            "the journal says which claim uses were committed"
        );
        let image = image(&self.journal);
        self.begin_with(image.clone());
        image
    }

    /// After a reboot there is no journal.
    pub(super) fn forget(&mut self) {
        self.begin_with(Image::default());
    }

    /// Crashes, and its journal is lost or damaged.
    pub(super) fn lose(&mut self, dice: &Dice) -> Image {
        let mut image = Image::lost();
        if dice.percent(50) {
            let left = self.safe.records().filter(|_| dice.percent(60));
            left.for_each(|record| image.apply(record));
            image.apply(Record::Known(Known::Lost));
        }
        self.begin_with(image.clone());
        image
    }

    fn begin_with(&mut self, image: Image) {
        self.journal = begin(self.name);
        image.records().for_each(|record| codec::put(&record, &mut self.journal));
        self.next_life(image);
    }

    fn next_life(&mut self, image: Image) {
        self.safe = image;
        self.waiting.clear();
        self.committed_len = self.journal.len();
        self.ends.clear();
        self.committed = 0;
        self.life += 1;
        self.node = node(self.name, self.planted);
    }
}

fn node(name: &str, planted: Option<Planted>) -> Node {
    Node::new(Settings { planted, ..settings(name) })
}

/// Short intervals, so that much happens in a run.
pub(super) fn settings(name: &str) -> Settings {
    Settings {
        cooling: Duration::from_secs(4),
        rest: Duration::from_secs(3),
        patience: Duration::from_secs(3),
        cooling_gives_way_after: Duration::from_millis(500),
        retry_first: Duration::from_millis(500),
        return_patience: Duration::from_secs(2),
        look_every: Duration::from_secs(1),
        look_apart: Duration::from_millis(600),
        sources: vec![super::slice::SOURCE],
        ..Settings::new(name)
    }
}

fn begin(name: &str) -> Vec<u8> {
    codec::begin(&Origin { boot: "boot".into(), node: name.into() })
}

fn image(bytes: &[u8]) -> Image {
    let reading = codec::read(bytes).unwrap();
    assert_eq!(reading.damaged, 0, "a cut is not damage");
    reading.image
}
