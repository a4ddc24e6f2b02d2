//! Alias addresses of machines in a cloud. The only crate that knows a cloud; it knows no Kubernetes.
//!
//! - [`Cloud`] is what a cloud must offer: look at an interface, change its list of alias ranges, and follow the change.
//! - [`Actor`] is the single writer of one interface. It decides, without I/O, what to ask the cloud next.
//! - [`Region`] has the actors of a region. They share one [`Budget`] of requests, and a range that moves leaves one interface before
//!   it is added to the next.
//!
//! An update carries the whole list of an interface, so any number of changes fit into one. What is wanted while an update is under
//! way goes into the next. So a hundred pods that start at once cost two updates, and k pods that move cost two.

mod actor;
mod budget;
mod cloud;
mod error;
pub mod gcp;
mod interface;
mod region;

pub use actor::{Action, Actor, Answer, Attachment, Options, Refusal, Step};
pub use budget::{Budget, Quota, RequestKind};
pub use cloud::{Cloud, Observed, Owner, Progress, Ticket, Update};
pub use error::{CloudError, ErrorKind};
pub use interface::{AliasRange, InterfaceId, Managed};
pub use region::{Region, View};
