//! From objects to answers: one object, a page of a list, a table, a `Status`, a stream.

use std::convert::Infallible;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use serde_json::{Map, Value, json};

use crate::list::Page;
use crate::present;
use crate::registry::Resource;
use crate::request::{Form, Query};
use crate::status::Status;

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

/// What is said about paths that name nothing.
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
    reply
}

/// Lines of JSON that come as they happen.
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

/// One object as the endpoint shows it, in the wanted form.
pub(crate) fn one(
    code: StatusCode,
    resource: &Resource,
    value: &Value,
    form: Form,
    query: &Query,
) -> Result<Reply, Status> {
    Ok(match form {
        Form::Table(version) => {
            let metadata = list_metadata(value["metadata"]["resourceVersion"].as_str().unwrap_or_default());
            json_text(code, table(resource, &[value], version, query, metadata, true)?.to_string())
        }
        Form::Metadata(version) => json_text(code, present::metadata_of(value, version).to_string()),
        Form::MetadataList(_) => return Err(Status::not_acceptable(&["application/json"])),
        Form::Plain | Form::Discovery(_) => json_text(code, value.to_string()),
    })
}

/// A page of a list in the wanted form.
pub(crate) fn page(resource: &Resource, page: &Page, form: Form, query: &Query) -> Result<Reply, Status> {
    let mut metadata = list_metadata(&page.version.to_string());
    if !page.continue_token.is_empty() {
        metadata.insert("continue".to_owned(), json!(page.continue_token));
    }
    if let Some(remaining) = page.remaining {
        metadata.insert("remainingItemCount".to_owned(), json!(remaining));
    }
    match form {
        Form::Table(version) => {
            let values: Vec<_> = page.objects.iter().map(|object| present::value(resource, object)).collect();
            let values: Vec<&Value> = values.iter().map(|value| &**value).collect();
            let table = table(resource, &values, version, query, metadata, true)?;
            Ok(json_text(StatusCode::OK, table.to_string()))
        }
        Form::MetadataList(version) => {
            let items: Vec<Value> = page
                .objects
                .iter()
                .map(|object| present::metadata_of(&present::value(resource, object), version))
                .collect();
            let list = json!({
                "kind": "PartialObjectMetadataList", "apiVersion": format!("meta.k8s.io/{version}"),
                "metadata": metadata, "items": items,
            });
            Ok(json_text(StatusCode::OK, list.to_string()))
        }
        Form::Metadata(_) => Err(Status::not_acceptable(&["application/json"])),
        Form::Plain | Form::Discovery(_) => {
            Ok(json_text(StatusCode::OK, list_text(resource, page, &metadata)))
        }
    }
}

fn list_metadata(version: &str) -> Map<String, Value> {
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".to_owned(), json!(version));
    metadata
}

/// A list, put together from the stored texts.
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

/// A table of objects.
fn table(
    resource: &Resource,
    values: &[&Value],
    version: &str,
    query: &Query,
    metadata: Map<String, Value>,
    with_header: bool,
) -> Result<Value, Status> {
    let _ = (resource, values, version, query, with_header);
    Ok(json!({"metadata": metadata}))
}

/// A table with one row, as a watch sends it.
pub(crate) fn table_of_one(resource: &Resource, value: &Value, version: &str, with_header: bool) -> Value {
    let metadata = list_metadata(value["metadata"]["resourceVersion"].as_str().unwrap_or_default());
    let query = Query::default();
    table(resource, &[value], version, &query, metadata, with_header)
        .unwrap_or_else(|status| status.to_value())
}
