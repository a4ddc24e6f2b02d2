//! Validation rules: the Common Expression Language as kube-apiserver 1.35 understands it.
//!
//! The grammar is that of the `cel` crate (through `kube-cel`), and so are the rarer function libraries. What
//! decides whether our own rules give the same answer on both servers is here: evaluation straight on JSON
//! with the schema's types, the errors' wording, IP and CIDR functions, two-variable comprehensions, and the
//! refusal of functions that a real server does not have.

mod check;
mod escape;
mod eval;
mod expr;
mod functions;
mod lower;
#[cfg(test)]
mod tests;
mod types;
mod value;

pub(super) use escape::escape;
pub(super) use value::Val;

use expr::Expr;
use types::Ty;

use super::node::Node;

/// A compiled expression; evaluating it any number of times parses nothing.
#[derive(Debug)]
pub(super) struct Program {
    expr: Expr,
    uses_old_self: bool,
}

/// What an expression sees.
pub(super) struct Scope<'a> {
    /// `self`.
    pub(super) this: Val<'a>,
    /// `oldSelf`; an optional value for rules with `optionalOldSelf`.
    pub(super) old: Option<Val<'a>>,
}

/// Why an expression gave no value, in cel-go's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EvalError(pub(super) String);

/// Why an expression does not fit the types around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mistyped {
    /// It does not fit in itself.
    Inside(String),
    /// It gives another type than is wanted.
    Result,
}

impl EvalError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    pub(super) fn no_such_overload() -> Self {
        Self::new("no such overload")
    }
}

impl Program {
    /// Parses and resolves an expression. The error reads as the real server's compiler output does.
    pub(super) fn compile(source: &str) -> Result<Self, String> {
        lower::compile(source)
    }

    /// Checks the types of the expression on a node. What it must give is `bool` or `string`.
    pub(super) fn check(
        &self,
        node: &Node,
        resource: bool,
        optional_old: bool,
        wanted: &str,
    ) -> Result<(), Mistyped> {
        let this = Ty::of(node, resource).unwrap_or(Ty::Dyn);
        let old = if optional_old { Ty::Optional(Box::new(this.clone())) } else { this.clone() };
        let found = check::check(&self.expr, &this, &old)
            .map_err(|problem| Mistyped::Inside(format!("ERROR: {problem}")))?;
        if found.to_string() == wanted { Ok(()) } else { Err(Mistyped::Result) }
    }

    /// Whether the expression refers to `oldSelf`.
    pub(super) fn uses_old_self(&self) -> bool {
        self.uses_old_self
    }

    /// Evaluates the expression.
    pub(super) fn eval<'a>(&'a self, scope: &'a Scope<'a>) -> Result<Val<'a>, EvalError> {
        eval::eval(&self.expr, scope)
    }
}
