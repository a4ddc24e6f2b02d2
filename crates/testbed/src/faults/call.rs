//! What a request means to an API server, read from its method and path.

use http::{Method, Request};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads many.
    List,
    /// Follows changes.
    Watch,
    /// Makes an object.
    Create,
    /// Replaces an object.
    Update,
    /// Changes a part of an object.
    Patch,
    /// Deletes one object.
    Delete,
    /// Deletes many.
    DeleteCollection,
    /// Anything that is not about a resource, such as `/readyz` or discovery.
    Other,
}

/// One request, in the API server's terms. What it has not is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What it does.
    pub verb: Verb,
    /// The API group; empty for the core.
    pub group: String,
    /// The resource, in the plural.
    pub resource: String,
    /// The namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The subresource.
    pub subresource: String,
    /// The path as it was sent, without the query.
    pub path: String,
}

impl Call {
    /// Reads a request.
    pub fn of<B>(request: &Request<B>) -> Self {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let (group, rest) = match parts.as_slice() {
            ["api", _version, rest @ ..] => ("", rest),
            ["apis", group, _version, rest @ ..] => (*group, rest),
            _ => ("", &[] as &[&str]),
        };
        // `namespaces/NAME` is an object itself; with something behind it, it says where that is.
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !matches!(rest, [] | ["status" | "finalize"]) => {
                (*namespace, rest)
            }
            _ => ("", rest),
        };
        let at = |index: usize| rest.get(index).map_or_else(String::new, |part| (*part).to_owned());
        let watched = query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1" | "watch"));
        let verb = match (request.method(), rest.len()) {
            (_, 0) => Verb::Other,
            (&Method::GET, _) if watched => Verb::Watch,
            (&Method::GET, 1) => Verb::List,
            (&Method::GET, _) => Verb::Get,
            (&Method::POST, _) => Verb::Create,
            (&Method::PUT, _) => Verb::Update,
            (&Method::PATCH, _) => Verb::Patch,
            (&Method::DELETE, 1) => Verb::DeleteCollection,
            (&Method::DELETE, _) => Verb::Delete,
            _ => Verb::Other,
        };
        Self {
            verb,
            group: group.to_owned(),
            resource: at(0),
            namespace: namespace.to_owned(),
            name: at(1),
            subresource: at(2),
            path: path.to_owned(),
        }
    }
}

/// Describes requests: all of them, until it is narrowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    verbs: Vec<Verb>,
    resource: Option<String>,
    subresource: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    path: Option<String>,
}

impl Calls {
    /// Every request.
    pub fn all() -> Self {
        Self::default()
    }

    /// Requests that do this.
    pub fn of(verb: Verb) -> Self {
        Self::all().or(verb)
    }

    /// Requests that change something.
    pub fn writes() -> Self {
        let verbs = vec![Verb::Create, Verb::Update, Verb::Patch, Verb::Delete, Verb::DeleteCollection];
        Self { verbs, ..Self::all() }
    }

    /// Also requests that do this.
    #[must_use]
    pub fn or(mut self, verb: Verb) -> Self {
        self.verbs.push(verb);
        self
    }

    /// Only those to this resource, named in the plural; with a subresource as `pods/status`.
    #[must_use]
    pub fn to(mut self, resource: &str) -> Self {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        self.resource = Some(resource.to_owned());
        self.subresource = Some(subresource.to_owned()).filter(|subresource| !subresource.is_empty());
        self
    }

    /// Only those in this namespace.
    #[must_use]
    pub fn within(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Only those to the object of this name.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Only those whose path contains this.
    #[must_use]
    pub fn path_contains(mut self, part: &str) -> Self {
        self.path = Some(part.to_owned());
        self
    }

    /// Whether `call` matches.
    pub fn describes(&self, call: &Call) -> bool {
        let is =
            |wanted: &Option<String>, value: &str| wanted.as_deref().is_none_or(|wanted| wanted == value);
        self.describes_kind(call.verb, &call.resource, &call.subresource)
            && is(&self.namespace, &call.namespace)
            && is(&self.name, &call.name)
            && self.path.as_ref().is_none_or(|part| call.path.contains(part))
    }

    pub(super) fn describes_kind(&self, verb: Verb, resource: &str, subresource: &str) -> bool {
        let is =
            |wanted: &Option<String>, value: &str| wanted.as_deref().is_none_or(|wanted| wanted == value);
        (self.verbs.is_empty() || self.verbs.contains(&verb))
            && is(&self.resource, resource)
            && is(&self.subresource, subresource)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: Method, uri: &str) -> Call {
        Call::of(&Request::builder().method(method).uri(uri).body(()).unwrap())
    }

    #[test]
    fn method_and_path_say_what_is_done_to_what() {
        let cases = [
            (Method::GET, "/api/v1/namespaces/a/pods", Verb::List, "", "pods", "a", "", ""),
            (Method::GET, "/api/v1/pods?limit=5", Verb::List, "", "pods", "", "", ""),
            (
                Method::GET,
                "/api/v1/namespaces/a/pods?limit=1&watch=true",
                Verb::Watch,
                "",
                "pods",
                "a",
                "",
                "",
            ),
            (Method::GET, "/api/v1/namespaces/a/pods/b", Verb::Get, "", "pods", "a", "b", ""),
            (Method::PUT, "/api/v1/namespaces/a/pods/b/status", Verb::Update, "", "pods", "a", "b", "status"),
            (
                Method::POST,
                "/apis/apps/v1/namespaces/a/deployments",
                Verb::Create,
                "apps",
                "deployments",
                "a",
                "",
                "",
            ),
            (Method::PATCH, "/apis/g.io/v2/things/b", Verb::Patch, "g.io", "things", "", "b", ""),
            (Method::DELETE, "/apis/g.io/v2/things/b", Verb::Delete, "g.io", "things", "", "b", ""),
            (Method::DELETE, "/apis/g.io/v2/things", Verb::DeleteCollection, "g.io", "things", "", "", ""),
            (Method::GET, "/api/v1/namespaces/a", Verb::Get, "", "namespaces", "", "a", ""),
            (
                Method::PUT,
                "/api/v1/namespaces/a/finalize",
                Verb::Update,
                "",
                "namespaces",
                "",
                "a",
                "finalize",
            ),
            (Method::GET, "/api/v1/namespaces", Verb::List, "", "namespaces", "", "", ""),
            (Method::GET, "/apis/apps/v1", Verb::Other, "apps", "", "", "", ""),
            (Method::GET, "/readyz", Verb::Other, "", "", "", "", ""),
        ];
        for (method, uri, verb, group, resource, namespace, name, subresource) in cases {
            let call = call(method.clone(), uri);
            let got = (
                call.verb,
                call.group.as_str(),
                call.resource.as_str(),
                call.namespace.as_str(),
                call.name.as_str(),
                call.subresource.as_str(),
            );
            assert_eq!(got, (verb, group, resource, namespace, name, subresource), "{method} {uri}");
        }
    }

    #[test]
    fn calls_are_narrowed_by_each_word() {
        let status = call(Method::PUT, "/api/v1/namespaces/a/pods/b/status");
        for calls in [
            Calls::all(),
            Calls::writes(),
            Calls::of(Verb::Get).or(Verb::Update),
            Calls::all().to("pods"),
            Calls::all().to("pods/status"),
            Calls::all().within("a").named("b"),
            Calls::all().path_contains("/pods/b/"),
        ] {
            assert!(calls.describes(&status), "{calls:?}");
        }
        for calls in [
            Calls::of(Verb::Get),
            Calls::all().to("nodes"),
            Calls::all().to("pods/eviction"),
            Calls::all().within("b"),
            Calls::all().named("a"),
            Calls::all().path_contains("/pods/c/"),
        ] {
            assert!(!calls.describes(&status), "{calls:?}");
        }
    }
}
