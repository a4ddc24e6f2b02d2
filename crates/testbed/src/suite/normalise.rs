//! Turns recorded steps into a transcript. Values that the server chose become placeholders that keep identity (`uid-1` is the
//! same object everywhere) and order (`rv-2` was written after `rv-1`).
//!
//! The version of a list or bookmark is shown as that of the newest object seen that is not younger: other clients may have
//! written meanwhile, and that must not change the transcript.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::Scenario;
use super::document::{each_object, each_object_mut, map_strings, parse};
use super::recorder::{Answer, Call, Raw};
use super::transcript::{Events, Exchange, Note, Step, Transcript};

/// Longer bodies are shown by their length.
const LONGEST_SHOWN: usize = 8 * 1024;

/// The transcript of `steps`.
pub(super) fn transcript(scenario: Scenario, steps: Vec<Raw>) -> Transcript {
    let seen = Seen::in_steps(&steps);
    let steps = steps.into_iter().map(|step| seen.step(step)).collect();
    Transcript { area: scenario.area.to_owned(), scenario: scenario.name.to_owned(), steps, stopped: None }
}

/// The values that the server chose, as far as the steps show them.
#[derive(Default)]
struct Seen {
    /// Placeholders of UIDs, generated names and page tokens.
    replaced: BTreeMap<String, String>,
    /// Versions of objects.
    versions: BTreeSet<u64>,
    /// Versions of lists and bookmarks.
    moments: BTreeSet<u64>,
    /// Times that the scenario itself sent first.
    sent_times: BTreeSet<String>,
    /// Times that the server sent first.
    server_times: BTreeSet<String>,
    uids: usize,
    names: usize,
    tokens: usize,
}

impl Seen {
    fn in_steps(steps: &[Raw]) -> Self {
        let mut seen = Self::default();
        for step in steps {
            match step {
                Raw::Exchange { call, answer } => {
                    each_time(&parse(&call.body), &mut |time| {
                        if !seen.server_times.contains(time) {
                            seen.sent_times.insert(time.to_owned());
                        }
                    });
                    seen.look_at(&answer.body, false);
                }
                Raw::Events { events, .. } => {
                    for event in events {
                        seen.look_at(event, event["type"] == "BOOKMARK");
                    }
                }
                Raw::Note { value, .. } => seen.look_at(value, false),
            }
        }
        seen
    }

    fn look_at(&mut self, document: &Value, bookmark: bool) {
        each_time(document, &mut |time| {
            if !self.sent_times.contains(time) {
                self.server_times.insert(time.to_owned());
            }
        });
        each_object(document, &mut |object| {
            let is_list = object.contains_key("items") || object.contains_key("rows");
            if let Some(Value::Object(metadata)) = object.get("metadata") {
                self.look_at_metadata(metadata, is_list || bookmark);
            }
            if let Some(uid) = object.get("details").and_then(|details| details["uid"].as_str()) {
                self.uid(uid);
            }
        });
    }

    fn look_at_metadata(&mut self, metadata: &Map<String, Value>, of_many: bool) {
        let text = |key: &str| metadata.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        if let Some(uid) = text("uid") {
            self.uid(uid);
        }
        if let (Some(name), Some(base)) = (text("name"), text("generateName"))
            && name.len() > base.len()
            && name.starts_with(base)
            && !self.replaced.contains_key(name)
        {
            self.names += 1;
            self.replaced.insert(name.to_owned(), format!("{base}<generated-{}>", self.names));
        }
        if let Some(token) = text("continue")
            && !self.replaced.contains_key(token)
        {
            self.tokens += 1;
            self.replaced.insert(token.to_owned(), format!("continue-{}", self.tokens));
        }
        if let Some(version) = text("resourceVersion").and_then(|text| text.parse().ok()) {
            let set = if of_many { &mut self.moments } else { &mut self.versions };
            set.insert(version);
        }
    }

    fn uid(&mut self, uid: &str) {
        if !uid.is_empty() && !self.replaced.contains_key(uid) {
            self.uids += 1;
            self.replaced.insert(uid.to_owned(), format!("uid-{}", self.uids));
        }
    }

    fn step(&self, step: Raw) -> Step {
        match step {
            Raw::Exchange { call, answer } => Step::Exchange(self.exchange(&call, answer)),
            Raw::Events { watch, events, ended } => {
                let events = events.into_iter().map(|event| self.clean(event)).collect();
                Step::Events(Events { watch: self.path(&watch), events, ended })
            }
            Raw::Note { note, value } => Step::Note(Note { note, value: self.clean(value) }),
        }
    }

    fn exchange(&self, call: &Call, answer: Answer) -> Exchange {
        let usual = |(name, value): &&(&str, String)| {
            !matches!(*name, "accept" | "content-type") || value != "application/json"
        };
        let sent = if call.body.len() > LONGEST_SHOWN {
            Value::String(format!("<{} bytes>", call.body.len()))
        } else {
            self.clean(parse(&call.body))
        };
        Exchange {
            request: self.path(&call.title()),
            headers: call
                .headers
                .iter()
                .filter(usual)
                .map(|(name, value)| format!("{name}: {value}"))
                .collect(),
            sent,
            status: answer.status,
            content_type: answer.content_type,
            warnings: answer.warnings,
            answer: self.clean(answer.body),
        }
    }

    /// `document` with placeholders.
    fn clean(&self, mut document: Value) -> Value {
        each_object_mut(&mut document, &mut |object| {
            if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
                // Managed fields: bookkeeping of server-side apply, full of times.
                metadata.remove("managedFields");
            }
            if let Some(Value::String(version)) = object.get_mut("resourceVersion") {
                *version = self.version(version);
            }
            // An operation of a JSON patch that names a version.
            if object.get("path").is_some_and(|path| path == "/metadata/resourceVersion")
                && let Some(Value::String(version)) = object.get_mut("value")
            {
                *version = self.version(version);
            }
            if object.get("kind").is_some_and(|kind| kind == "Table") {
                hide_ages(object);
            }
            if let Some(Value::String(message)) = object.get_mut("message") {
                *message = self.message(message);
            }
        });
        map_strings(&mut document, &mut |text| self.replace(text));
        // Last, when the message and its causes have the same placeholders.
        each_object_mut(&mut document, &mut sort_causes);
        document
    }

    fn replace(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for time in &self.server_times {
            if text.contains(time.as_str()) {
                text = text.replace(time.as_str(), "<time>");
            }
        }
        for (own, placeholder) in &self.replaced {
            if text.contains(own.as_str()) {
                text = text.replace(own.as_str(), placeholder);
            }
        }
        text
    }

    /// A placeholder for a version that the server chose, by its order; other text is unchanged.
    fn version(&self, text: &str) -> String {
        match text.parse::<u64>() {
            Ok(version) if self.versions.contains(&version) || self.moments.contains(&version) => {
                format!("rv-{}", self.versions.range(..=version).count())
            }
            _ => text.to_owned(),
        }
    }

    fn path(&self, path: &str) -> String {
        const VERSION: &str = "resourceVersion=";
        let parts = path.split('&').map(|part| match part.split_once(VERSION) {
            Some((before, version)) => format!("{before}{VERSION}{}", self.version(version)),
            None => part.to_owned(),
        });
        self.replace(&parts.collect::<Vec<_>>().join("&"))
    }

    /// Versions in a message: numbers after one of the server's phrases.
    fn message(&self, message: &str) -> String {
        const PHRASES: [&str; 7] = [
            "ResourceVersion in precondition: ",
            "ResourceVersion in object meta: ",
            "ResourceVersion in the precondition (",
            "ResourceVersion in record (",
            "oo old resource version: ",
            "oo large resource version: ",
            "current: ",
        ];
        let mut text = without_objects(message);
        for phrase in PHRASES {
            let Some(start) = text.find(phrase).map(|at| at + phrase.len()) else { continue };
            let end =
                text[start..].find(|c: char| !c.is_ascii_digit()).map_or(text.len(), |length| start + length);
            let number = &text[start..end];
            let shown = match self.version(number) {
                same if same == number && phrase == "current: " => "<now>".to_owned(),
                shown => shown,
            };
            let mut tail = text[end..].to_owned();
            // "too old resource version: 5 (9)": the number in brackets is the oldest available.
            if phrase.starts_with("oo old")
                && let Some(inner) = tail.strip_prefix(" (").and_then(|tail| tail.split_once(')'))
            {
                tail = format!(" (<oldest>){}", inner.1);
            }
            text = format!("{}{shown}{tail}", &text[..start]);
        }
        text
    }
}

/// `message` without the objects that the real server quotes in map order.
fn without_objects(message: &str) -> String {
    const OPENING: &str = "Invalid value: \"{\\\"";
    let Some(start) = message.find(OPENING) else { return message.to_owned() };
    let quote = start + "Invalid value: ".len();
    let mut escaped = false;
    let end = message[quote + 1..].find(|c: char| {
        let closes = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        closes
    });
    match end.map(|length| quote + 1 + length + 1) {
        Some(end) => format!("{}\"<object>\"{}", &message[..quote], without_objects(&message[end..])),
        None => message.to_owned(),
    }
}

/// Sorts the causes of a refusal, also where the message repeats them: the real server reports some in map order.
fn sort_causes(status: &mut Map<String, Value>) {
    let Some(causes) = status.get_mut("details").and_then(|details| details.get_mut("causes")) else {
        return;
    };
    let Some(causes) = causes.as_array_mut() else { return };
    let text = |cause: &Value| {
        let part = |key: &str| cause[key].as_str().unwrap_or_default();
        if part("field").is_empty() {
            part("message").to_owned()
        } else {
            format!("{}: {}", part("field"), part("message"))
        }
    };
    let joined = |causes: &[Value]| {
        let mut texts: Vec<String> = Vec::new();
        for cause in causes.iter().map(text) {
            if !texts.contains(&cause) {
                texts.push(cause);
            }
        }
        format!("[{}]", texts.join(", "))
    };
    let before = joined(causes);
    causes.sort_by_key(text);
    let after = joined(causes);
    if let Some(Value::String(message)) = status.get_mut("message")
        && let Some(prefix) = message.strip_suffix(&before)
    {
        *message = format!("{prefix}{after}");
    }
}

/// Table cells with an age.
fn hide_ages(table: &mut Map<String, Value>) {
    let dates: Vec<usize> = table
        .get("columnDefinitions")
        .and_then(Value::as_array)
        .map(|columns| {
            let is_age = |column: &Value| column["type"] == "date" || column["name"] == "Age";
            columns.iter().enumerate().filter(|(_, column)| is_age(column)).map(|(index, _)| index).collect()
        })
        .unwrap_or_default();
    for row in table.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten() {
        for index in &dates {
            if let Some(cell) = row.get_mut("cells").and_then(|cells| cells.get_mut(*index))
                && cell.as_str().is_some_and(|text| text.ends_with('s') || text.ends_with('m'))
            {
                *cell = Value::String("<age>".to_owned());
            }
        }
    }
}

fn each_time(document: &Value, visit: &mut impl FnMut(&str)) {
    match document {
        Value::String(text) if is_time(text) => visit(text),
        Value::Array(items) => items.iter().for_each(|item| each_time(item, visit)),
        Value::Object(object) => object.values().for_each(|value| each_time(value, visit)),
        _ => {}
    }
}

/// Whether `text` is a time in Kubernetes' format, such as `2026-11-15T19:43:00Z`.
fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 20
        && bytes.len() <= 35
        && bytes.last() == Some(&b'Z')
        && bytes.iter().zip(b"dddd-dd-ddTdd:dd:dd").all(|(byte, shape)| match shape {
            b'd' => byte.is_ascii_digit(),
            _ => byte == shape,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(path: &str, body: Value) -> Raw {
        let call = Call::new("GET", path);
        let answer = Answer {
            request: call.title(),
            status: 200,
            content_type: "application/json".to_owned(),
            warnings: Vec::new(),
            body,
        };
        Raw::Exchange { call, answer }
    }

    fn answers(steps: Vec<Raw>) -> Vec<Value> {
        let scenario = Scenario { area: "a", name: "s", run: |_| Box::pin(async { Ok(()) }) };
        let steps = transcript(scenario, steps).steps;
        steps
            .into_iter()
            .map(|step| match step {
                Step::Exchange(exchange) => json!([exchange.request, exchange.answer]),
                other => json!(other),
            })
            .collect()
    }

    #[test]
    fn uids_keep_identity_wherever_they_are_named() {
        let shown = answers(vec![
            read("/x", json!({"metadata": {"uid": "u-b"}})),
            read("/y", json!({"metadata": {"uid": "u-a"}, "message": "UID in object meta: u-b"})),
        ]);
        assert_eq!(shown[0], json!(["GET /x", {"metadata": {"uid": "uid-1"}}]));
        assert_eq!(shown[1][1]["message"], "UID in object meta: uid-1");
        assert_eq!(shown[1][1]["metadata"]["uid"], "uid-2");
    }

    #[test]
    fn versions_become_ranks_and_a_list_shows_the_newest_object_before_it() {
        let shown = answers(vec![
            read("/x", json!({"metadata": {"resourceVersion": "70"}})),
            read("/x?resourceVersion=55&limit=2", json!({"metadata": {"resourceVersion": "55"}})),
            read("/list", json!({"items": [], "metadata": {"resourceVersion": "60"}})),
        ]);
        assert_eq!(shown[0][1]["metadata"]["resourceVersion"], "rv-2");
        assert_eq!(
            shown[1],
            json!(["GET /x?resourceVersion=rv-1&limit=2", {"metadata": {"resourceVersion": "rv-1"}}])
        );
        assert_eq!(shown[2][1]["metadata"]["resourceVersion"], "rv-1");
    }

    #[test]
    fn times_generated_names_and_field_owners_are_hidden() {
        let shown = answers(vec![read(
            "/x",
            json!({"metadata": {"generateName": "a-", "name": "a-x7k2p", "managedFields": [],
                "creationTimestamp": "2026-11-15T19:43:00Z"}}),
        )]);
        let expected =
            json!({"generateName": "a-", "name": "a-<generated-1>", "creationTimestamp": "<time>"});
        assert_eq!(shown[0][1]["metadata"], expected);
    }

    #[test]
    fn numbers_in_messages_are_versions_only_behind_a_phrase_for_one() {
        let shown = answers(vec![
            read("/x", json!({"metadata": {"resourceVersion": "5"}})),
            read("/y", json!({"message": "too old resource version: 5 (9)"})),
            read("/z", json!({"message": "spec.size: Invalid value: 5: must be less than 5"})),
        ]);
        assert_eq!(shown[1][1]["message"], "too old resource version: rv-1 (<oldest>)");
        assert_eq!(shown[2][1]["message"], "spec.size: Invalid value: 5: must be less than 5");
    }

    #[test]
    fn quoted_objects_are_hidden() {
        let message = r#"patch: Invalid value: "{\"a\":\"b \\\" c\"}": strict decoding error"#;
        assert_eq!(without_objects(message), r#"patch: Invalid value: "<object>": strict decoding error"#);
        assert_eq!(without_objects(r#"x: Invalid value: "text""#), r#"x: Invalid value: "text""#);
    }

    #[test]
    fn causes_are_put_in_order_also_in_the_message() {
        let status = |first: &str, second: &str| {
            json!({"message": format!("is invalid: [{first}: bad, {second}: bad]"),
                "details": {"causes": [{"field": first, "message": "bad"}, {"field": second, "message": "bad"}]}})
        };
        let shown = answers(vec![read("/x", status("b", "a")), read("/x", status("a", "b"))]);
        assert_eq!(shown[0], shown[1]);
        assert_eq!(shown[0][1]["message"], "is invalid: [a: bad, b: bad]");
    }

    #[test]
    fn ages_in_tables_are_hidden() {
        let table = json!({"kind": "Table", "columnDefinitions": [{"name": "Name", "type": "string"}, {"name": "Age", "type": "string"}],
            "rows": [{"cells": ["a", "3s"]}, {"cells": ["b", "<unknown>"]}]});
        let shown = answers(vec![read("/x", table)]);
        assert_eq!(shown[0][1]["rows"], json!([{"cells": ["a", "<age>"]}, {"cells": ["b", "<unknown>"]}]));
    }
}
