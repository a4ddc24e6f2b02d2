//! The service, called by the plugin itself and by others.

mod calls;
mod codec;
mod foreign;
mod protocol;
mod rig;
