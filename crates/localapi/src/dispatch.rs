//! From a request to an answer.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use serde_json::{Value, json};

use crate::core::Core;
use crate::decode::{self, Strictness};
use crate::list::{ListOptions, Selection, list, parse_version, uncaught_version};
use crate::patch::Patch;
use crate::registry::{Registry, Resource};
use crate::request::{Form, Query, ResourcePath, Target, Verb, content_type};
use crate::respond::{self, Reply, View};
use crate::scale::{ScaleChange, scale_of};
use crate::status::Status;
use crate::store::Key;
use crate::watch::{WatchOptions, watch};
use crate::write::{Change, DeleteOptions, Outcome, Part, WriteOptions, Writer, Written};
use crate::{discovery, openapi, present};

const JSON: &str = "application/json";

/// The longest body that is read.
const BODY_LIMIT: usize = 3 << 20;

/// A request with its body.
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Call {
    /// Reads a request.
    pub(crate) async fn read<B>(request: http::Request<B>) -> Result<Self, Status>
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let body = match Limited::new(body, BODY_LIMIT).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => {
                return Err(Status::too_large(BODY_LIMIT));
            }
            Err(error) => return Err(Status::bad_request(error.to_string())),
        };
        Ok(Self { method: parts.method, uri: parts.uri, headers: parts.headers, body })
    }
}

/// Answers a request.
pub(crate) async fn answer(core: &Arc<Core>, call: Call) -> Reply {
    let query = Query::parse(call.uri.query());
    let result = match Target::parse(call.uri.path()) {
        Target::Other(segments) => other(core, &call, &segments),
        Target::Resource(place) => {
            let registry = core.registry();
            match route(&registry, &call, &place, &query) {
                Ok(route) => {
                    let warning = route.resource.deprecation().map(str::to_owned);
                    let result = route.answer(core, &call, &place, &query).await;
                    let mut reply = result.unwrap_or_else(|status| respond::refusal(&status));
                    respond::warn(&mut reply, warning.as_slice());
                    return reply;
                }
                Err(reply) => return *reply,
            }
        }
    };
    result.unwrap_or_else(|status| respond::refusal(&status))
}

/// The operation of a request, and its resource.
struct Route {
    resource: Arc<Resource>,
    verb: Verb,
    sub: Sub,
}

/// The part of an object that a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sub {
    Object,
    Status,
    Scale,
    Binding,
}

/// Finds the resource and checks that it supports the verb there.
fn route(registry: &Registry, call: &Call, place: &ResourcePath, query: &Query) -> Result<Route, Box<Reply>> {
    let nowhere = || Box::new(nothing_at(registry, &place.group));
    let resource = registry.find(&place.group, &place.version, &place.resource).ok_or_else(nowhere)?;
    let custom = resource.custom().is_some();
    let verb = Verb::of(&call.method, place, query);
    if place.beyond || (!resource.namespaced && !place.namespace.is_empty()) {
        return Err(nowhere());
    }
    let everywhere = resource.namespaced && place.namespace.is_empty();
    if everywhere && !place.name.is_empty() {
        return Err(nowhere());
    }
    let sub = match place.subresource.as_str() {
        "" => Sub::Object,
        "binding" if resource.kind == "Pod" && !custom => Sub::Binding,
        "status" if resource.status => Sub::Status,
        "scale" if resource.scale.is_some() => Sub::Scale,
        _ if custom => {
            let status = Status::not_found(resource.grouped(), &place.name);
            return Err(Box::new(respond::refusal(&status)));
        }
        _ => return Err(nowhere()),
    };
    let refuse = |verb: Option<Verb>| {
        let status = match verb {
            Some(verb) if custom => Status::verb_not_supported(resource.grouped(), verb.as_str()),
            None if custom => Status::verb_not_supported(resource.grouped(), ""),
            _ => Status::method_not_allowed(),
        };
        Box::new(respond::refusal(&status))
    };
    let Some(verb) = verb else { return Err(refuse(None)) };
    let allowed = match (sub, verb) {
        (Sub::Object, Verb::Update | Verb::Patch) if custom && place.name.is_empty() && !everywhere => {
            let status = Status::bad_request("name must be provided");
            return Err(Box::new(respond::refusal(&status)));
        }
        (Sub::Object, Verb::Get | Verb::Update | Verb::Patch | Verb::Delete) => !place.name.is_empty(),
        (Sub::Object, Verb::Create) => (custom || place.name.is_empty()) && !everywhere,
        (Sub::Binding, verb) => verb == Verb::Create,
        (Sub::Object, Verb::DeleteCollection) => {
            !everywhere && resource.builtin().is_none_or(|builtin| !builtin.traits.no_delete_collection)
        }
        (Sub::Object, Verb::List | Verb::Watch)
        | (Sub::Status | Sub::Scale, Verb::Get | Verb::Update | Verb::Patch) => true,
        (Sub::Status | Sub::Scale, _) => false,
    };
    if !allowed {
        // A definition's namespaced resource has no such page outside a namespace.
        return Err(if custom && everywhere { nowhere() } else { refuse(Some(verb)) });
    }
    Ok(Route { resource: resource.clone(), verb, sub })
}

impl Route {
    async fn answer(
        self,
        core: &Arc<Core>,
        call: &Call,
        place: &ResourcePath,
        query: &Query,
    ) -> Result<Reply, Status> {
        match self.verb {
            Verb::Get => self.get(core, call, place, query),
            Verb::List => self.list(core, call, place, query),
            Verb::Watch => self.watch(core, call, place, query),
            _ => self.write(core, call, place, query).await,
        }
    }

    fn form(&self, call: &Call) -> Result<Form, Status> {
        Form::negotiate(&call.headers).map_err(|status| {
            if self.resource.custom().is_some() { status } else { Status::no_representation(&[JSON]) }
        })
    }

    fn get(&self, core: &Core, call: &Call, place: &ResourcePath, query: &Query) -> Result<Reply, Status> {
        let form = self.form(call)?;
        let wanted = query.text("resourceVersion");
        let version = parse_version(wanted).map_err(|_| uncaught_version(wanted))?;
        let current = core.store.version();
        if version > current {
            return Err(Status::too_new(version, current));
        }
        let key = Key::new(&place.namespace, &place.name);
        let object = core
            .store
            .get(&self.resource.collection, &key)
            .ok_or_else(|| Status::not_found(self.resource.grouped(), &place.name))?;
        if self.sub == Sub::Scale {
            let scale = scale_of(&self.resource, &present::value(&self.resource, &object))?;
            return Ok(respond::json_text(StatusCode::OK, scale.to_string()));
        }
        if form == Form::Plain {
            return Ok(respond::json_text(StatusCode::OK, present::text(&self.resource, &object)));
        }
        self.view(core, form, query)?.one(StatusCode::OK, &present::value(&self.resource, &object))
    }

    fn view(&self, core: &Core, form: Form, query: &Query) -> Result<View<'_>, Status> {
        View::new(&self.resource, form, query, core.moment())
    }

    fn list(&self, core: &Core, call: &Call, place: &ResourcePath, query: &Query) -> Result<Reply, Status> {
        let selection = Selection::parse(&self.resource, &place.namespace, query)?;
        let options = ListOptions::parse(query)?;
        let form = self.form(call)?;
        let page = list(&core.store, &self.resource.collection, &selection, &options)?;
        self.view(core, form, query)?.page(&page)
    }

    fn watch(self, core: &Core, call: &Call, place: &ResourcePath, query: &Query) -> Result<Reply, Status> {
        let selection = Selection::parse(&self.resource, &place.namespace, query)?;
        let options = WatchOptions::parse(query)?;
        let form = self.form(call)?;
        let include = self.view(core, form, query)?.include;
        Ok(respond::stream(watch(core, self.resource, selection, form, include, &options)))
    }

    async fn write(
        &self,
        core: &Arc<Core>,
        call: &Call,
        place: &ResourcePath,
        query: &Query,
    ) -> Result<Reply, Status> {
        let form = self.form(call)?;
        let kind_of_options = match self.verb {
            Verb::Create => "CreateOptions",
            Verb::Patch => "PatchOptions",
            _ => "UpdateOptions",
        };
        if matches!(self.verb, Verb::Delete | Verb::DeleteCollection) {
            return self.delete(core, call, place, query, form).await;
        }
        if self.sub == Sub::Binding {
            return self.bind(core, call, place, query).await;
        }
        let change = match self.verb {
            Verb::Create => None,
            Verb::Patch => {
                let patch = Patch::parse(&content_type(&call.headers), &call.body)?;
                Some(if self.sub == Sub::Scale {
                    Change::Scale(ScaleChange::Patch(patch))
                } else {
                    Change::Patch(patch)
                })
            }
            _ => {
                check_media(call)?;
                Some(if self.sub == Sub::Scale {
                    Change::Scale(ScaleChange::Replace(decode::parse("Scale", &call.body)?))
                } else {
                    Change::Replace(decode::decode(&self.resource, &call.body)?)
                })
            }
        };
        let options = WriteOptions::parse(query, kind_of_options)?;
        let writer = Writer { core, resource: &self.resource, options };
        let written = match change {
            None => {
                check_media(call)?;
                let shaped = decode::decode(&self.resource, &call.body)?;
                writer.create(&place.namespace, shaped).await?
            }
            Some(change) => {
                let part = if self.sub == Sub::Status { Part::Status } else { Part::Whole };
                writer.update(&place.namespace, &place.name, part, &change).await?
            }
        };
        self.written(&written, self.view(core, form, query)?)
    }

    /// Binds a pod to a node.
    async fn bind(
        &self,
        core: &Arc<Core>,
        call: &Call,
        place: &ResourcePath,
        query: &Query,
    ) -> Result<Reply, Status> {
        check_media(call)?;
        let binding = decode::parse("Binding", &call.body)?;
        let options = WriteOptions::parse(query, "CreateOptions")?;
        let writer = Writer { core, resource: &self.resource, options };
        writer.bind(&place.namespace, &place.name, &binding).await?;
        let done =
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
        Ok(respond::json_text(StatusCode::CREATED, done.to_string()))
    }

    async fn delete(
        &self,
        core: &Arc<Core>,
        call: &Call,
        place: &ResourcePath,
        query: &Query,
        form: Form,
    ) -> Result<Reply, Status> {
        let options = WriteOptions { dry_run: false, strictness: Strictness::Ignore };
        let writer = Writer { core, resource: &self.resource, options };
        if self.verb == Verb::DeleteCollection {
            let selection = Selection::parse(&self.resource, &place.namespace, query)?;
            let list_options = ListOptions::parse(query)?;
            let options = DeleteOptions::parse(query, &call.body)?;
            let page = writer.delete_collection(&selection, &list_options, &options).await?;
            return self.view(core, form, query)?.page(&page);
        }
        let options = DeleteOptions::parse(query, &call.body)?;
        let written = writer.delete(&place.namespace, &place.name, &options).await?;
        self.written(&written, self.view(core, form, query)?)
    }

    fn written(&self, written: &Written, view: View<'_>) -> Result<Reply, Status> {
        let resource = &self.resource;
        let mut reply = match &written.outcome {
            Outcome::Gone(status) => respond::json_text(written.code, status.to_string()),
            Outcome::Stored(object) if self.sub == Sub::Scale => {
                let scale = scale_of(resource, &present::value(resource, object))?;
                respond::json_text(written.code, scale.to_string())
            }
            Outcome::Stored(object) if view.form == Form::Plain => {
                respond::json_text(written.code, present::text(resource, object))
            }
            Outcome::Stored(object) => view.one(written.code, &present::value(resource, object))?,
            Outcome::Unstored(value) if self.sub == Sub::Scale => {
                respond::json_text(written.code, scale_of(resource, value)?.to_string())
            }
            Outcome::Unstored(value) => view.one(written.code, value)?,
        };
        respond::warn(&mut reply, &written.warnings);
        Ok(reply)
    }
}

/// Only JSON is accepted.
fn check_media(call: &Call) -> Result<(), Status> {
    if content_type(&call.headers) == JSON {
        return Ok(());
    }
    Err(Status::unsupported_media_type(&[JSON]))
}

/// Discovery, health, versions: everything that is not a resource.
fn other(core: &Core, call: &Call, segments: &[String]) -> Result<Reply, Status> {
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let registry = core.registry();
    // Definitions and the list of groups ignore the method.
    let any_method = match segments.as_slice() {
        ["apis"] => true,
        ["apis", group, ..] => !is_builtin(&registry, group),
        _ => false,
    };
    if !any_method && call.method != Method::GET && call.method != Method::HEAD {
        return Err(Status::method_not_allowed());
    }
    let ok = |document: Value| Ok(respond::json_text(StatusCode::OK, document.to_string()));
    let found = |group: &str, document: Option<Value>| match document {
        Some(document) => ok(document),
        None => Ok(nothing_at(&registry, group)),
    };
    match segments.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => Ok(respond::plain_text(StatusCode::OK, "ok")),
        ["version"] => ok(discovery::version()),
        ["api"] => ok(discovery::legacy()),
        ["apis"] => ok(discovery::groups(&registry)),
        ["api", version] => found("", discovery::resources(&registry, "", version)),
        ["apis", group] => found(group, discovery::group(&registry, group)),
        ["apis", group, version] => found(group, discovery::resources(&registry, group, version)),
        ["openapi", "v3"] => ok(openapi::index(&registry)),
        ["openapi", "v3", "api", version] => found("none", openapi::document(&registry, "", version)),
        ["openapi", "v3", "apis", group, version] => {
            found("none", openapi::document(&registry, group, version))
        }
        _ => Ok(respond::no_such_page()),
    }
}

/// Whether every cluster has the group.
fn is_builtin(registry: &Registry, group: &str) -> bool {
    registry.all().any(|resource| resource.group == group && resource.builtin().is_some())
}

/// The answer if a group has no such resource.
fn nothing_at(registry: &Registry, group: &str) -> Reply {
    if is_builtin(registry, group) {
        respond::refusal(&Status::no_such_resource())
    } else {
        respond::no_such_page()
    }
}
