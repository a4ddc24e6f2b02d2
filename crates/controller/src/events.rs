//! Events on objects: which are published only once.

mod standing;

pub(crate) use standing::Standing;
pub use tenure_watch::Note;
pub(crate) use tenure_watch::about_node;
