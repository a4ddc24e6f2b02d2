//! One reason why an object was refused, in the words of kube-apiserver's `details.causes`.
//!
//! This module has the wording that all validators share: the prefix for each reason, and when and how the
//! value is shown. Validators only say what is wrong.

use serde_json::Value;

use super::path::Path;

/// One entry of `details.causes` of a `Status` with reason `Invalid`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    /// Machine-readable reason, for example `FieldValueInvalid`.
    pub(crate) reason: String,
    /// Path of the field in the object, for example `spec.subnets[0].ipv4`.
    pub(crate) field: String,
    /// Sentence for people, without the field.
    pub(crate) message: String,
}

impl Cause {
    /// A malformed value, shown as JSON prints it.
    pub(crate) fn invalid(path: &Path<'_>, value: &Value, detail: &str) -> Self {
        Self::new("FieldValueInvalid", path, &format!("Invalid value: {value}"), detail)
    }

    /// A malformed value that the message leaves out, as the real server does for objects and arrays.
    pub(crate) fn invalid_unshown(path: &Path<'_>, detail: &str) -> Self {
        Self::new("FieldValueInvalid", path, "Invalid value", detail)
    }

    /// A malformed value that is shown as given.
    pub(crate) fn invalid_shown(path: &Path<'_>, shown: &str, detail: &str) -> Self {
        Self::new("FieldValueInvalid", path, &format!("Invalid value: {shown}"), detail)
    }

    /// A malformed text value.
    pub(crate) fn invalid_text(path: &Path<'_>, value: &str, detail: &str) -> Self {
        Self::new("FieldValueInvalid", path, &format!("Invalid value: {}", Value::from(value)), detail)
    }

    /// A value of the wrong type; rules are not evaluated on such an object.
    pub(crate) fn type_invalid(path: &Path<'_>, value: &str, detail: &str) -> Self {
        Self::new("FieldValueTypeInvalid", path, &format!("Invalid value: {}", Value::from(value)), detail)
    }

    /// A missing required value.
    pub(crate) fn required(path: &Path<'_>, detail: &str) -> Self {
        Self::new("FieldValueRequired", path, "Required value", detail)
    }

    /// A value outside an enumeration.
    pub(crate) fn not_supported(path: &Path<'_>, value: &Value, supported: &[String]) -> Self {
        let detail = if supported.is_empty() {
            String::new()
        } else {
            let quoted: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
            format!("supported values: {}", quoted.join(", "))
        };
        let head = format!("Unsupported value: {value}");
        Self::new("FieldValueNotSupported", path, &head, &detail)
    }

    /// A value that may not be set here.
    pub(crate) fn forbidden(path: &Path<'_>, detail: &str) -> Self {
        Self::new("FieldValueForbidden", path, "Forbidden", detail)
    }

    /// A value that occurs twice.
    pub(crate) fn duplicate(path: &Path<'_>, value: &Value) -> Self {
        Self::new("FieldValueDuplicate", path, &format!("Duplicate value: {value}"), "")
    }

    /// A value that occurs twice and that the message leaves out.
    pub(crate) fn duplicate_unshown(path: &Path<'_>) -> Self {
        Self::new("FieldValueDuplicate", path, "Duplicate value", "")
    }

    /// A text with too many characters.
    pub(crate) fn too_long(path: &Path<'_>, max: usize) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        Self::new("FieldValueTooLong", path, "Too long", &format!("may not be more than {max} {unit}"))
    }

    /// A list or an object with too many entries.
    pub(crate) fn too_many(path: &Path<'_>, actual: usize, max: usize) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        let head = format!("Too many: {actual}");
        Self::new("FieldValueTooMany", path, &head, &format!("must have at most {max} {unit}"))
    }

    /// Whether validation rules are skipped because of this cause.
    pub(crate) fn blocks_rules(&self) -> bool {
        matches!(
            self.reason.as_str(),
            "FieldValueNotSupported"
                | "FieldValueRequired"
                | "FieldValueTooLong"
                | "FieldValueTooMany"
                | "FieldValueTypeInvalid"
        )
    }

    fn new(reason: &str, path: &Path<'_>, head: &str, detail: &str) -> Self {
        let message = if detail.is_empty() { head.to_owned() } else { format!("{head}: {detail}") };
        Self { reason: reason.to_owned(), field: path.to_string(), message }
    }
}

/// The part of a `Status` message that lists the causes: one bare, several in brackets, none twice.
pub(crate) fn summary(causes: &[Cause]) -> String {
    let mut lines: Vec<String> = Vec::with_capacity(causes.len());
    for cause in causes {
        let line = format!("{}: {}", cause.field, cause.message);
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    match lines.as_slice() {
        [one] => one.clone(),
        _ => format!("[{}]", lines.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn causes_name_what_is_wrong_with_which_value() {
        let root = Path::root();
        let size = root.child("size");
        assert_eq!(Cause::invalid(&size, &json!(-1), "too small").message, "Invalid value: -1: too small");
        assert_eq!(Cause::required(&size, "").message, "Required value");
        assert_eq!(
            Cause::not_supported(&size, &json!("c"), &["a".into(), "b".into()]).message,
            "Unsupported value: \"c\": supported values: \"a\", \"b\""
        );
        assert_eq!(Cause::too_long(&size, 1).message, "Too long: may not be more than 1 byte");
        assert_eq!(Cause::too_many(&size, 3, 2).message, "Too many: 3: must have at most 2 items");
    }

    #[test]
    fn the_summary_drops_repetitions_and_brackets_several() {
        let root = Path::root();
        let one = Cause::required(&root, "");
        assert_eq!(summary(std::slice::from_ref(&one)), "<nil>: Required value");
        assert_eq!(summary(&[one.clone(), one.clone()]), "<nil>: Required value");
        let two = Cause::forbidden(&root, "no");
        assert_eq!(summary(&[one, two]), "[<nil>: Required value, <nil>: Forbidden: no]");
    }
}
