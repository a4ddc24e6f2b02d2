//! The schema of one version of a custom resource, compiled once and used for every request.
//!
//! [`Schema`] does what kube-apiserver does with a custom resource between decoding and storing it: drop
//! unknown fields ([`Schema::prune`]), fill in defaults ([`Schema::default`]) and refuse invalid values
//! ([`Schema::validate`]), with the same results for the same fields. No object and no schema makes it panic,
//! and a kind without validation rules pays nothing for them.

mod cause;
mod correlate;
mod default;
mod lists;
mod node;
mod path;
#[cfg(test)]
pub(crate) mod proptests;
mod prune;
mod rules;
#[cfg(test)]
mod tests;
mod validate;

use serde_json::Value;

pub(crate) use cause::{Cause, summary};
pub(crate) use node::SchemaError;
pub(crate) use path::Path;

use correlate::Correlated;
use node::Node;

/// A compiled schema.
#[derive(Debug)]
pub(crate) struct Schema {
    root: Node,
}

const NOT_CHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";

impl Schema {
    /// Compiles the `openAPIV3Schema` of a CRD version, its validation rules included.
    pub(crate) fn compile(open_api_v3: &Value) -> Result<Self, SchemaError> {
        Ok(Self { root: Node::compile(open_api_v3)? })
    }

    /// Drops the fields that the schema does not know and returns their paths, sorted. Also drops nulls that
    /// are neither allowed nor defaulted.
    pub(crate) fn prune(&self, object: &mut Value) -> Vec<String> {
        prune::prune(&self.root, object)
    }

    /// Fills in defaults.
    pub(crate) fn default(&self, object: &mut Value) {
        default::apply(&self.root, object);
    }

    /// Adds why a new object, or an object changed from `old`, is refused; adds nothing if it is accepted.
    pub(crate) fn validate(&self, object: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
        let correlated = old.map(|old| Correlated::new(&self.root, object, old));
        validate::validate(&self.root, object, correlated.as_ref(), "", causes);
        self.validate_lists_and_rules(object, old, causes);
    }

    /// The same for a write to the status subresource: checks only the values of the status, but all rules.
    pub(crate) fn validate_status(&self, object: &Value, old: &Value, causes: &mut Vec<Cause>) {
        if let (Some(node), Some(status)) = (self.root.properties.get("status"), object.get("status")) {
            let correlated = old.get("status").map(|old| Correlated::new(node, status, old));
            validate::validate(node, status, correlated.as_ref(), "status", causes);
        }
        self.validate_lists_and_rules(object, Some(old), causes);
    }

    /// Checks keyed lists and sets, and the validation rules; the rules are skipped if an earlier cause makes
    /// them meaningless.
    fn validate_lists_and_rules(&self, object: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
        if self.root.has_lists {
            let mut before = Vec::new();
            if let Some(old) = old {
                lists::validate(&self.root, old, &Path::root(), &mut before);
            }
            if before.is_empty() {
                lists::validate(&self.root, object, &Path::root(), causes);
            }
        }
        if !self.root.has_rules {
            return;
        }
        if causes.iter().any(Cause::blocks_rules) {
            causes.push(Cause::invalid(&Path::root(), &Value::Null, NOT_CHECKED));
            return;
        }
        let correlated = old.map(|old| Correlated::new(&self.root, object, old));
        rules::validate(&self.root, object, old, correlated.as_ref(), causes);
    }
}
