//! The objects that a request selects, and lists of them: limits, continue tokens, resource versions.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::registry::Resource;
use crate::request::Query;
use crate::schema::{Cause, Path};
use crate::selector::{FieldSelector, LabelSelector};
use crate::status::{Grouped, Status, quote};
use crate::store::{Listing, Object, Scope, Store, Unreachable};

/// What a list or a watch selects.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    /// All namespaces, or one.
    pub(crate) scope: Scope,
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selection {
    /// Reads the selectors of a request.
    pub(crate) fn parse(resource: &Resource, namespace: &str, query: &Query) -> Result<Self, Status> {
        let labels = LabelSelector::parse(query.text("labelSelector"))
            .map_err(|error| Status::bad_request(error.to_string()))?;
        let fields = FieldSelector::parse(query.text("fieldSelector"), &resource.fields)
            .map_err(|error| Status::bad_request(error.to_string()))?;
        Ok(Self { scope: Scope::of(namespace), labels, fields })
    }

    /// Whether an object is selected.
    pub(crate) fn matches(&self, object: &Object) -> bool {
        self.scope.contains(&object.key)
            && (self.labels.is_empty() || self.labels.matches(&object.value))
            && (self.fields.is_empty() || self.fields.matches(&object.value))
    }

    /// Whether the selectors select everything.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }
}

/// How fresh a list must be, and its page size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListOptions {
    limit: usize,
    continue_token: String,
    version: String,
    version_match: String,
}

impl ListOptions {
    /// Reads and checks the parameters of a list.
    pub(crate) fn parse(query: &Query) -> Result<Self, Status> {
        let limit = query.number("limit")?.unwrap_or(0);
        query.number("timeoutSeconds")?;
        let options = Self {
            limit: usize::try_from(limit).unwrap_or(0),
            continue_token: query.text("continue").to_owned(),
            version: query.text("resourceVersion").to_owned(),
            version_match: query.text("resourceVersionMatch").to_owned(),
        };
        let causes = options.problems(query);
        if causes.is_empty() { Ok(options) } else { Err(invalid_options(&causes)) }
    }

    fn problems(&self, query: &Query) -> Vec<Cause> {
        let mut causes = Vec::new();
        let path = Path::Text("resourceVersionMatch");
        let matching = self.version_match.as_str();
        if !matching.is_empty() {
            if self.version.is_empty() {
                let detail = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                causes.push(Cause::forbidden(&path, detail));
            }
            if !self.continue_token.is_empty() {
                let detail = "resourceVersionMatch is forbidden when continue is provided";
                causes.push(Cause::forbidden(&path, detail));
            }
            if matching != "Exact" && matching != "NotOlderThan" {
                let supported = ["Exact", "NotOlderThan", ""].map(str::to_owned);
                causes.push(Cause::not_supported(&path, &json!(matching), &supported));
            }
            if matching == "Exact" && self.version == "0" {
                let detail = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                causes.push(Cause::forbidden(&path, detail));
            }
        }
        if query.has("sendInitialEvents") {
            let detail = "sendInitialEvents is forbidden for list";
            causes.push(Cause::forbidden(&Path::Text("sendInitialEvents"), detail));
        }
        causes
    }
}

/// 422 about the parameters of a list or a watch.
pub(crate) fn invalid_options(causes: &[Cause]) -> Status {
    Status::invalid(Grouped { group: "meta.k8s.io", name: "ListOptions" }, "", causes)
}

/// One page of a list.
#[derive(Debug)]
pub(crate) struct Page {
    /// The objects, in key order.
    pub(crate) objects: Vec<Arc<Object>>,
    /// The resource version of the whole list.
    pub(crate) version: u64,
    /// The token for the next page; empty at the end.
    pub(crate) continue_token: String,
    /// How many follow, if known.
    pub(crate) remaining: Option<usize>,
}

/// Lists the selected objects.
pub(crate) fn list(
    store: &Store,
    collection: &str,
    selection: &Selection,
    options: &ListOptions,
) -> Result<Page, Status> {
    let scope = &selection.scope;
    let mut limit = options.limit;
    let listing = if options.continue_token.is_empty() {
        let version = parse_version(&options.version)?;
        let exact = options.version_match == "Exact"
            || (options.version_match.is_empty() && limit > 0 && version > 0);
        if exact {
            store.list_at(collection, scope, "", version).map_err(|error| match error {
                Unreachable::TooOld(_) => {
                    Status::expired("The resourceVersion for the provided list is too old.")
                }
                Unreachable::TooNew(current) => Status::too_new(version, current),
            })?
        } else {
            if options.version == "0" {
                // Any state is acceptable, and all of it is available: kube-apiserver's cache ignores the
                // limit, too.
                limit = 0;
            }
            let listing = store.list(collection, scope, "");
            if version > listing.version {
                return Err(Status::too_new(version, listing.version));
            }
            listing
        }
    } else {
        continued(store, collection, scope, options)?
    };
    Ok(page(listing, selection, limit))
}

fn continued(
    store: &Store,
    collection: &str,
    scope: &Scope,
    options: &ListOptions,
) -> Result<Listing, Status> {
    let token = Token::decode(&options.continue_token)?;
    if !options.version.is_empty() && options.version != "0" {
        return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
    }
    let Ok(version) = u64::try_from(token.rv) else { return Ok(store.list(collection, scope, &token.start)) };
    store.list_at(collection, scope, &token.start, version).map_err(|error| match error {
        Unreachable::TooOld(_) => {
            let mut status = Status::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
            );
            status.continue_token = Some(Token { rv: -1, ..token }.encode().into());
            status
        }
        Unreachable::TooNew(current) => Status::too_new(version, current),
    })
}

fn page(listing: Listing, selection: &Selection, limit: usize) -> Page {
    let Listing { objects, version } = listing;
    let total = objects.len();
    if limit == 0 || total <= limit {
        let objects = objects.into_iter().filter(|object| selection.matches(object)).collect();
        return Page { objects, version, continue_token: String::new(), remaining: None };
    }
    let mut chosen = Vec::with_capacity(limit);
    let mut seen = 0;
    for object in objects {
        seen += 1;
        if selection.matches(&object) {
            chosen.push(object);
        }
        if chosen.len() == limit {
            break;
        }
    }
    let mut page = Page { objects: chosen, version, continue_token: String::new(), remaining: None };
    if seen < total
        && let Some(last) = page.objects.last()
    {
        let start = format!("{}\0", selection.scope.relative(&last.key));
        let rv = i64::try_from(version).unwrap_or(i64::MAX);
        page.continue_token = Token { v: TOKEN_VERSION.to_owned(), rv, start }.encode();
        page.remaining = selection.is_everything().then(|| total - limit);
    }
    page
}

/// A resource version as clients write it; 0 if they write none.
pub(crate) fn parse_version(text: &str) -> Result<u64, Status> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse()
        .map_err(|_| Status::bad_request(format!("invalid resource version: {}", version_problem(text))))
}

/// 500 about a resource version that is no number, where kube-apiserver does not check it earlier.
pub(crate) fn uncaught_version(text: &str) -> Status {
    Status::plain(http::StatusCode::INTERNAL_SERVER_ERROR, "", version_problem(text))
}

/// What is wrong with a resource version that is no number.
fn version_problem(text: &str) -> String {
    let shown = quote(text);
    format!("resourceVersion: Invalid value: {shown}: strconv.ParseUint: parsing {shown}: invalid syntax")
}

const TOKEN_VERSION: &str = "meta.k8s.io/v1";

/// The start of the next page, as text that only this server reads.
#[derive(Debug, Serialize, Deserialize)]
struct Token {
    #[serde(default)]
    v: String,
    #[serde(default)]
    rv: i64,
    #[serde(default)]
    start: String,
}

impl Token {
    fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(json!({"v": self.v, "rv": self.rv, "start": self.start}).to_string())
    }

    fn decode(text: &str) -> Result<Self, Status> {
        let bad = |why: String| {
            Status::bad_request(format!("invalid continue token: continue key is not valid{why}"))
        };
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|error| bad(format!(": {error}")))?;
        let token: Self = crate::json::read(&bytes)
            .and_then(|value| serde_json::from_value(value).map_err(|error| error.to_string()))
            .map_err(|problem| bad(format!(": {problem}")))?;
        if token.v != TOKEN_VERSION {
            return Err(bad(format!(": server does not recognize this encoded version {}", token.v)));
        }
        if token.rv == 0 {
            return Err(bad(": incorrect encoded start resourceVersion (version meta.k8s.io/v1)".to_owned()));
        }
        if token.start.is_empty() {
            return Err(bad(": encoded start key empty (version meta.k8s.io/v1)".to_owned()));
        }
        let climbs = token.start.split('/').any(|part| part.is_empty() || part == "." || part == "..");
        if climbs {
            return Err(bad(format!(": {}", token.start)));
        }
        Ok(token)
    }
}
