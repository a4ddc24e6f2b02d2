//! Type checking of rules, so that what a real server would not compile is refused here, too.

use super::expr::{Expr, Loop, LoopKind, Operator};
use super::functions::signatures;
use super::types::Ty;

type Checked<'a> = Result<Ty<'a>, String>;

/// The type of an expression, or what is wrong with it.
pub(super) fn check<'a>(expr: &Expr, this: &Ty<'a>, old: &Ty<'a>) -> Checked<'a> {
    Checker { this, old, locals: Vec::new() }.expr(expr)
}

struct Checker<'t, 'a> {
    this: &'t Ty<'a>,
    old: &'t Ty<'a>,
    locals: Vec<Ty<'a>>,
}

/// The refusal of a call whose arguments have the wrong types.
pub(super) fn no_overload<T>(name: &str, types: &[&Ty<'_>]) -> Result<T, String> {
    let shown: Vec<String> = types.iter().map(ToString::to_string).collect();
    Err(format!("found no matching overload for '{name}' applied to '({})'", shown.join(", ")))
}

impl<'a> Checker<'_, 'a> {
    fn expr(&mut self, expr: &Expr) -> Checked<'a> {
        Ok(match expr {
            Expr::Null => Ty::Null,
            Expr::Bool(_) => Ty::Bool,
            Expr::Int(_) => Ty::Int,
            Expr::Uint(_) => Ty::Uint,
            Expr::Double(_) => Ty::Double,
            Expr::Text(_) => Ty::Text,
            Expr::Bytes(_) => Ty::Bytes,
            Expr::Type(_) => Ty::Type,
            Expr::This => self.this.clone(),
            Expr::Old => self.old.clone(),
            Expr::Local(index) => self.locals.get(*index).cloned().unwrap_or(Ty::Dyn),
            Expr::Select(operand, field) => self.select(operand, field)?,
            Expr::Has(operand, field) => {
                self.select(operand, field)?;
                Ty::Bool
            }
            Expr::MaybeSelect(operand, field) => optional(self.select(operand, field)?),
            Expr::Index(operand, index) => self.index("_[_]", operand, index)?,
            Expr::MaybeIndex(operand, index) => optional(self.index("_[?_]", operand, index)?),
            Expr::And(left, right) | Expr::Or(left, right) => {
                for side in [left, right] {
                    let ty = self.expr(side)?;
                    expect(&Ty::Bool, &ty)?;
                }
                Ty::Bool
            }
            Expr::Not(operand) => match self.expr(operand)? {
                Ty::Bool | Ty::Dyn => Ty::Bool,
                other => return no_overload("!_", &[&other]),
            },
            Expr::Negate(operand) => match self.expr(operand)? {
                ty @ (Ty::Int | Ty::Double | Ty::Dyn) => ty,
                other => return no_overload("-_", &[&other]),
            },
            Expr::If(condition, yes, no) => {
                let (condition, yes, no) = (self.expr(condition)?, self.expr(yes)?, self.expr(no)?);
                if !condition.fits(&Ty::Bool) || !yes.fits(&no) {
                    return no_overload("_?_:_", &[&condition, &yes, &no]);
                }
                yes.join(no)
            }
            Expr::Otherwise(left, right, unwrap) => {
                let (left, right) = (self.expr(left)?, self.expr(right)?);
                let name = if *unwrap { "orValue" } else { "or" };
                let wanted = match (&left, unwrap) {
                    (Ty::Dyn, _) => return Ok(Ty::Dyn),
                    (Ty::Optional(inner), true) => inner.as_ref().clone(),
                    (Ty::Optional(_), false) => left.clone(),
                    _ => return member_overload(name, &left, &[&right]),
                };
                if !right.fits(&wanted) {
                    return member_overload(name, &left, &[&right]);
                }
                wanted.join(right)
            }
            Expr::Binary(operator, left, right) => {
                let (left, right) = (self.expr(left)?, self.expr(right)?);
                binary(*operator, &left, &right)?
            }
            Expr::List(items) => {
                let mut item_type: Option<Ty<'a>> = None;
                for (item, maybe) in items {
                    let ty = unwrapped(self.expr(item)?, *maybe);
                    item_type = Some(uniform(item_type, ty)?);
                }
                Ty::List(Box::new(item_type.unwrap_or(Ty::Dyn)))
            }
            Expr::Map(entries) => {
                let (mut key_type, mut value_type) = (None, None);
                for (key, value, maybe) in entries {
                    key_type = Some(uniform(key_type, self.expr(key)?)?);
                    value_type = Some(uniform(value_type, unwrapped(self.expr(value)?, *maybe))?);
                }
                Ty::Map(Box::new(key_type.unwrap_or(Ty::Dyn)), Box::new(value_type.unwrap_or(Ty::Dyn)))
            }
            Expr::Loop(repeated) => self.repeat(repeated)?,
            Expr::Matches(operand, _) => {
                let operand = self.expr(operand)?;
                if !operand.fits(&Ty::Text) {
                    return member_overload("matches", &operand, &[&Ty::Text]);
                }
                Ty::Bool
            }
            Expr::Call(call, args) => {
                let mut types = Vec::with_capacity(args.len());
                for (index, arg) in args.iter().enumerate() {
                    // What `format` prints may be of any types.
                    if call.name == "format"
                        && index == 1
                        && let Expr::List(items) = arg
                    {
                        let mut printed = Vec::with_capacity(items.len());
                        for (item, maybe) in items {
                            printed.push(unwrapped(self.expr(item)?, *maybe));
                        }
                        if let Some(Expr::Text(template)) = args.first() {
                            signatures::check_format(template, &printed)?;
                        }
                        types.push(Ty::List(Box::new(Ty::Dyn)));
                    } else {
                        types.push(self.expr(arg)?);
                    }
                }
                signatures::apply(&call.name, call.member, &types)?
            }
        })
    }

    fn select(&mut self, operand: &Expr, field: &str) -> Checked<'a> {
        let operand = self.expr(operand)?;
        select_from(&operand, field)
    }

    fn index(&mut self, name: &str, operand: &Expr, index: &Expr) -> Checked<'a> {
        let (operand, index) = (self.expr(operand)?, self.expr(index)?);
        let inner = if let Ty::Optional(inner) = &operand { inner.as_ref() } else { &operand };
        let found = match inner {
            Ty::Dyn => Ty::Dyn,
            Ty::List(item) if index.fits(&Ty::Int) => item.as_ref().clone(),
            Ty::Map(key, value) if index.fits(key) => value.as_ref().clone(),
            _ => return no_overload(name, &[&operand, &index]),
        };
        Ok(if matches!(operand, Ty::Optional(_)) { optional(found) } else { found })
    }

    fn repeat(&mut self, repeated: &Loop) -> Checked<'a> {
        let range = self.expr(&repeated.range)?;
        let variables = match (&range, repeated.kind) {
            (Ty::Optional(inner), LoopKind::OptionalMap | LoopKind::OptionalFlatMap) => {
                vec![inner.as_ref().clone()]
            }
            (Ty::Dyn, _) => vec![Ty::Dyn; 1 + usize::from(repeated.two)],
            (Ty::List(item), _) if repeated.two => vec![Ty::Int, item.as_ref().clone()],
            (Ty::List(item), _) => vec![item.as_ref().clone()],
            (Ty::Map(key, value), _) if repeated.two => vec![key.as_ref().clone(), value.as_ref().clone()],
            (Ty::Map(key, _), _) => vec![key.as_ref().clone()],
            _ => {
                return Err(format!(
                    "expression of type '{range}' cannot be range of a comprehension (must be list, map, or dynamic)"
                ));
            }
        };
        let depth = self.locals.len();
        self.locals.extend(variables);
        let filter = repeated.filter.as_ref().map(|filter| self.expr(filter)).transpose();
        let body = self.expr(&repeated.body);
        self.locals.truncate(depth);
        let (filter, body) = (filter?, body?);
        if let Some(filter) = filter {
            expect(&Ty::Bool, &filter)?;
        }
        Ok(match repeated.kind {
            LoopKind::All | LoopKind::Exists | LoopKind::ExistsOne => {
                expect(&Ty::Bool, &body)?;
                Ty::Bool
            }
            LoopKind::List => Ty::List(Box::new(body)),
            LoopKind::SortBy => range,
            LoopKind::Map => match range {
                Ty::Map(key, _) => Ty::Map(key, Box::new(body)),
                Ty::List(_) => Ty::Map(Box::new(Ty::Int), Box::new(body)),
                _ => Ty::Dyn,
            },
            LoopKind::OptionalMap => optional(body),
            LoopKind::MapEntry | LoopKind::OptionalFlatMap => body,
        })
    }
}

fn select_from<'a>(operand: &Ty<'a>, field: &str) -> Checked<'a> {
    match operand {
        Ty::Dyn => Ok(Ty::Dyn),
        Ty::Object(node, resource) => {
            Ty::field(node, *resource, field).ok_or_else(|| format!("undefined field '{field}'"))
        }
        Ty::Map(_, value) => Ok(value.as_ref().clone()),
        Ty::Optional(inner) => Ok(optional(select_from(inner, field)?)),
        other => Err(format!("type '{other}' does not support field selection")),
    }
}

/// Optional once, however often it is asked for.
fn optional(ty: Ty<'_>) -> Ty<'_> {
    match ty {
        Ty::Optional(_) => ty,
        ty => Ty::Optional(Box::new(ty)),
    }
}

fn unwrapped(ty: Ty<'_>, maybe: bool) -> Ty<'_> {
    match ty {
        Ty::Optional(inner) if maybe => *inner,
        ty => ty,
    }
}

/// All items of a literal have one type.
fn uniform<'a>(known: Option<Ty<'a>>, next: Ty<'a>) -> Checked<'a> {
    match known {
        None => Ok(next),
        Some(known) => {
            expect(&known, &next)?;
            Ok(known.join(next))
        }
    }
}

fn expect(wanted: &Ty<'_>, found: &Ty<'_>) -> Result<(), String> {
    if found.fits(wanted) { Ok(()) } else { Err(format!("expected type '{wanted}' but found '{found}'")) }
}

/// The refusal of a member call whose arguments have the wrong types.
pub(super) fn member_overload<T>(name: &str, target: &Ty<'_>, types: &[&Ty<'_>]) -> Result<T, String> {
    let shown: Vec<String> = types.iter().map(ToString::to_string).collect();
    Err(format!("found no matching overload for '{name}' applied to '{target}.({})'", shown.join(", ")))
}

fn binary<'a>(operator: Operator, left: &Ty<'a>, right: &Ty<'a>) -> Checked<'a> {
    let name = match operator {
        Operator::Add => "_+_",
        Operator::Subtract => "_-_",
        Operator::Multiply => "_*_",
        Operator::Divide => "_/_",
        Operator::Modulo => "_%_",
        Operator::Equal => "_==_",
        Operator::NotEqual => "_!=_",
        Operator::Less => "_<_",
        Operator::LessEqual => "_<=_",
        Operator::Greater => "_>_",
        Operator::GreaterEqual => "_>=_",
        Operator::In => "@in",
    };
    let same = left.fits(right);
    let result = match operator {
        Operator::Equal | Operator::NotEqual if same => Some(Ty::Bool),
        Operator::Less | Operator::LessEqual | Operator::Greater | Operator::GreaterEqual => {
            let ordered = |ty: &Ty<'_>| {
                ty.is_number()
                    || matches!(ty, Ty::Dyn | Ty::Bool | Ty::Text | Ty::Bytes | Ty::Duration | Ty::Timestamp)
            };
            let comparable = same || (left.is_number() && right.is_number());
            (comparable && ordered(left) && ordered(right)).then_some(Ty::Bool)
        }
        Operator::In => match right {
            Ty::Dyn => Some(Ty::Bool),
            Ty::List(item) if left.fits(item) => Some(Ty::Bool),
            Ty::Map(key, _) if left.fits(key) => Some(Ty::Bool),
            _ => None,
        },
        Operator::Add => match (left, right) {
            (Ty::Timestamp, Ty::Duration) | (Ty::Duration, Ty::Timestamp) => Some(Ty::Timestamp),
            (Ty::Dyn, _) | (_, Ty::Dyn) => Some(left.clone().join(right.clone())),
            (Ty::Int | Ty::Uint | Ty::Double | Ty::Text | Ty::Bytes | Ty::List(_) | Ty::Duration, _)
                if same =>
            {
                Some(left.clone().join(right.clone()))
            }
            _ => None,
        },
        Operator::Subtract => match (left, right) {
            (Ty::Timestamp, Ty::Duration) => Some(Ty::Timestamp),
            (Ty::Timestamp, Ty::Timestamp) => Some(Ty::Duration),
            (Ty::Dyn, _) | (_, Ty::Dyn) => Some(Ty::Dyn),
            (Ty::Int | Ty::Uint | Ty::Double | Ty::Duration, _) if same => Some(left.clone()),
            _ => None,
        },
        Operator::Multiply | Operator::Divide if same && (left.is_number() || right.is_number()) => {
            Some(left.clone().join(right.clone()))
        }
        Operator::Modulo if same && (matches!(left, Ty::Int | Ty::Uint | Ty::Dyn)) => {
            Some(left.clone().join(right.clone()))
        }
        Operator::Multiply | Operator::Divide if matches!((left, right), (Ty::Dyn, Ty::Dyn)) => Some(Ty::Dyn),
        _ => None,
    };
    match result {
        Some(ty) => Ok(ty),
        None => no_overload(name, &[left, right]),
    }
}
