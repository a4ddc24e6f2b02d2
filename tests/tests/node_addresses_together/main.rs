//! Pools and policies by the real controller, real agents on hosts made of namespaces, and a real API server: from a policy to
//! addresses that reach each other, and back. Needs root.

mod bed;
mod crowd;
mod pools;
