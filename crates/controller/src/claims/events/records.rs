//! Events about claims without addresses: on the claim, once per change of the problem.

use kube::Resource;
use tenure_api::claims::condition::IPS_ALLOCATED;

use super::super::write::ClaimWrite;
use crate::events::Note;
use crate::world::World;

/// The events of a completed write about claims; `world` is the state before the write.
pub(in crate::claims) fn of_claim(write: &ClaimWrite, world: &World) -> Vec<Note> {
    let ClaimWrite::Status { namespace, claim, status, .. } = write else { return Vec::new() };
    let Some(known) = world.claims().get(namespace, &claim.name) else { return Vec::new() };
    let before = known.object.status.as_ref().and_then(|status| status.condition(IPS_ALLOCATED));
    let failed = status.condition(IPS_ALLOCATED).filter(|it| it.status == "False");
    let new = failed.filter(|it| {
        before.is_none_or(|before| {
            (&before.status, &before.reason, &before.message) != (&it.status, &it.reason, &it.message)
        })
    });
    let note = new.map(|it| Note::warning(known.object.object_ref(&()), &it.reason, &it.message));
    note.into_iter().collect()
}
