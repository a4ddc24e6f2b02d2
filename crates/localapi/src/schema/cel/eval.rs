//! Evaluation of resolved expressions.
//!
//! `&&` and `||` look at both sides before they give up on an error, `all` and `exists` likewise over their
//! elements: an error only counts when nothing else decides.

use std::rc::Rc;

use jiff::SignedDuration;

use super::expr::{Expr, Loop, LoopKind, Operator};
use super::value::Val;
use super::{EvalError, Scope, functions};

type Evaluated<'a> = Result<Val<'a>, EvalError>;

pub(super) fn eval<'a>(expr: &'a Expr, scope: &'a Scope<'a>) -> Evaluated<'a> {
    Frame { scope, locals: Vec::new() }.eval(expr)
}

struct Frame<'a> {
    scope: &'a Scope<'a>,
    locals: Vec<Val<'a>>,
}

impl<'a> Frame<'a> {
    fn eval(&mut self, expr: &'a Expr) -> Evaluated<'a> {
        match expr {
            Expr::Null => Ok(Val::Null),
            Expr::Bool(value) => Ok(Val::Bool(*value)),
            Expr::Int(value) => Ok(Val::Int(*value)),
            Expr::Uint(value) => Ok(Val::Uint(*value)),
            Expr::Double(value) => Ok(Val::Double(*value)),
            Expr::Text(value) => Ok(Val::Text(value.as_str().into())),
            Expr::Bytes(value) => Ok(Val::Bytes(Rc::from(value.as_slice()))),
            Expr::Type(name) => Ok(Val::Type(name)),
            Expr::This => Ok(self.scope.this.clone()),
            Expr::Old => {
                self.scope.old.clone().ok_or_else(|| EvalError::new("no such attribute(s): oldSelf"))
            }
            Expr::Local(index) => {
                self.locals.get(*index).cloned().ok_or_else(|| EvalError::new("no such attribute(s)"))
            }
            Expr::Select(operand, field) => {
                let operand = self.eval(operand)?;
                let key = Val::Text(field.as_str().into());
                required(&operand, &key)
            }
            Expr::Has(operand, field) => {
                let operand = self.eval(operand)?;
                let key = Val::Text(field.as_str().into());
                let found = match &operand {
                    Val::Optional(None) => None,
                    Val::Optional(Some(inner)) => inner.get(&key)?,
                    other => other.get(&key)?,
                };
                Ok(Val::Bool(found.is_some()))
            }
            Expr::MaybeSelect(operand, field) => {
                let operand = self.eval(operand)?;
                maybe(&operand, &Val::Text(field.as_str().into()))
            }
            Expr::Index(operand, index) => {
                let operand = self.eval(operand)?;
                let index = self.eval(index)?;
                required(&operand, &index)
            }
            Expr::MaybeIndex(operand, index) => {
                let operand = self.eval(operand)?;
                let index = self.eval(index)?;
                maybe(&operand, &index)
            }
            Expr::And(left, right) => self.decide(left, right, false),
            Expr::Or(left, right) => self.decide(left, right, true),
            Expr::Not(operand) => match self.eval(operand)? {
                Val::Bool(value) => Ok(Val::Bool(!value)),
                _ => Err(EvalError::no_such_overload()),
            },
            Expr::Negate(operand) => negate(&self.eval(operand)?),
            Expr::If(condition, yes, no) => match self.eval(condition)? {
                Val::Bool(true) => self.eval(yes),
                Val::Bool(false) => self.eval(no),
                _ => Err(EvalError::no_such_overload()),
            },
            Expr::Otherwise(left, right, unwrap) => match (self.eval(left)?, unwrap) {
                (value @ Val::Optional(Some(_)), false) => Ok(value),
                (Val::Optional(Some(value)), true) => Ok(value.as_ref().clone()),
                (Val::Optional(None), _) => self.eval(right),
                _ => Err(EvalError::no_such_overload()),
            },
            Expr::Binary(operator, left, right) => {
                let left = self.eval(left)?;
                let right = self.eval(right)?;
                binary(*operator, &left, &right)
            }
            Expr::List(items) => {
                let mut out = Vec::with_capacity(items.len());
                for (item, optional) in items {
                    match (self.eval(item)?, optional) {
                        (value, false) => out.push(value),
                        (Val::Optional(None), true) => {}
                        (Val::Optional(Some(inner)), true) => out.push(inner.as_ref().clone()),
                        (_, true) => return Err(EvalError::no_such_overload()),
                    }
                }
                Ok(Val::list(out))
            }
            Expr::Map(entries) => self.map_literal(entries),
            Expr::Loop(repeated) => self.repeat(repeated),
            Expr::Matches(operand, regex) => match self.eval(operand)? {
                Val::Text(text) => Ok(Val::Bool(regex.is_match(&text))),
                _ => Err(EvalError::no_such_overload()),
            },
            Expr::Call(call, args) => {
                let mut values = Vec::with_capacity(args.len());
                for arg in args {
                    values.push(self.eval(arg)?);
                }
                functions::call(&call.function, &values)
            }
        }
    }

    /// `&&` (decided by false) and `||` (decided by true).
    fn decide(&mut self, left: &'a Expr, right: &'a Expr, decisive: bool) -> Evaluated<'a> {
        let left = self.eval(left);
        if matches!(left, Ok(Val::Bool(value)) if value == decisive) {
            return left;
        }
        let right = self.eval(right);
        match (left, right) {
            (_, Ok(Val::Bool(value))) if value == decisive => Ok(Val::Bool(decisive)),
            (Ok(Val::Bool(_)), Ok(Val::Bool(_))) => Ok(Val::Bool(!decisive)),
            (Err(error), _) | (Ok(Val::Bool(_)), Err(error)) => Err(error),
            _ => Err(EvalError::no_such_overload()),
        }
    }

    fn map_literal(&mut self, entries: &'a [(Expr, Expr, bool)]) -> Evaluated<'a> {
        let mut out: Vec<(Val<'a>, Val<'a>)> = Vec::with_capacity(entries.len());
        for (key, value, optional) in entries {
            let key = self.eval(key)?;
            let value = match (self.eval(value)?, optional) {
                (value, false) => value,
                (Val::Optional(None), true) => continue,
                (Val::Optional(Some(inner)), true) => inner.as_ref().clone(),
                (_, true) => return Err(EvalError::no_such_overload()),
            };
            for (known, _) in &out {
                if known.equals(&key)? {
                    return Err(EvalError::new(format!("Failed with repeated key {}", key.shown())));
                }
            }
            out.push((key, value));
        }
        Ok(Val::map(out))
    }

    fn repeat(&mut self, repeated: &'a Loop) -> Evaluated<'a> {
        let range = self.eval(&repeated.range)?;
        if let LoopKind::OptionalMap | LoopKind::OptionalFlatMap = repeated.kind {
            return self.through_optional(repeated, &range);
        }
        let elements: Vec<(Val<'a>, Option<Val<'a>>)> = match &range {
            Val::List(list) => {
                let mut out = Vec::with_capacity(list.len());
                for (index, item) in list.iter().enumerate() {
                    let item = item?;
                    out.push(if repeated.two {
                        (Val::Int(i64::try_from(index).unwrap_or(i64::MAX)), Some(item))
                    } else {
                        (item, None)
                    });
                }
                out
            }
            Val::Map(map) => {
                let mut out = Vec::with_capacity(map.len());
                for key in map.keys() {
                    let value = if repeated.two { map.get(&key)? } else { None };
                    out.push((key, value));
                }
                out
            }
            _ => return Err(EvalError::no_such_overload()),
        };
        let depth = self.locals.len();
        let result = self.run(repeated, elements);
        self.locals.truncate(depth);
        result
    }

    fn run(&mut self, repeated: &'a Loop, elements: Vec<(Val<'a>, Option<Val<'a>>)>) -> Evaluated<'a> {
        let depth = self.locals.len();
        let mut failure: Option<EvalError> = None;
        let mut count = 0_u64;
        let mut made: Vec<Val<'a>> = Vec::new();
        let mut entries: Vec<(Val<'a>, Val<'a>)> = Vec::new();
        for (first, second) in elements {
            self.locals.truncate(depth);
            let key = first.clone();
            self.locals.push(first);
            self.locals.extend(second);
            if let Some(filter) = &repeated.filter {
                match self.eval(filter)? {
                    Val::Bool(true) => {}
                    Val::Bool(false) => continue,
                    _ => return Err(EvalError::no_such_overload()),
                }
            }
            let value = self.eval(&repeated.body);
            match repeated.kind {
                LoopKind::All | LoopKind::Exists => {
                    let decisive = repeated.kind == LoopKind::Exists;
                    match value {
                        Ok(Val::Bool(value)) if value == decisive => return Ok(Val::Bool(decisive)),
                        Ok(Val::Bool(_)) => {}
                        Ok(_) => failure = failure.or_else(|| Some(EvalError::no_such_overload())),
                        Err(error) => failure = failure.or(Some(error)),
                    }
                }
                LoopKind::ExistsOne => match value? {
                    Val::Bool(found) => count += u64::from(found),
                    _ => return Err(EvalError::no_such_overload()),
                },
                LoopKind::List => made.push(value?),
                LoopKind::SortBy => entries.push((value?, key)),
                LoopKind::Map => entries.push((key, value?)),
                LoopKind::MapEntry => add_entries(&mut entries, &value?)?,
                LoopKind::OptionalMap | LoopKind::OptionalFlatMap => {}
            }
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        match repeated.kind {
            LoopKind::All => Ok(Val::Bool(true)),
            LoopKind::Exists => Ok(Val::Bool(false)),
            LoopKind::ExistsOne => Ok(Val::Bool(count == 1)),
            LoopKind::Map | LoopKind::MapEntry => Ok(Val::map(entries)),
            LoopKind::SortBy => {
                let sorted = functions::sort_by_key(entries)?;
                Ok(Val::list(sorted))
            }
            _ => Ok(Val::list(made)),
        }
    }

    fn through_optional(&mut self, repeated: &'a Loop, range: &Val<'a>) -> Evaluated<'a> {
        let Val::Optional(optional) = range else { return Err(EvalError::no_such_overload()) };
        let Some(inner) = optional else { return Ok(Val::Optional(None)) };
        let depth = self.locals.len();
        self.locals.push(inner.as_ref().clone());
        let result = self.eval(&repeated.body);
        self.locals.truncate(depth);
        match (repeated.kind, result?) {
            (LoopKind::OptionalFlatMap, value @ Val::Optional(_)) => Ok(value),
            (LoopKind::OptionalFlatMap, _) => Err(EvalError::no_such_overload()),
            (_, value) => Ok(Val::some(value)),
        }
    }
}

fn add_entries<'a>(entries: &mut Vec<(Val<'a>, Val<'a>)>, made: &Val<'a>) -> Result<(), EvalError> {
    let Val::Map(map) = made else { return Err(EvalError::no_such_overload()) };
    for key in map.keys() {
        for (known, _) in entries.iter() {
            if known.equals(&key)? {
                return Err(EvalError::new(format!("insert failed: key {} already exists", key.shown())));
            }
        }
        if let Some(value) = map.get(&key)? {
            entries.push((key, value));
        }
    }
    Ok(())
}

/// The value under a key, through an optional if there is one.
fn required<'a>(operand: &Val<'a>, key: &Val<'a>) -> Evaluated<'a> {
    match operand {
        Val::Optional(_) => maybe(operand, key),
        Val::List(_) => match operand.get(key)? {
            Some(value) => Ok(value),
            None => Err(EvalError::new(format!("index out of bounds: {}", key.shown()))),
        },
        _ => match operand.get(key)? {
            Some(value) => Ok(value),
            None => Err(EvalError::new(format!("no such key: {}", key.shown()))),
        },
    }
}

/// `a.?b` and `a[?b]`: an optional value, empty when there is nothing.
fn maybe<'a>(operand: &Val<'a>, key: &Val<'a>) -> Evaluated<'a> {
    let found = match operand {
        Val::Optional(None) => None,
        Val::Optional(Some(inner)) => inner.get(key)?,
        other => other.get(key)?,
    };
    Ok(Val::Optional(found.map(Rc::new)))
}

fn negate<'a>(value: &Val<'a>) -> Evaluated<'a> {
    match value {
        Val::Int(int) => int.checked_neg().map(Val::Int).ok_or_else(|| EvalError::new("integer overflow")),
        Val::Double(double) => Ok(Val::Double(-double)),
        Val::Duration(duration) => {
            duration.checked_neg().map(Val::Duration).ok_or_else(|| EvalError::new("duration overflow"))
        }
        _ => Err(EvalError::no_such_overload()),
    }
}

fn binary<'a>(operator: Operator, left: &Val<'a>, right: &Val<'a>) -> Evaluated<'a> {
    match operator {
        Operator::Equal => left.equals(right).map(Val::Bool),
        Operator::NotEqual => left.equals(right).map(|equal| Val::Bool(!equal)),
        Operator::Less => left.compare(right).map(|order| Val::Bool(order.is_lt())),
        Operator::LessEqual => left.compare(right).map(|order| Val::Bool(order.is_le())),
        Operator::Greater => left.compare(right).map(|order| Val::Bool(order.is_gt())),
        Operator::GreaterEqual => left.compare(right).map(|order| Val::Bool(order.is_ge())),
        Operator::In => match right {
            Val::List(list) => list.contains(left).map(Val::Bool),
            Val::Map(map) => map.get(left).map(|found| Val::Bool(found.is_some())),
            _ => Err(EvalError::no_such_overload()),
        },
        Operator::Add => add(left, right),
        Operator::Subtract => subtract(left, right),
        Operator::Multiply | Operator::Divide | Operator::Modulo => scale(operator, left, right),
    }
}

fn int<'a>(result: Option<i64>) -> Evaluated<'a> {
    result.map(Val::Int).ok_or_else(|| EvalError::new("integer overflow"))
}

fn uint<'a>(result: Option<u64>) -> Evaluated<'a> {
    result.map(Val::Uint).ok_or_else(|| EvalError::new("unsigned integer overflow"))
}

fn duration<'a>(result: Option<SignedDuration>) -> Evaluated<'a> {
    // cel-go's durations are 64-bit nanoseconds.
    result
        .filter(|d| i64::try_from(d.as_nanos()).is_ok())
        .map(Val::Duration)
        .ok_or_else(|| EvalError::new("duration overflow"))
}

pub(super) fn add<'a>(left: &Val<'a>, right: &Val<'a>) -> Evaluated<'a> {
    match (left, right) {
        (Val::Int(a), Val::Int(b)) => int(a.checked_add(*b)),
        (Val::Uint(a), Val::Uint(b)) => uint(a.checked_add(*b)),
        (Val::Double(a), Val::Double(b)) => Ok(Val::Double(a + b)),
        (Val::Text(a), Val::Text(b)) => Ok(Val::text(format!("{a}{b}"))),
        (Val::Bytes(a), Val::Bytes(b)) => Ok(Val::Bytes([a.as_ref(), b.as_ref()].concat().into())),
        (Val::List(a), Val::List(b)) => a.add(b).map(Val::List),
        (Val::Duration(a), Val::Duration(b)) => duration(a.checked_add(*b)),
        (Val::Timestamp(a), Val::Duration(b)) | (Val::Duration(b), Val::Timestamp(a)) => {
            a.checked_add(*b).map(Val::Timestamp).map_err(|_| EvalError::new("timestamp overflow"))
        }
        _ => Err(EvalError::no_such_overload()),
    }
}

fn subtract<'a>(left: &Val<'a>, right: &Val<'a>) -> Evaluated<'a> {
    match (left, right) {
        (Val::Int(a), Val::Int(b)) => int(a.checked_sub(*b)),
        (Val::Uint(a), Val::Uint(b)) => uint(a.checked_sub(*b)),
        (Val::Double(a), Val::Double(b)) => Ok(Val::Double(a - b)),
        (Val::Duration(a), Val::Duration(b)) => duration(a.checked_sub(*b)),
        (Val::Timestamp(a), Val::Duration(b)) => {
            a.checked_sub(*b).map(Val::Timestamp).map_err(|_| EvalError::new("timestamp overflow"))
        }
        (Val::Timestamp(a), Val::Timestamp(b)) => duration(Some(a.duration_since(*b))),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn scale<'a>(operator: Operator, left: &Val<'a>, right: &Val<'a>) -> Evaluated<'a> {
    match (operator, left, right) {
        (Operator::Multiply, Val::Int(a), Val::Int(b)) => int(a.checked_mul(*b)),
        (Operator::Multiply, Val::Uint(a), Val::Uint(b)) => uint(a.checked_mul(*b)),
        (Operator::Multiply, Val::Double(a), Val::Double(b)) => Ok(Val::Double(a * b)),
        (Operator::Divide, Val::Int(_), Val::Int(0)) | (Operator::Divide, Val::Uint(_), Val::Uint(0)) => {
            Err(EvalError::new("division by zero"))
        }
        (Operator::Modulo, Val::Int(_), Val::Int(0)) | (Operator::Modulo, Val::Uint(_), Val::Uint(0)) => {
            Err(EvalError::new("modulus by zero"))
        }
        (Operator::Divide, Val::Int(a), Val::Int(b)) => int(a.checked_div(*b)),
        (Operator::Divide, Val::Uint(a), Val::Uint(b)) => uint(a.checked_div(*b)),
        (Operator::Divide, Val::Double(a), Val::Double(b)) => Ok(Val::Double(a / b)),
        (Operator::Modulo, Val::Int(a), Val::Int(b)) => int(a.checked_rem(*b)),
        (Operator::Modulo, Val::Uint(a), Val::Uint(b)) => uint(a.checked_rem(*b)),
        _ => Err(EvalError::no_such_overload()),
    }
}
