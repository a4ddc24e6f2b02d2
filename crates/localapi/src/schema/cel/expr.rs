//! The resolved form of an expression: macros recognised, functions bound, variables numbered.

use kube_cel::cel;
use regex::Regex;

use super::functions::Function;

/// An expression, ready to be evaluated.
#[derive(Debug)]
pub(super) enum Expr {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
    /// A type as a value, for example `int`.
    Type(&'static str),
    This,
    Old,
    /// A comprehension's variable, by its place on the stack.
    Local(usize),
    Select(Box<Expr>, String),
    Has(Box<Expr>, String),
    /// `a.?b`
    MaybeSelect(Box<Expr>, String),
    Index(Box<Expr>, Box<Expr>),
    /// `a[?b]`
    MaybeIndex(Box<Expr>, Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Not(Box<Expr>),
    Negate(Box<Expr>),
    If(Box<Expr>, Box<Expr>, Box<Expr>),
    /// `a.or(b)` and, with true, `a.orValue(b)`; `b` is only looked at when `a` is empty.
    Otherwise(Box<Expr>, Box<Expr>, bool),
    Binary(Operator, Box<Expr>, Box<Expr>),
    /// Items, each with whether it is optional (`?item`).
    List(Vec<(Expr, bool)>),
    /// Entries, each with whether it is optional (`?key: value`).
    Map(Vec<(Expr, Expr, bool)>),
    Loop(Box<Loop>),
    /// `target.matches('…')` with a pattern known at compile time.
    Matches(Box<Expr>, Regex),
    Call(Call, Vec<Expr>),
}

/// A function, and how it was called.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) member: bool,
    pub(super) function: Function,
}

/// Binary operators without short circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    In,
}

/// A comprehension over a list or a map. Its variables lie at `first` and, if it has two, `first + 1`.
#[derive(Debug)]
pub(super) struct Loop {
    pub(super) kind: LoopKind,
    pub(super) range: Expr,
    pub(super) two: bool,
    pub(super) filter: Option<Expr>,
    pub(super) body: Expr,
}

/// What a comprehension makes of its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoopKind {
    All,
    Exists,
    ExistsOne,
    List,
    Map,
    MapEntry,
    SortBy,
    OptionalMap,
    OptionalFlatMap,
}

/// A call into kube-cel's function library: a tiny program over the variables `a0`, `a1`, ….
pub(super) struct LibraryCall {
    pub(super) name: &'static str,
    pub(super) program: cel::Program,
    pub(super) names: Vec<String>,
    /// Whether the result is an optional value, empty when the call fails.
    pub(super) optional: bool,
}

impl std::fmt::Debug for LibraryCall {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}/{}", self.name, self.names.len())
    }
}
