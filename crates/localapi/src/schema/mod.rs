//! The schema of one version of a custom resource, compiled once and used for every request.
//!
//! [`Schema`] does what kube-apiserver does with a custom resource between decoding and storing it: drop what
//! is unknown ([`Schema::prune`]), fill in defaults ([`Schema::default`]) and refuse what is invalid
//! ([`Schema::validate_values`], [`Schema::validate_rest`]), each with the same result and the same words. What it promises beyond that: no
//! object and no schema makes it panic, and a kind without validation rules pays nothing for them.

mod cause;
mod cel;
mod correlate;
mod default;
mod fieldpath;
mod format;
mod lists;
mod node;
mod path;
#[cfg(test)]
pub(crate) mod proptests;
mod prune;
pub(crate) mod regexp;
mod rule;
mod rules;
#[cfg(test)]
mod tests;
mod validate;
pub(crate) mod wording;

use serde_json::Value;

pub(crate) use cause::{Cause, summary};
pub(crate) use node::SchemaError;
pub(crate) use path::Path;

pub(crate) use rule::RuleProblems;

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
        Ok(Self { root: Node::compile(open_api_v3, &Path::root())? })
    }

    /// Compiles a schema, or a part of one, whose rules are looked at elsewhere.
    pub(crate) fn compile_without_rules(open_api_v3: &Value) -> Result<Self, SchemaError> {
        Ok(Self { root: Node::compile_without_rules(open_api_v3, &Path::root())? })
    }

    /// Follows a path without brackets; returns it as printed, and the type that it ends at.
    pub(crate) fn follow(&self, path: &str) -> Result<(String, &str), String> {
        fieldpath::resolve(path, &self.root, false).map(|(path, node)| (path, node.ty.as_str()))
    }

    /// Follows a path that may have brackets.
    pub(crate) fn follow_any(&self, path: &str) -> Result<String, String> {
        fieldpath::resolve(path, &self.root, true).map(|(path, _)| path)
    }

    /// What is wrong with the expressions of a rule of this schema's root; `resource` when that is a resource.
    pub(crate) fn rule_problems(&self, rule: &Value, resource: bool) -> RuleProblems {
        rule::problems(rule, &self.root, resource)
    }

    /// Why defaults in the schema are refused: they must follow it themselves.
    pub(crate) fn validate_defaults(&self, path: &Path<'_>) -> Vec<Cause> {
        let mut causes = Vec::new();
        default::validate(&self.root, true, path, &mut causes);
        causes
    }

    /// Drops the fields that the schema does not know and returns their paths, sorted. Nulls that are neither
    /// allowed nor defaulted go, too.
    pub(crate) fn prune(&self, object: &mut Value) -> Vec<String> {
        prune::prune(&self.root, object)
    }

    /// Fills in defaults.
    pub(crate) fn default(&self, object: &mut Value) {
        default::apply(&self.root, object);
    }

    /// Why a new object, or an object changed from `old`, is refused; nothing when it is accepted. (Writes call the
    /// two halves: the replicas are looked at between them.)
    #[cfg(test)]
    pub(crate) fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Vec::new();
        self.validate_values(object, old, &mut causes);
        self.validate_rest(object, old, &mut causes);
        causes
    }

    /// The first half of validation: types, ranges, patterns and the like.
    pub(crate) fn validate_values(&self, object: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
        let correlated = old.map(|old| Correlated::new(&self.root, object, old));
        validate::validate(&self.root, object, correlated.as_ref(), "", causes);
    }

    /// The same for the status alone, as an update of the status subresource is checked.
    pub(crate) fn validate_status_values(&self, object: &Value, old: &Value, causes: &mut Vec<Cause>) {
        let (Some(node), Some(status)) = (self.root.properties.get("status"), object.get("status")) else {
            return;
        };
        let correlated = old.get("status").map(|old| Correlated::new(node, status, old));
        validate::validate(node, status, correlated.as_ref(), "status", causes);
    }

    /// The second half of validation: embedded resources, keyed lists and sets, and the validation
    /// rules, which are left out when one of the causes so far makes them meaningless.
    pub(crate) fn validate_rest(&self, object: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
        for property in self.root.properties.iter().filter(|(_, p)| p.has_embedded) {
            if let Some(field) = object.get(property.0) {
                lists::validate_embedded(property.1, field, &Path::root().child(property.0), causes);
            }
        }
        self.validate_lists_and_rules(object, old, causes);
    }

    /// What an update of the status subresource is checked for after [`Schema::validate_status_values`].
    pub(crate) fn validate_lists_and_rules(
        &self,
        object: &Value,
        old: Option<&Value>,
        causes: &mut Vec<Cause>,
    ) {
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
