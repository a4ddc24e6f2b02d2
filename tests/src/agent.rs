//! Hosts made of namespaces, with `tenured` on them and pods that the real plugin attaches; and an API server with the
//! controller, which all tests of this program share.

mod call;
mod cluster;
mod gate;
mod machine;

use std::fmt::Debug;
use std::time::Duration;

use serde_json::{Value, json};

pub use call::{Called, Calling, Pod};
pub use cluster::Cluster;
pub use gate::Gate;
pub use machine::Machine;

/// Long enough for something to happen that must not.
pub const A_MOMENT: Duration = Duration::from_millis(300);

/// The network's configuration.
pub fn config() -> Value {
    json!({"cniVersion": "1.1.0", "name": "k8s", "type": "tenure"})
}

/// That no two are equal.
#[track_caller]
pub fn assert_distinct<T: Ord + Debug + Clone>(all: &[T]) {
    let mut sorted = all.to_vec();
    sorted.sort();
    for pair in sorted.windows(2) {
        assert_ne!(pair[0], pair[1], "twice in {all:?}");
    }
}
