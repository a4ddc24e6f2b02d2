//! What parts keep of a pod's metadata, by type. The core knows a pod's UID and nothing else of it.
//!
//! There are about as many facets as dialects, so a linear search of a list is the fastest lookup.

use std::any::{Any, TypeId};
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::api::PartialObjectMeta;

/// What one part keeps of each pod of this node.
pub trait Facet: Any + Debug + PartialEq + Send + Sync {
    /// Reads it from a pod's metadata.
    fn of(pod: &PartialObjectMeta<Pod>) -> Self;
}

/// Nothing: for parts that ask only whether a pod exists.
impl Facet for () {
    fn of(_: &PartialObjectMeta<Pod>) -> Self {}
}

/// A facet of any type.
trait AnyFacet: Any + Debug + Send + Sync {
    fn equals(&self, other: &dyn AnyFacet) -> bool;
}

impl<T: Facet> AnyFacet for T {
    fn equals(&self, other: &dyn AnyFacet) -> bool {
        (other as &dyn Any).downcast_ref::<T>() == Some(self)
    }
}

/// Reads one facet.
type Reader = fn(&PartialObjectMeta<Pod>) -> Arc<dyn AnyFacet>;

fn read<T: Facet>(pod: &PartialObjectMeta<Pod>) -> Arc<dyn AnyFacet> {
    Arc::new(T::of(pod))
}

/// The facets that are kept of every pod.
#[derive(Clone, Debug, Default)]
pub(super) struct Facets(Vec<(TypeId, Reader)>);

impl Facets {
    /// Adds the facet of this type. Returns false if it was already there.
    pub(super) fn add<T: Facet>(&mut self) -> bool {
        let id = TypeId::of::<T>();
        let is_new = !self.0.iter().any(|(known, _)| *known == id);
        if is_new {
            self.0.push((id, read::<T>));
        }
        is_new
    }

    /// Reads all of them.
    pub(super) fn of(&self, pod: &PartialObjectMeta<Pod>) -> PodFacets {
        PodFacets(self.0.iter().map(|(_, read)| read(pod)).collect())
    }
}

/// All facets of one pod.
#[derive(Clone, Debug, Default)]
pub(super) struct PodFacets(Vec<Arc<dyn AnyFacet>>);

impl PodFacets {
    /// The facet of this type; nothing if it is not kept.
    pub(super) fn get<T: Facet>(&self) -> Option<Arc<T>> {
        let mut any = self.0.iter().map(|facet| Arc::clone(facet) as Arc<dyn Any + Send + Sync>);
        any.find_map(|facet| facet.downcast().ok())
    }
}

impl PartialEq for PodFacets {
    fn eq(&self, other: &Self) -> bool {
        let pairs = || self.0.iter().zip(&other.0);
        self.0.len() == other.0.len() && pairs().all(|(one, other)| one.equals(other.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Name(Option<String>);
    #[derive(Debug, PartialEq)]
    struct Uid(Option<String>);

    impl Facet for Name {
        fn of(pod: &PartialObjectMeta<Pod>) -> Self {
            Self(pod.metadata.name.clone())
        }
    }

    impl Facet for Uid {
        fn of(pod: &PartialObjectMeta<Pod>) -> Self {
            Self(pod.metadata.uid.clone())
        }
    }

    #[test]
    fn each_type_is_kept_once_and_found_by_its_type() {
        let mut facets = Facets::default();
        assert!(facets.add::<Name>());
        let pod = |name: &str| {
            let mut pod = PartialObjectMeta::default();
            pod.metadata.name = Some(name.to_owned());
            pod
        };
        let without = facets.of(&pod("web"));
        assert_eq!(without.get::<Uid>(), None);
        assert!(facets.add::<Uid>());
        assert!(!facets.add::<Name>());
        let of_web = facets.of(&pod("web"));
        assert_eq!(of_web.get::<Name>().unwrap().0.as_deref(), Some("web"));
        assert_eq!(of_web.get::<Uid>().unwrap().0, None);
        assert_eq!(of_web, facets.of(&pod("web")));
        assert_ne!(of_web, facets.of(&pod("db")));
        assert_ne!(of_web, without);
    }
}
