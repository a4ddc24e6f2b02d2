//! The resources: the built-in kinds, and those of custom resource definitions.
//!
//! A registry never changes; when a definition does, a new one replaces it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::crd::CrdInfo;
use crate::kinds::{BUILTINS, Builtin, VERSION};
use crate::names::NameRule;
use crate::schema::Schema;
use crate::selector::FieldLabels;
use crate::status::Grouped;
use crate::store::{CollectionName, Object};

/// The collection of custom resource definitions.
pub(crate) const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
/// The collection of namespaces.
pub(crate) const NAMESPACES: &str = "namespaces";

/// One resource in one version.
#[derive(Debug)]
pub(crate) struct Resource {
    /// API group; empty for the core group.
    pub(crate) group: String,
    /// API version.
    pub(crate) version: String,
    /// Both, in the format of objects.
    pub(crate) api_version: String,
    /// Name in paths.
    pub(crate) plural: String,
    /// Name in singular.
    pub(crate) singular: String,
    /// Kind of its objects.
    pub(crate) kind: String,
    /// Kind of lists of them.
    pub(crate) list_kind: String,
    /// Whether its objects are in namespaces.
    pub(crate) namespaced: bool,
    /// Short names for people.
    pub(crate) short_names: Vec<String>,
    /// Categories, such as `all`.
    pub(crate) categories: Vec<String>,
    /// The collection of its objects.
    pub(crate) collection: CollectionName,
    /// Whether it has a `status` subresource.
    pub(crate) status: bool,
    /// The paths of the replicas, if it can be scaled.
    pub(crate) scale: Option<ScalePaths>,
    /// The fields that its objects can be selected by.
    pub(crate) fields: FieldLabels,
    /// Built in, or defined.
    pub(crate) nature: Nature,
    served: Arc<AtomicBool>,
}

/// The paths of a scale's numbers, dotted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScalePaths {
    /// The desired replicas.
    pub(crate) spec_replicas: String,
    /// The present replicas.
    pub(crate) status_replicas: String,
    /// The selector as text; empty if there is none.
    pub(crate) selector: String,
}

/// The origin of a resource.
#[derive(Debug)]
pub(crate) enum Nature {
    /// This program.
    Builtin(&'static Builtin),
    /// A custom resource definition.
    Custom(Custom),
}

/// One version of a definition.
#[derive(Debug)]
pub(crate) struct Custom {
    /// Name of the definition.
    pub(crate) definition: String,
    /// Its UID.
    pub(crate) uid: String,
    /// Its contents.
    pub(crate) info: Arc<CrdInfo>,
    /// The index of this version.
    pub(crate) index: usize,
    /// Objects up to this resource version may have been stored under another schema.
    pub(crate) since: u64,
    /// The API version in which objects are stored.
    pub(crate) stored_api_version: String,
    /// Whether the definition is being deleted.
    pub(crate) terminating: bool,
}

impl Custom {
    /// The schema of this version.
    pub(crate) fn schema(&self) -> &Schema {
        &self.info.versions[self.index].schema
    }
}

impl Resource {
    /// The resource in the form for messages.
    pub(crate) fn grouped(&self) -> Grouped<'_> {
        Grouped { group: &self.group, name: &self.plural }
    }

    /// The kind in the form for messages.
    pub(crate) fn grouped_kind(&self) -> Grouped<'_> {
        Grouped { group: &self.group, name: &self.kind }
    }

    /// The rule for names of its objects.
    pub(crate) fn name_rule(&self) -> NameRule {
        NameRule::of(&self.group, &self.kind)
    }

    /// False once its definition, or this version of it, is gone.
    pub(crate) fn is_still_served(&self) -> bool {
        self.served.load(Ordering::Acquire)
    }

    /// The warning in every answer, if its version is deprecated.
    pub(crate) fn deprecation(&self) -> Option<&str> {
        self.custom().and_then(|custom| custom.info.versions[custom.index].deprecation.as_deref())
    }

    /// The built-in kind, if it is one.
    pub(crate) fn builtin(&self) -> Option<&'static Builtin> {
        match &self.nature {
            Nature::Builtin(builtin) => Some(builtin),
            Nature::Custom(_) => None,
        }
    }

    /// The definition, if it has one.
    pub(crate) fn custom(&self) -> Option<&Custom> {
        match &self.nature {
            Nature::Builtin(_) => None,
            Nature::Custom(custom) => Some(custom),
        }
    }

    fn of_builtin(builtin: &'static Builtin) -> Self {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Self {
            group: builtin.group.to_owned(),
            version: VERSION.to_owned(),
            api_version: api_version(builtin.group, VERSION),
            plural: builtin.plural.to_owned(),
            singular: builtin.kind.to_lowercase(),
            kind: builtin.kind.to_owned(),
            list_kind: format!("{}List", builtin.kind),
            namespaced: builtin.namespaced,
            short_names: owned(builtin.short_names),
            categories: owned(builtin.categories),
            collection: collection(builtin.group, builtin.plural),
            status: builtin.traits.status,
            scale: builtin.traits.scale.then(|| ScalePaths {
                spec_replicas: ".spec.replicas".to_owned(),
                status_replicas: ".status.replicas".to_owned(),
                selector: String::new(),
            }),
            fields: FieldLabels::of(builtin.group, builtin.kind),
            nature: Nature::Builtin(builtin),
            served: Arc::new(AtomicBool::new(true)),
        }
    }
}

/// `group/version`, or the version alone in the core group.
pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// The collection of a resource.
pub(crate) fn collection(group: &str, plural: &str) -> CollectionName {
    if group.is_empty() { plural.into() } else { format!("{plural}.{group}").into() }
}

/// Every resource.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    resources: BTreeMap<(String, String, String), Arc<Resource>>,
    definitions: BTreeMap<String, Definition>,
}

#[derive(Debug)]
struct Definition {
    object: Arc<Object>,
    resources: Vec<Arc<Resource>>,
}

impl Registry {
    /// The registry for these definitions; what has not changed since `previous` is reused.
    pub(crate) fn build(definitions: &[Arc<Object>], previous: Option<&Self>) -> Self {
        let mut registry = Self::default();
        match previous {
            Some(previous) => {
                let builtin = previous.resources.iter().filter(|(_, resource)| resource.builtin().is_some());
                registry.resources.extend(builtin.map(|(key, resource)| (key.clone(), resource.clone())));
            }
            None => BUILTINS.iter().for_each(|builtin| registry.add(Arc::new(Resource::of_builtin(builtin)))),
        }
        for object in definitions {
            let name = object.key.name();
            let known = previous.and_then(|previous| previous.definitions.get(name));
            let resources = match known {
                Some(known) if known.object.version == object.version => known.resources.clone(),
                _ => resources_of(object),
            };
            for resource in &resources {
                registry.add(resource.clone());
            }
            registry.definitions.insert(name.to_owned(), Definition { object: object.clone(), resources });
        }
        if let Some(previous) = previous {
            registry.retire(previous);
        }
        registry
    }

    /// Tells the holders of resources that are gone.
    fn retire(&self, previous: &Self) {
        for (key, old) in previous.resources.iter().filter(|(_, old)| old.custom().is_some()) {
            let same = self.resources.get(key).is_some_and(|new| {
                new.custom().map(|custom| &custom.uid) == old.custom().map(|custom| &custom.uid)
            });
            if !same {
                old.served.store(false, Ordering::Release);
            }
        }
    }

    fn add(&mut self, resource: Arc<Resource>) {
        let key = (resource.group.clone(), resource.version.clone(), resource.plural.clone());
        self.resources.entry(key).or_insert(resource);
    }

    /// The resource at `group/version/plural`.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.resources.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// The resource whose objects have this API version and kind.
    pub(crate) fn of_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Resource>> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        self.resources.values().find(|resource| resource.group == group && resource.kind == kind)
    }

    /// A resource whose objects are in `collection`, in the version in which they are stored if that is served.
    pub(crate) fn of_collection(&self, collection: &str) -> Option<&Arc<Resource>> {
        let stored = |resource: &&Arc<Resource>| {
            resource.custom().is_none_or(|custom| custom.stored_api_version == resource.api_version)
        };
        let mut all = self.resources.values().filter(|resource| &*resource.collection == collection);
        all.clone().find(stored).or_else(|| all.next())
    }

    /// Every resource, by group, version and name.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.values()
    }
}

/// The resources of a definition: every served version, once its names are accepted.
fn resources_of(object: &Arc<Object>) -> Vec<Arc<Resource>> {
    let holds = |kind: &str| {
        let conditions = object.value["status"]["conditions"].as_array();
        conditions.is_some_and(|all| all.iter().any(|one| one["type"] == kind && one["status"] == "True"))
    };
    if !holds("Established") {
        return Vec::new();
    }
    let info = match CrdInfo::parse(&object.value) {
        Ok(info) => Arc::new(info),
        Err(causes) => {
            tracing::error!(definition = object.key.name(), ?causes, "a stored definition is not served");
            return Vec::new();
        }
    };
    let stored = info.versions.iter().find(|version| version.storage).map(|version| version.name.clone());
    let stored_api_version = api_version(&info.group, &stored.unwrap_or_default());
    let resource = |(index, version): (usize, &crate::crd::CrdVersion)| {
        let selectable = &version.selectable_fields;
        Arc::new(Resource {
            group: info.group.clone(),
            version: version.name.clone(),
            api_version: api_version(&info.group, &version.name),
            plural: info.names.plural.clone(),
            singular: info.names.singular.clone(),
            kind: info.names.kind.clone(),
            list_kind: info.names.list_kind.clone(),
            namespaced: info.namespaced,
            short_names: info.names.short_names.clone(),
            categories: info.names.categories.clone(),
            collection: collection(&info.group, &info.names.plural),
            status: version.status,
            scale: version.scale.clone(),
            fields: FieldLabels::custom(info.namespaced, selectable),
            nature: Nature::Custom(Custom {
                definition: object.key.name().to_owned(),
                uid: object.uid().to_owned(),
                info: info.clone(),
                index,
                since: object.version,
                stored_api_version: stored_api_version.clone(),
                terminating: object.is_terminating(),
            }),
            served: Arc::new(AtomicBool::new(true)),
        })
    };
    info.versions.iter().enumerate().filter(|(_, version)| version.served).map(resource).collect()
}
