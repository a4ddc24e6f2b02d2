//! Our answers: each kind of question put to the engine and the kinds, as JSON in the shape of a case file.

mod allocation;
mod arithmetic;
mod binary;
mod config;
mod names;
mod node_pools;
mod node_slices;
mod reconcile;
mod records;
mod sequence;

use serde_json::Value;

/// The name that the plugin is called by in cases about it.
pub(crate) const PLUGIN_NAME: &str = "whereabouts";

/// An answer, or the words of a refusal.
pub(crate) type Answer = Result<Value, String>;

/// Our answer to a question of this kind; `None` for kinds that we do not know yet, and for words that we do not
/// understand. `expect` is looked at where the question itself stands in it: which operations are
/// to be done, never what comes of them.
pub(crate) fn answer(kind: &str, input: &Value, expect: &Value) -> Option<Answer> {
    let input = Input(input);
    Some(match kind {
        "iterate" => allocation::iterate(&input),
        "ip_range" => allocation::ip_range(&input),
        "subnet" => allocation::subnet(&input),
        "divide" => allocation::divide(&input),
        "inc" | "dec" => arithmetic::neighbour(kind, &input),
        "compare" => arithmetic::compare(&input),
        "in_range" => arithmetic::in_range(&input),
        "offset" => arithmetic::offset(&input),
        "add_offset" => arithmetic::add_offset(&input),
        "pool_name" => names::pool_name(&input),
        "normalize_ip" => names::reservation_name(&input),
        "assign" => records::assign(&input),
        "dealloc" => records::dealloc(&input),
        "decode_allocations" => records::decode(&input),
        "encode_allocations" => records::encode(&input),
        "config" => config::config(&input),
        "node_slices" => node_slices::node_slices(&input),
        "node_pool_offset" => node_pools::offset(&input),
        "node_pool_taken" => node_pools::taken(&input),
        "node_pool_capture" => node_pools::capture(&input),
        "reconcile" => reconcile::reconcile(&input),
        "cni_sequence" | "cni_multi_network" => sequence::sequence(&input, expect),
        "cni_preloaded" => sequence::preloaded(&input),
        "binary_run" => return binary::binary_run(&input),
        _ => return None,
    })
}

/// The question's fields; one that is missing or null reads as empty.
pub(crate) struct Input<'a>(&'a Value);

impl Input<'_> {
    fn text(&self, key: &str) -> &str {
        self.0.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    fn list(&self, key: &str) -> impl Iterator<Item = &Value> {
        self.0.get(key).and_then(Value::as_array).into_iter().flatten()
    }

    fn texts(&self, key: &str) -> impl Iterator<Item = &str> {
        self.list(key).filter_map(Value::as_str)
    }
}

/// A refusal in words, for every error of ours.
fn refused(error: impl std::fmt::Display) -> String {
    error.to_string()
}
