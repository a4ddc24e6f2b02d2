//! From objects to answers: one object, a page of a list, a table, a `Status`, a stream.

use std::convert::Infallible;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::list::Page;
use crate::present;
use crate::registry::Resource;
use crate::request::{Form, Query};
use crate::status::{Status, quote};
use crate::table::{Include, TableOptions, table};

/// The body of an answer: one piece, or a stream of watch events.
pub type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;

/// An answer.
pub(crate) type Reply = Response<ResponseBody>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// An answer of JSON text.
pub(crate) fn json_text(code: StatusCode, text: impl Into<Bytes>) -> Reply {
    reply(code, JSON, text.into())
}

/// An answer of plain text.
pub(crate) fn plain_text(code: StatusCode, text: &'static str) -> Reply {
    reply(code, TEXT, Bytes::from_static(text.as_bytes()))
}

/// The answer for paths that name nothing.
pub(crate) fn no_such_page() -> Reply {
    plain_text(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// A refusal.
pub(crate) fn refusal(status: &Status) -> Reply {
    let mut reply = json_text(status.code, status.to_value().to_string());
    let retry = status.details.as_ref().and_then(|details| details.get("retryAfterSeconds"));
    if let Some(seconds) = retry.and_then(Value::as_u64) {
        reply.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    warn(&mut reply, &status.warnings);
    reply
}

/// Lines of JSON, sent as they happen.
pub(crate) fn stream(lines: impl Stream<Item = Bytes> + Send + 'static) -> Reply {
    let body = StreamBody::new(lines.map(|line| Ok(Frame::data(line)))).boxed_unsync();
    let mut reply = Response::new(body);
    reply.headers_mut().insert(header::CONTENT_TYPE, JSON);
    reply
}

fn reply(code: StatusCode, kind: HeaderValue, body: Bytes) -> Reply {
    let mut reply = Response::new(Full::new(body).boxed_unsync());
    *reply.status_mut() = code;
    reply.headers_mut().insert(header::CONTENT_TYPE, kind);
    reply
}

/// Adds `Warning` headers.
pub(crate) fn warn(reply: &mut Reply, warnings: &[String]) {
    for warning in warnings {
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            reply.headers_mut().append(header::WARNING, value);
        }
    }
}

/// The form, and the time, in which objects of a resource are shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    /// Their resource.
    pub(crate) resource: &'a Resource,
    /// The form.
    pub(crate) form: Form,
    /// How much of each object a table contains.
    pub(crate) include: Include,
    /// The present time, for ages.
    pub(crate) now: Timestamp,
}

impl<'a> View<'a> {
    /// The view that a request asks for.
    pub(crate) fn new(
        resource: &'a Resource,
        form: Form,
        query: &Query,
        now: Timestamp,
    ) -> Result<Self, Status> {
        let wanted = query.text("includeObject");
        let include = match (form, Include::parse(wanted)) {
            (Form::Table, None) => {
                return Err(Status::bad_request(format!(
                    "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', 'Object', 'None', or empty",
                    quote(wanted)
                )));
            }
            (_, include) => include.unwrap_or_default(),
        };
        Ok(Self { resource, form, include, now })
    }

    /// One object in the requested form.
    pub(crate) fn one(&self, code: StatusCode, value: &Value) -> Result<Reply, Status> {
        Ok(match self.form {
            Form::Table => json_text(code, self.table_of_one(value, true).to_string()),
            Form::Metadata => json_text(code, present::metadata_of(value).to_string()),
            Form::MetadataList => return Err(Status::not_acceptable(&["application/json"])),
            Form::Plain => json_text(code, value.to_string()),
        })
    }

    /// A page of a list in the requested form.
    pub(crate) fn page(&self, page: &Page) -> Result<Reply, Status> {
        let resource = self.resource;
        let mut metadata = list_metadata(&page.version.to_string());
        // Lists of custom resources have the field even without a next page.
        let always = resource.custom().is_some() && self.form == Form::Plain;
        if always || !page.continue_token.is_empty() {
            metadata.insert("continue".to_owned(), json!(page.continue_token));
        }
        if let Some(remaining) = page.remaining {
            metadata.insert("remainingItemCount".to_owned(), json!(remaining));
        }
        let values = || page.objects.iter().map(|object| present::value(resource, object));
        match self.form {
            Form::Table => {
                let values: Vec<_> = values().collect();
                let values: Vec<&Value> = values.iter().map(|value| &**value).collect();
                let table = self.table(&values, &metadata, true);
                Ok(json_text(StatusCode::OK, table.to_string()))
            }
            Form::MetadataList => {
                let items: Vec<Value> = values().map(|value| present::metadata_of(&value)).collect();
                let list = json!({
                    "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                    "metadata": metadata, "items": items,
                });
                Ok(json_text(StatusCode::OK, list.to_string()))
            }
            Form::Metadata => Err(Status::not_acceptable(&["application/json"])),
            Form::Plain => Ok(json_text(StatusCode::OK, list_text(resource, page, &metadata))),
        }
    }

    /// A table with one row.
    pub(crate) fn table_of_one(&self, value: &Value, header: bool) -> Value {
        let metadata = list_metadata(value["metadata"]["resourceVersion"].as_str().unwrap_or_default());
        self.table(&[value], &metadata, header)
    }

    fn table(&self, values: &[&Value], metadata: &Map<String, Value>, header: bool) -> Value {
        let options = TableOptions { include: self.include, header, now: self.now };
        table(self.resource, values, metadata, options)
    }
}

fn list_metadata(version: &str) -> Map<String, Value> {
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".to_owned(), json!(version));
    metadata
}

/// A list, assembled from the stored texts.
fn list_text(resource: &Resource, page: &Page, metadata: &Map<String, Value>) -> Vec<u8> {
    let size: usize = page.objects.iter().map(|object| object.json.len() + 1).sum();
    let mut text = Vec::with_capacity(size + 256);
    text.extend_from_slice(
        format!(
            "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{},\"items\":[",
            json!(resource.list_kind),
            json!(resource.api_version),
            Value::Object(metadata.clone())
        )
        .as_bytes(),
    );
    for (index, object) in page.objects.iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        present::write_item(resource, object, &mut text);
    }
    text.extend_from_slice(b"]}");
    text
}
