//! JSON as kube-apiserver reads it: whole numbers stay integers.

use serde_json::{Number, Value};

/// Reads a document; the error says what is wrong with its syntax.
pub(crate) fn read(bytes: &[u8]) -> Result<Value, String> {
    let mut value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    settle_numbers(&mut value);
    Ok(value)
}

/// A number as Go writes it: 1.0 is 1.
fn whole(number: f64) -> Option<Number> {
    // Up to here every whole number has its own float.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() <= EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "whole, and small enough to be exact")]
        return Some(Number::from(number as i64));
    }
    Number::from_f64(number)
}

/// Turns whole floats into integers.
pub(crate) fn settle_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(settled) = number.as_f64().and_then(whole) {
                *number = settled;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(settle_numbers),
        Value::Object(fields) => fields.values_mut().for_each(settle_numbers),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whole_numbers_are_whole_and_others_stay() {
        let value = read(b"[1.0, 1.5, 1e3, 18446744073709551615, 1e300]").unwrap();
        assert_eq!(value, json!([1, 1.5, 1000, 18_446_744_073_709_551_615_u64, 1e300]));
        assert!(read(b"{").unwrap_err().contains("EOF"));
    }
}
