//! Holds of a journal that lost the record of their block.

use super::rig::Rig;
use super::slices::{detach, give, record, slice, started};
use crate::journal::{Image, Record};
use crate::key::HoldKey;
use crate::node::{Done, Event, SeenSlice};

/// A journal that was damaged: it knows what was adopted of a slice, and nothing of the slice.
fn damaged() -> Image {
    let records = vec![record("a", 1), record("b", 2)];
    let before = started(Image::default(), [SeenSlice { records, ..slice(1) }]);
    written(Image::default(), &before, |record| matches!(record, Record::Held(_)))
}

fn written(mut image: Image, rig: &Rig, is_kept: impl Fn(&Record) -> bool) -> Image {
    rig.records.iter().filter(|record| is_kept(record)).cloned().for_each(|record| image.apply(record));
    image
}

fn unseen(rig: &Rig) -> Vec<HoldKey> {
    rig.node.unseen().into_iter().map(|hold| hold.key).collect()
}

/// Neither a link nor a namespace shows their end, and the slice that would show them is gone.
#[test]
fn a_hold_whose_block_a_damaged_journal_lost_ends_with_its_containers_del_or_with_its_pod() {
    let mut rig = started(damaged(), []);
    assert_eq!(unseen(&rig).len(), 2, "whoever looks at pods looks at theirs");
    let deleted = detach(&mut rig, "a");
    assert_eq!(rig.answers[&deleted], Ok(Done::Swept(1)));
    let left = unseen(&rig);
    let [of_b] = &left[..] else { panic!("{left:?}") };
    assert_eq!(of_b.container(), "b");
    let ticket = rig.ticket();
    rig.event(Event::Del { ticket, key: of_b.clone(), interface: false });
    assert_eq!(rig.answers[&ticket], Ok(Done::Removed));
    assert_eq!((rig.node.holds(), unseen(&rig)), (Vec::new(), Vec::new()));
    let again = started(written(damaged(), &rig, |_| true), []);
    assert_eq!(again.node.holds(), [], "no start brings back what is over");
}

#[test]
fn a_hold_whose_block_a_damaged_journal_lost_outlives_restarts_and_is_handed_to_nobody_else() {
    let rig = started(damaged(), []);
    let image = written(damaged(), &rig, |_| true);
    let mut again = started(image.clone(), [slice(2)]);
    assert_eq!(give(&mut again, "c"), "10.9.0.3");
    assert_eq!(give(&mut again, "a"), "10.9.0.1", "it is its own");
    let moved = written(image, &again, |_| true);
    let mut later = started(moved, [slice(2)]);
    detach(&mut later, "a");
    assert_eq!(give(&mut later, "d"), "10.9.0.4", "10.9.0.1 cools");
}
