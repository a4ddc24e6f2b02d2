//! The service, called by the plugin itself.

mod calls;
mod protocol;
mod rig;
mod whereabouts;
