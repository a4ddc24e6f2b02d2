//! Reads objects field by field; what was not read at the end is refused.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;

use serde_json::Value;

use crate::Refusal;

/// The fields of an object that are not read yet, and where it stands.
pub(super) struct Fields<'v> {
    place: String,
    left: BTreeMap<&'v str, &'v Value>,
    known: Vec<&'static str>,
}

/// The fields of the object at this place.
pub(super) fn root<'v>(place: &str, value: &'v Value) -> Result<Fields<'v>, Refusal> {
    match value {
        Value::Object(map) => {
            let left = map.iter().map(|(key, value)| (key.as_str(), value)).collect();
            Ok(Fields { place: place.to_owned(), left, known: Vec::new() })
        }
        other => Err(Refusal::new(place, format!("{other} is no object"), "is an object")),
    }
}

impl<'v> Fields<'v> {
    /// A refusal of a field with its value.
    pub(super) fn refuse(&self, key: &str, value: &(impl Display + ?Sized), accepted: &str) -> Refusal {
        Refusal::new(self.place_of(key), format!("{value} is not understood"), accepted)
    }

    /// A refusal because a field is missing.
    pub(super) fn missing(&self, key: &str, accepted: &str) -> Refusal {
        Refusal::new(self.place_of(key), "it is missing", accepted)
    }

    fn place_of(&self, key: &str) -> String {
        format!("{}.{key}", self.place)
    }

    fn take(&mut self, key: &'static str) -> Option<&'v Value> {
        self.known.push(key);
        // Replacing by null removes a field.
        self.left.remove(key).filter(|value| !value.is_null())
    }

    /// A text.
    pub(super) fn take_text(&mut self, key: &'static str) -> Result<Option<String>, Refusal> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(self.refuse(key, other, "is a text")),
        }
    }

    /// A truth value.
    pub(super) fn take_truth(&mut self, key: &'static str) -> Result<Option<bool>, Refusal> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let text = value.as_str().unwrap_or_default();
        match (value, text) {
            (Value::Bool(truth), _) => Ok(Some(*truth)),
            (_, "true" | "yes" | "on" | "1") => Ok(Some(true)),
            (_, "false" | "no" | "off" | "0") => Ok(Some(false)),
            (other, _) => Err(self.refuse(key, other, "is true or false")),
        }
    }

    /// A number of a range.
    pub(super) fn take_number(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u32>,
    ) -> Result<Option<u32>, Refusal> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let number = value.as_u64().or_else(|| value.as_str().and_then(|text| text.trim().parse().ok()));
        let number = number.and_then(|number| u32::try_from(number).ok()).filter(|it| range.contains(it));
        let accepted = || format!("is a number from {} to {}", range.start(), range.end());
        number.map(Some).ok_or_else(|| self.refuse(key, value, &accepted()))
    }

    /// An object.
    pub(super) fn take_object(&mut self, key: &'static str) -> Result<Option<Fields<'v>>, Refusal> {
        self.take(key).map(|value| root(&self.place_of(key), value)).transpose()
    }

    /// A list of objects.
    pub(super) fn take_list(&mut self, key: &'static str) -> Result<Option<Vec<Fields<'v>>>, Refusal> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Array(items)) => {
                let place = self.place_of(key);
                let all = items.iter().enumerate();
                all.map(|(number, item)| root(&format!("{place}[{number}]"), item))
                    .collect::<Result<_, _>>()
                    .map(Some)
            }
            Some(other) => Err(self.refuse(key, other, "is a list")),
        }
    }

    /// A field that is missing or has this value.
    pub(super) fn expect(&mut self, key: &'static str, only: &str) -> Result<(), Refusal> {
        match self.take_text(key)? {
            Some(text) if text != only => Err(self.refuse(key, &text, &format!("is {only}"))),
            _ => Ok(()),
        }
    }

    /// Refuses what was not read.
    pub(super) fn end(&self) -> Result<(), Refusal> {
        match self.left.first_key_value() {
            None => Ok(()),
            Some((key, value)) => Err(Refusal::new(
                self.place_of(key),
                format!("{value} is not understood without NetworkManager"),
                format!("are {}", self.known.join(", ")),
            )),
        }
    }
}
