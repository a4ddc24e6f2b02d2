//! The release mark on an object whose node is missing: since when the controller intends to release it.
//!
//! The controller first writes the mark and deletes the object after a delay, on the version that it read. An
//! owner that is alive removes the mark before it assigns anything more from the object. Each of the two
//! writes conflicts with the other, so a node that comes back either keeps the object or knows that it is
//! gone.

use kube::ResourceExt;

/// Annotation on a block, slice, ledger or claim: since when its node has been missing and no pod uses it (RFC 3339).
pub const RELEASING: &str = "tenure/releasing";

/// The mark of an object, if it has one.
pub fn mark_of(object: &impl ResourceExt) -> Option<&str> {
    object.annotations().get(RELEASING).map(String::as_str)
}
