//! Events on the objects that people look at: which of them are told once.

mod standing;

pub(crate) use standing::Standing;
pub use tenure_watch::Note;
pub(crate) use tenure_watch::about_node;
