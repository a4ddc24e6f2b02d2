//! Functions on texts. Positions count characters, not bytes.

use super::super::super::regexp;
use super::super::EvalError;
use super::super::value::Val;
use super::count;

type Result<'a> = std::result::Result<Val<'a>, EvalError>;

fn text<'v>(value: &'v Val<'_>) -> std::result::Result<&'v str, EvalError> {
    match value {
        Val::Text(text) => Ok(text.as_ref()),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn number(value: &Val<'_>) -> std::result::Result<i64, EvalError> {
    match value {
        Val::Int(int) => Ok(*int),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn out_of_range(index: i64) -> EvalError {
    EvalError::new(format!("index out of range: {index}"))
}

pub(super) fn contains<'a>(args: &[Val<'a>]) -> Result<'a> {
    Ok(Val::Bool(text(&args[0])?.contains(text(&args[1])?)))
}

pub(super) fn starts_with<'a>(args: &[Val<'a>]) -> Result<'a> {
    Ok(Val::Bool(text(&args[0])?.starts_with(text(&args[1])?)))
}

pub(super) fn ends_with<'a>(args: &[Val<'a>]) -> Result<'a> {
    Ok(Val::Bool(text(&args[0])?.ends_with(text(&args[1])?)))
}

fn pattern(value: &Val<'_>) -> std::result::Result<regex::Regex, EvalError> {
    regexp::compile(text(value)?).map_err(EvalError::new)
}

pub(super) fn matches<'a>(args: &[Val<'a>]) -> Result<'a> {
    Ok(Val::Bool(pattern(&args[1])?.is_match(text(&args[0])?)))
}

pub(super) fn find<'a>(args: &[Val<'a>]) -> Result<'a> {
    let regex = pattern(&args[1])?;
    Ok(Val::text(regex.find(text(&args[0])?).map_or("", |found| found.as_str())))
}

pub(super) fn find_all<'a>(args: &[Val<'a>]) -> Result<'a> {
    let regex = pattern(&args[1])?;
    let limit = match args.get(2) {
        Some(limit) => usize::try_from(number(limit)?).unwrap_or(usize::MAX),
        None => usize::MAX,
    };
    let found = regex.find_iter(text(&args[0])?).take(limit).map(|m| Val::text(m.as_str())).collect();
    Ok(Val::list(found))
}

pub(super) fn char_at<'a>(args: &[Val<'a>]) -> Result<'a> {
    let (text, index) = (text(&args[0])?, number(&args[1])?);
    let length = text.chars().count();
    match usize::try_from(index) {
        Ok(place) if place <= length => {
            Ok(Val::text(text.chars().nth(place).map(String::from).unwrap_or_default()))
        }
        _ => Err(out_of_range(index)),
    }
}

pub(super) fn index_of<'a>(args: &[Val<'a>]) -> Result<'a> {
    let (text, part) = (text(&args[0])?, text(&args[1])?);
    let offset = args.get(2).map_or(Ok(0), number)?;
    if part.is_empty() {
        return Ok(Val::Int(offset));
    }
    let Ok(start) = usize::try_from(offset) else { return Err(out_of_range(offset)) };
    let chars: Vec<char> = text.chars().collect();
    let part: Vec<char> = part.chars().collect();
    let found = chars.windows(part.len()).enumerate().skip(start).find(|(_, window)| *window == part);
    Ok(found.map_or(Val::Int(-1), |(index, _)| count(index)))
}

pub(super) fn last_index_of<'a>(args: &[Val<'a>]) -> Result<'a> {
    let (text, part) = (text(&args[0])?, text(&args[1])?);
    let chars: Vec<char> = text.chars().collect();
    if part.is_empty() {
        return Ok(args.get(2).cloned().unwrap_or_else(|| count(chars.len())));
    }
    let limit = match args.get(2) {
        None => chars.len(),
        Some(offset) => {
            let offset = number(offset)?;
            let Ok(offset) = usize::try_from(offset) else { return Err(out_of_range(offset)) };
            if offset >= chars.len() {
                return Ok(Val::Int(-1));
            }
            offset
        }
    };
    let part: Vec<char> = part.chars().collect();
    let last = chars.windows(part.len()).take(limit.saturating_add(1)).rposition(|window| window == part);
    Ok(last.map_or(Val::Int(-1), count))
}

pub(super) fn lower_ascii<'a>(args: &[Val<'a>]) -> Result<'a> {
    Ok(Val::text(text(&args[0])?.to_ascii_lowercase()))
}

pub(super) fn upper_ascii<'a>(args: &[Val<'a>]) -> Result<'a> {
    Ok(Val::text(text(&args[0])?.to_ascii_uppercase()))
}

pub(super) fn trim<'a>(args: &[Val<'a>]) -> Result<'a> {
    Ok(Val::text(text(&args[0])?.trim()))
}

pub(super) fn replace<'a>(args: &[Val<'a>]) -> Result<'a> {
    let (subject, old, new) = (text(&args[0])?, text(&args[1])?, text(&args[2])?);
    let times = args.get(3).map_or(Ok(-1), number)?;
    Ok(Val::text(match usize::try_from(times) {
        Ok(times) => subject.replacen(old, new, times),
        Err(_) => subject.replace(old, new),
    }))
}

pub(super) fn split<'a>(args: &[Val<'a>]) -> Result<'a> {
    let (text, separator) = (text(&args[0])?, text(&args[1])?);
    let limit = args.get(2).map_or(Ok(-1), number)?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut parts: Vec<Val<'a>> = if limit == 0 {
        Vec::new()
    } else if separator.is_empty() {
        // An empty separator cuts between characters; the last part keeps what is left.
        let mut rest = text;
        let mut parts = Vec::new();
        while let Some(c) = rest.chars().next() {
            if parts.len() + 1 == limit {
                break;
            }
            parts.push(Val::text(c));
            rest = &rest[c.len_utf8()..];
        }
        if !rest.is_empty() {
            parts.push(Val::text(rest));
        }
        parts
    } else {
        text.splitn(limit, separator).map(Val::text).collect()
    };
    parts.shrink_to_fit();
    Ok(Val::list(parts))
}

pub(super) fn substring<'a>(args: &[Val<'a>]) -> Result<'a> {
    let subject = text(&args[0])?;
    let length = i64::try_from(subject.chars().count()).unwrap_or(i64::MAX);
    let start = number(&args[1])?;
    let end = args.get(2).map_or(Ok(length), number)?;
    if args.len() == 3 && start > end {
        return Err(EvalError::new(format!("invalid substring range. start: {start}, end: {end}")));
    }
    for index in [start, end] {
        if !(0..=length).contains(&index) {
            return Err(out_of_range(index));
        }
    }
    let skip = usize::try_from(start).unwrap_or(0);
    let take = usize::try_from(end - start).unwrap_or(0);
    Ok(Val::text(subject.chars().skip(skip).take(take).collect::<String>()))
}

pub(super) fn join<'a>(args: &[Val<'a>]) -> Result<'a> {
    let Val::List(list) = &args[0] else { return Err(EvalError::no_such_overload()) };
    let separator = args.get(1).map_or(Ok(""), text)?;
    let mut parts = Vec::with_capacity(list.len());
    for item in list.iter() {
        let item = item?;
        match &item {
            Val::Text(text) => parts.push(text.clone().into_owned()),
            other => return Err(EvalError::new(format!("join: invalid input: {}", other.shown()))),
        }
    }
    Ok(Val::text(parts.join(separator)))
}

pub(super) fn quote<'a>(args: &[Val<'a>]) -> Result<'a> {
    let mut out = String::from("\"");
    for c in text(&args[0])?.chars() {
        match c {
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out.push('"');
    Ok(Val::text(out))
}
