//! One entry of `x-kubernetes-validations`, compiled.

use serde_json::Value;

use super::cel::{Mistyped, Program};
use super::fieldpath;
use super::node::{Node, SchemaError};
use super::path::Path;

/// A validation rule.
#[derive(Debug)]
pub(super) struct Rule {
    /// The rule's text, for messages.
    text: String,
    message: String,
    pub(super) program: Program,
    pub(super) message_expression: Option<Program>,
    pub(super) reason: Reason,
    /// Path below the rule's node at which a failure is reported; empty for the node itself.
    pub(super) field_path: String,
    pub(super) optional_old_self: bool,
}

/// What a failure is reported as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Invalid,
    Forbidden,
    Required,
    Duplicate,
}

impl Rule {
    /// Compiles one rule of a node.
    pub(super) fn compile(rule: &Value, node: &Node, path: &Path<'_>) -> Result<Self, SchemaError> {
        let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default();
        let fail = |name: &str, problem: String| SchemaError { path: path.child(name).to_string(), problem };
        if text("rule").trim().is_empty() {
            return Err(fail("rule", "rule is not specified".to_owned()));
        }
        let program = Program::compile(text("rule"))
            .map_err(|problem| fail("rule", format!("compilation failed: {problem}")))?;
        let message_expression = match text("messageExpression") {
            "" => None,
            source => Some(Program::compile(source).map_err(|problem| {
                fail("messageExpression", format!("messageExpression compilation failed: {problem}"))
            })?),
        };
        let reason = match text("reason") {
            "" | "FieldValueInvalid" => Reason::Invalid,
            "FieldValueForbidden" => Reason::Forbidden,
            "FieldValueRequired" => Reason::Required,
            "FieldValueDuplicate" => Reason::Duplicate,
            other => {
                return Err(fail(
                    "reason",
                    format!(
                        "{other:?} is none of FieldValueDuplicate, FieldValueForbidden, FieldValueInvalid, FieldValueRequired"
                    ),
                ));
            }
        };
        let field_path = match text("fieldPath") {
            "" => String::new(),
            written => {
                fieldpath::resolve(written, node, true)
                    .map_err(|problem| fail("fieldPath", format!("{written:?} {problem}")))?
                    .0
            }
        };
        Ok(Self {
            text: text("rule").trim().to_owned(),
            message: text("message").trim().to_owned(),
            program,
            message_expression,
            reason,
            field_path,
            optional_old_self: rule.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or(false),
        })
    }

    /// How messages about the rule itself name it.
    pub(super) fn name(&self) -> &str {
        if self.message.is_empty() { &self.text } else { &self.message }
    }

    /// What a failure says when no message expression does.
    pub(super) fn message(&self) -> String {
        if self.message.is_empty() { format!("failed rule: {}", self.text) } else { self.message.clone() }
    }
}

/// What is wrong with the expressions of a rule.
pub(crate) struct RuleProblems {
    /// With the rule itself.
    pub(crate) rule: Option<String>,
    /// With its message expression.
    pub(crate) message_expression: Option<String>,
    /// Whether the rule, if it compiles, refers to `oldSelf`.
    pub(crate) uses_old_self: bool,
}

/// Compiles the expressions of a rule of a node and says what is wrong with them.
pub(super) fn problems(rule: &Value, node: &Node, resource: bool) -> RuleProblems {
    let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default();
    let optional = rule.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or(false);
    let compile = |name: &str, wanted: &str| -> Result<Program, String> {
        let program =
            Program::compile(text(name)).map_err(|problem| format!("compilation failed: {problem}"))?;
        match program.check(node, resource, optional, wanted) {
            Ok(()) => Ok(program),
            Err(Mistyped::Inside(problem)) => Err(format!("compilation failed: {problem}")),
            Err(Mistyped::Result) => Err(format!("must evaluate to a {wanted}")),
        }
    };
    let (problem, uses_old_self) = match compile("rule", "bool") {
        Ok(program) => (None, program.uses_old_self()),
        Err(problem) if problem.starts_with("must") => (Some(format!("cel expression {problem}")), false),
        Err(problem) => (Some(problem), false),
    };
    // The real server looks at the message only when the rule is good.
    let message_expression = match text("messageExpression") {
        source if source.is_empty() || problem.is_some() => None,
        _ => {
            compile("messageExpression", "string").err().map(|problem| format!("messageExpression {problem}"))
        }
    };
    RuleProblems { rule: problem, message_expression, uses_old_self }
}
