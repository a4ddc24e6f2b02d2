//! Functions on lists and on lists as sets.

use std::cmp::Ordering;
use std::rc::Rc;

use super::super::EvalError;
use super::super::eval::add;
use super::super::value::{List, Val};
use super::count;

type Result<'a> = std::result::Result<Val<'a>, EvalError>;

fn list<'v, 'a>(value: &'v Val<'a>) -> std::result::Result<&'v List<'a>, EvalError> {
    match value {
        Val::List(list) => Ok(list),
        _ => Err(EvalError::no_such_overload()),
    }
}

pub(super) fn is_sorted<'a>(args: &[Val<'a>]) -> Result<'a> {
    let items = list(&args[0])?.to_vec()?;
    for pair in items.windows(2) {
        if pair[0].compare(&pair[1])?.is_gt() {
            return Ok(Val::Bool(false));
        }
    }
    Ok(Val::Bool(true))
}

pub(super) fn sum<'a>(args: &[Val<'a>]) -> Result<'a> {
    let items = list(&args[0])?.to_vec()?;
    let mut items = items.into_iter();
    let Some(first) = items.next() else { return Ok(Val::Int(0)) };
    if !matches!(first, Val::Int(_) | Val::Uint(_) | Val::Double(_) | Val::Duration(_)) {
        return Err(EvalError::no_such_overload());
    }
    items.try_fold(first, |total, item| add(&total, &item))
}

pub(super) fn min<'a>(args: &[Val<'a>]) -> Result<'a> {
    extreme(&args[0], Ordering::Less, "min")
}

pub(super) fn max<'a>(args: &[Val<'a>]) -> Result<'a> {
    extreme(&args[0], Ordering::Greater, "max")
}

fn extreme<'a>(value: &Val<'a>, wanted: Ordering, name: &str) -> Result<'a> {
    let mut best: Option<Val<'a>> = None;
    for item in list(value)?.iter() {
        let item = item?;
        best = match best {
            Some(best) if item.compare(&best)? != wanted => Some(best),
            _ => Some(item),
        };
    }
    best.ok_or_else(|| EvalError::new(format!("{name} called on empty list")))
}

pub(super) fn index_of<'a>(args: &[Val<'a>]) -> Result<'a> {
    for (index, item) in list(&args[0])?.iter().enumerate() {
        if item?.equals(&args[1])? {
            return Ok(count(index));
        }
    }
    Ok(Val::Int(-1))
}

pub(super) fn last_index_of<'a>(args: &[Val<'a>]) -> Result<'a> {
    let mut found = Val::Int(-1);
    for (index, item) in list(&args[0])?.iter().enumerate() {
        if item?.equals(&args[1])? {
            found = count(index);
        }
    }
    Ok(found)
}

pub(super) fn slice<'a>(args: &[Val<'a>]) -> Result<'a> {
    let (Val::Int(start), Val::Int(end)) = (&args[1], &args[2]) else {
        return Err(EvalError::no_such_overload());
    };
    let items = list(&args[0])?.to_vec()?;
    let refuse = |problem: &str| Err(EvalError::new(format!("cannot slice({start}, {end}), {problem}")));
    match (usize::try_from(*start), usize::try_from(*end)) {
        (Ok(from), Ok(to)) if from <= to => match items.get(from..to) {
            Some(part) => Ok(Val::list(part.to_vec())),
            None => refuse(&format!("list is length {}", items.len())),
        },
        (Ok(_), Ok(_)) => refuse("start index must be less than or equal to end index"),
        _ => refuse("negative indexes not supported"),
    }
}

pub(super) fn flatten<'a>(args: &[Val<'a>]) -> Result<'a> {
    let depth = match args.get(1) {
        None => 1,
        Some(Val::Int(depth)) => {
            u32::try_from(*depth).map_err(|_| EvalError::new("level must be non-negative"))?
        }
        Some(_) => return Err(EvalError::no_such_overload()),
    };
    let mut out = Vec::new();
    flatten_into(list(&args[0])?, depth, &mut out)?;
    Ok(Val::list(out))
}

fn flatten_into<'a>(
    items: &List<'a>,
    depth: u32,
    out: &mut Vec<Val<'a>>,
) -> std::result::Result<(), EvalError> {
    for item in items.iter() {
        match item? {
            Val::List(inner) if depth > 0 => flatten_into(&inner, depth - 1, out)?,
            other => out.push(other),
        }
    }
    Ok(())
}

pub(super) fn sort<'a>(args: &[Val<'a>]) -> Result<'a> {
    let items = list(&args[0])?.to_vec()?;
    sort_by_key(items.into_iter().map(|item| (item.clone(), item)).collect()).map(Val::list)
}

/// The second of each pair, in the order of the first.
pub(in super::super) fn sort_by_key<'a>(
    mut pairs: Vec<(Val<'a>, Val<'a>)>,
) -> std::result::Result<Vec<Val<'a>>, EvalError> {
    for pair in pairs.windows(2) {
        if pair[0].0.type_name() != pair[1].0.type_name() {
            return Err(EvalError::new("list elements must have the same type"));
        }
        pair[0].0.compare(&pair[1].0).map_err(|_| EvalError::new("list elements must be comparable"))?;
    }
    pairs.sort_by(|a, b| a.0.compare(&b.0).unwrap_or(Ordering::Equal));
    Ok(pairs.into_iter().map(|(_, value)| value).collect())
}

pub(super) fn reverse<'a>(args: &[Val<'a>]) -> Result<'a> {
    let mut items = list(&args[0])?.to_vec()?;
    items.reverse();
    Ok(Val::list(items))
}

pub(super) fn distinct<'a>(args: &[Val<'a>]) -> Result<'a> {
    let mut out: Vec<Val<'a>> = Vec::new();
    for item in list(&args[0])?.iter() {
        let item = item?;
        let mut known = false;
        for other in &out {
            known = known || other.equals(&item)?;
        }
        if !known {
            out.push(item);
        }
    }
    Ok(Val::list(out))
}

pub(super) fn first<'a>(args: &[Val<'a>]) -> Result<'a> {
    Ok(Val::Optional(list(&args[0])?.get(0)?.map(Rc::new)))
}

pub(super) fn last<'a>(args: &[Val<'a>]) -> Result<'a> {
    let list = list(&args[0])?;
    match list.len().checked_sub(1) {
        Some(index) => Ok(Val::Optional(list.get(index)?.map(Rc::new))),
        None => Ok(Val::Optional(None)),
    }
}

pub(super) fn range<'a>(args: &[Val<'a>]) -> Result<'a> {
    match &args[0] {
        // More than a request may hold cannot be meant.
        Val::Int(end) if *end <= 1_000_000 => Ok(Val::list((0..*end).map(Val::Int).collect())),
        Val::Int(end) => Err(EvalError::new(format!("lists.range: {end} is more than 1000000"))),
        _ => Err(EvalError::no_such_overload()),
    }
}

pub(super) fn unwrap<'a>(args: &[Val<'a>]) -> Result<'a> {
    let mut out = Vec::new();
    for item in list(&args[0])?.iter() {
        match item? {
            Val::Optional(None) => {}
            Val::Optional(Some(value)) => out.push(value.as_ref().clone()),
            _ => return Err(EvalError::no_such_overload()),
        }
    }
    Ok(Val::list(out))
}

fn contains_all<'a>(a: &List<'a>, b: &List<'a>) -> std::result::Result<bool, EvalError> {
    for item in b.iter() {
        if !a.contains(&item?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(super) fn set_contains<'a>(args: &[Val<'a>]) -> Result<'a> {
    contains_all(list(&args[0])?, list(&args[1])?).map(Val::Bool)
}

pub(super) fn set_equivalent<'a>(args: &[Val<'a>]) -> Result<'a> {
    let (a, b) = (list(&args[0])?, list(&args[1])?);
    Ok(Val::Bool(contains_all(a, b)? && contains_all(b, a)?))
}

pub(super) fn set_intersects<'a>(args: &[Val<'a>]) -> Result<'a> {
    let (a, b) = (list(&args[0])?, list(&args[1])?);
    for item in a.iter() {
        if b.contains(&item?)? {
            return Ok(Val::Bool(true));
        }
    }
    Ok(Val::Bool(false))
}
