//! When only the changed slices are written, and when the whole pool is.

use serde_json::json;
use tenure_handles::Timestamp;

use super::*;
use crate::slices::{
    AttachmentDefinition, Definition, Group, Inputs, SharedPool, SlicePlan, SlicePool, SliceWrite, plan,
    plan_group, see_one,
};

/// A definition that divides 10.0.0.0/16 into 4,096 slices, and the object of the whole range.
fn definition() -> (AttachmentDefinition, SharedPool) {
    let ipam = json!({"type": "whereabouts", "range": "10.0.0.0/16", "node_slice_size": "/28"});
    let config = json!({"cniVersion": "1.0.0", "name": "net", "type": "macvlan", "ipam": ipam}).to_string();
    let attachment =
        AttachmentDefinition { namespace: "x".into(), name: "net".into(), config, ..Default::default() };
    let guards = plan(&inputs(std::slice::from_ref(&attachment), &BTreeSet::new())).guards;
    match see_one(&guards[0], &BTreeSet::new(), &|_| false, || None) {
        Some(super::super::Seen::Shared(shared)) => (attachment, shared),
        other => panic!("{other:?}"),
    }
}

fn inputs<'a>(attachments: &'a [AttachmentDefinition], nodes: &'a BTreeSet<String>) -> Inputs<'a> {
    static NOTHING: BTreeMap<String, Floating> = BTreeMap::new();
    let (held, shared, owned, pools) = (&[], &[], &[], &[]);
    let now = Timestamp::from_millis(7);
    Inputs {
        namespace: "x",
        attachments,
        flat: None,
        nodes,
        pools,
        held,
        shared,
        owned,
        floating: &NOTHING,
        now,
    }
}

fn nodes(count: usize) -> BTreeSet<String> {
    (0..count).map(|number| format!("n{number:04}")).collect()
}

/// The plan for a pool with nodes when more nodes are added.
fn joined(before: usize, after: usize) -> SlicePlan {
    let (attachment, shared) = definition();
    let attachments = [attachment.clone()];
    let first = nodes(before);
    let created = plan(&inputs(&attachments, &first)).writes.remove(0);
    let SliceWrite::Create(pool) = created else { panic!("{created:?}") };
    let living: HashSet<String> = nodes(after).into_iter().collect();
    let (table, difference) = Table::of(&pool, &living);
    assert_eq!((difference.came.len(), difference.left.len()), (before, 0));
    let (definition, now) = (Definition::read(attachment, None), Timestamp::from_millis(8));
    plan_group(&Group {
        namespace: "x",
        definitions: &[&definition],
        nodes: &living,
        pools: &[SlicePool { object: &pool, facts: table.facts(), table: Some(&table) }],
        holders: &inputs(&attachments, &first),
        shared: &[&shared],
        floating: &BTreeMap::new(),
        now,
    })
}

#[test]
fn one_node_that_joins_changes_one_slice() {
    let plan = joined(3_000, 3_001);
    assert!(plan.writes.is_empty());
    let [change] = &plan.changes[..] else { panic!("{:?}", plan.changes) };
    let [edit] = &change.slices[..] else { panic!("{:?}", change.slices) };
    assert_eq!((edit.place, edit.before.as_str(), edit.after.as_str()), (3_000, "", "n3000"));
    assert_eq!(edit.slice, "10.0.187.128/28");
    assert!(joined(3_000, 3_000).changes.is_empty());
}

#[test]
fn as_many_nodes_as_a_server_takes_no_patch_for_are_written_with_the_whole_pool() {
    assert_eq!(joined(1, 1 + MOST_CHANGES).changes[0].slices.len(), MOST_CHANGES);
    let plan = joined(1, 2 + MOST_CHANGES);
    assert!(plan.changes.is_empty() && matches!(&plan.writes[..], [SliceWrite::Replace(_)]));
    // The first slices go to a pool that has assigned nothing, which needs a check of who else may take from the
    // range.
    assert!(matches!(&joined(0, 1).writes[..], [SliceWrite::Replace(_)]));
}
