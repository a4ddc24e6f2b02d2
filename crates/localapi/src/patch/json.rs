//! JSON patch: add, remove, replace, move, copy and test, with the real server's reading of RFC 6902.
//!
//! Two of its habits differ from the RFC and are kept: `replace` sets a field that is not there, and negative
//! indices count from the end.

use serde_json::Value;

use super::PatchError;

const MAX_OPERATIONS: usize = 10_000;

/// Applies all operations, or none.
pub(crate) fn json_patch(target: &mut Value, patch: &Value) -> Result<(), PatchError> {
    let Value::Array(operations) = patch else {
        return Err(malformed("json: cannot unmarshal the patch into a list of operations"));
    };
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    let mut copy = target.clone();
    for operation in operations {
        let Value::Object(fields) = operation else {
            return Err(malformed("json: cannot unmarshal an operation that is not an object"));
        };
        let text = |name: &str| fields.get(name).and_then(Value::as_str);
        let path = || text("path").ok_or_else(|| unfit("operation missing path field: missing value"));
        let from = || text("from").ok_or_else(|| unfit("operation, missing from field: missing value"));
        let value = || fields.get("value").cloned().unwrap_or(Value::Null);
        match text("op").unwrap_or_default() {
            "add" => add(&mut copy, path()?, value())?,
            "remove" => drop(remove(&mut copy, path()?)?),
            "replace" => replace(&mut copy, path()?, value())?,
            "move" => {
                let moved = remove(&mut copy, from()?)?;
                add(&mut copy, path()?, moved)?;
            }
            "copy" => {
                let copied = find(&copy, from()?)?.cloned().unwrap_or(Value::Null);
                add(&mut copy, path()?, copied)?;
            }
            "test" => test(&copy, path()?, &value())?,
            other => return Err(unfit(&format!("Unexpected kind: {other}"))),
        }
    }
    *target = copy;
    Ok(())
}

fn add(target: &mut Value, path: &str, value: Value) -> Result<(), PatchError> {
    let (holder, key) = holder_mut(target, path)?;
    match holder {
        Value::Object(fields) => {
            fields.insert(key, value);
        }
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let index = index(&key, items.len() + 1)?;
            items.insert(index, value);
        }
        _ => return Err(missing(path)),
    }
    Ok(())
}

fn remove(target: &mut Value, path: &str) -> Result<Value, PatchError> {
    let (holder, key) = holder_mut(target, path)?;
    match holder {
        Value::Object(fields) => fields
            .remove(&key)
            .ok_or_else(|| unfit(&format!("Unable to remove nonexistent key: {key}: missing value"))),
        Value::Array(items) => {
            let index = index(&key, items.len())?;
            Ok(items.remove(index))
        }
        _ => Err(missing(path)),
    }
}

fn replace(target: &mut Value, path: &str, value: Value) -> Result<(), PatchError> {
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return Err(unfit("replace operation value must be object or array"));
        }
        *target = value;
        return Ok(());
    }
    let (holder, key) = holder_mut(target, path)?;
    match holder {
        Value::Object(fields) => {
            fields.insert(key, value);
        }
        Value::Array(items) => {
            let index = index(&key, items.len())?;
            items[index] = value;
        }
        _ => return Err(missing(path)),
    }
    Ok(())
}

fn test(target: &Value, path: &str, value: &Value) -> Result<(), PatchError> {
    let found = if path.is_empty() { Some(target) } else { find(target, path)? };
    if found.unwrap_or(&Value::Null) == value {
        Ok(())
    } else {
        Err(unfit(&format!("testing value {path} failed: test failed")))
    }
}

/// The value at a path, `None` when an existing object lacks the last key.
fn find<'a>(target: &'a Value, path: &str) -> Result<Option<&'a Value>, PatchError> {
    let mut steps = steps(path)?;
    let Some(key) = steps.pop() else { return Err(missing(path)) };
    let mut holder = target;
    for step in steps {
        holder = match holder {
            Value::Object(fields) => fields.get(&step),
            Value::Array(items) => items.get(index(&step, items.len())?),
            _ => None,
        }
        .ok_or_else(|| missing(path))?;
    }
    match holder {
        Value::Object(fields) => Ok(fields.get(&key)),
        Value::Array(items) => Ok(items.get(index(&key, items.len())?)),
        _ => Err(missing(path)),
    }
}

fn holder_mut<'a>(target: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), PatchError> {
    let mut steps = steps(path)?;
    let Some(key) = steps.pop() else { return Err(missing(path)) };
    let mut holder = target;
    for step in steps {
        holder = match holder {
            Value::Object(fields) => fields.get_mut(&step),
            Value::Array(items) => {
                let index = index(&step, items.len())?;
                items.get_mut(index)
            }
            _ => None,
        }
        .ok_or_else(|| missing(path))?;
    }
    Ok((holder, key))
}

fn steps(path: &str) -> Result<Vec<String>, PatchError> {
    let (_, rest) = path.split_once('/').ok_or_else(|| missing(path))?;
    Ok(rest.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect())
}

fn index(key: &str, len: usize) -> Result<usize, PatchError> {
    let fail = || unfit(&format!("Unable to access invalid index: {key}: invalid index referenced"));
    let number: i64 = key.parse().map_err(|_| fail())?;
    let len = i64::try_from(len).map_err(|_| fail())?;
    let counted = if number < 0 { number + len } else { number };
    if (0..len).contains(&counted) { usize::try_from(counted).map_err(|_| fail()) } else { Err(fail()) }
}

fn malformed(message: &str) -> PatchError {
    PatchError::Malformed(message.to_owned())
}

fn unfit(message: &str) -> PatchError {
    PatchError::Unfit(message.to_owned())
}

fn missing(path: &str) -> PatchError {
    unfit(&format!("operation does not apply: doc is missing path: {path}: missing value"))
}
