//! Kinds of objects, and observations of them: from a watch, or from the answer to a write.

use std::fmt::Debug;

use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tenure_api::read::Unreadable;

use crate::cache::{Cache, Known};
use crate::unreadable::Stub;
use crate::world::World;
use crate::write::At;

/// A kind of object in the world.
pub trait Kind:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
    /// Its name in watches, events and metrics.
    const NAME: &'static str;

    /// Drops fields that nobody reads, before the object is queued.
    fn trim(&mut self) {}

    /// The replacement for an object that cannot be read; `None` to keep what was last read.
    fn stand_in(_: &Unreadable) -> Option<Self> {
        None
    }

    /// Takes in an event of the watch.
    fn observe(world: &mut World, event: Event<Self>);

    /// The object of this name and UID is gone.
    fn observe_gone(world: &mut World, namespace: &str, name: &str, uid: &str);

    /// An object exists that cannot be read and has no replacement; or it did, and is gone.
    fn observe_unreadable(world: &mut World, stub: &Stub, gone: bool);

    /// The API server does not know the kind.
    fn observe_lack(_: &mut World) {}

    /// Nobody watches the kind any more.
    fn forget(_: &mut World) {}
}

/// A kind whose objects are all kept in one cache of the world.
pub(crate) trait Cached: Resource<DynamicType = ()> + Sized {
    /// What is kept of an object.
    type Kept: Known;

    /// The cache.
    fn cache(world: &mut World) -> &mut Cache<Self::Kept>;

    /// What is kept of an object.
    fn kept(self) -> Self::Kept;

    /// The key of an object with this namespace and name.
    fn key(namespace: &str, name: &str) -> String {
        if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
    }
}

/// Applies an event to the cache of its kind.
pub(crate) fn cache<K: Cached>(world: &mut World, event: Event<K>) {
    match event {
        Event::Init => K::cache(world).begin(),
        Event::InitApply(object) => {
            let kept = object.kept();
            K::cache(world).list(kept);
        }
        Event::Apply(object) => {
            let meta = object.meta();
            let key = K::key(meta.namespace.as_deref().unwrap_or_default(), &object.name_any());
            if !K::cache(world).keeps(&key, meta.uid.as_deref(), object.known_version()) {
                let kept = object.kept();
                K::cache(world).apply(kept);
            }
        }
        Event::InitDone => K::cache(world).finish(),
        Event::Delete(object) => {
            let uid = object.uid().unwrap_or_default();
            let key = object.kept().key();
            K::cache(world).remove(&key, &uid);
        }
    }
}

/// Removes an object from the cache of its kind.
pub(crate) fn uncache<K: Cached>(world: &mut World, namespace: &str, name: &str, uid: &str) {
    K::cache(world).remove(&K::key(namespace, name), uid);
}

/// Keeps what was last read of an object that cannot be read, until it is gone.
pub(crate) fn cache_unreadable<K: Cached>(world: &mut World, stub: &Stub, gone: bool) {
    let key = K::key(&stub.namespace, &stub.name);
    if gone {
        K::cache(world).remove(&key, &stub.uid);
    } else {
        K::cache(world).keep(&key, &stub.uid);
    }
}

/// Implements [`Cached`] for a kind that a part keeps in a field of its state; a function returns what is kept of an
/// object. With `by name`, all objects are in one namespace, and their names are the keys.
macro_rules! cached_in {
    ($kind:ty, $kept:ty, $state:ident.$field:ident, $of:expr) => {
        impl $crate::kind::Cached for $kind {
            $crate::kind::cached_in!(@kept $kept, $state.$field, $of);
        }
    };
    ($kind:ty, $kept:ty, $state:ident.$field:ident, $of:expr, by name) => {
        impl $crate::kind::Cached for $kind {
            $crate::kind::cached_in!(@kept $kept, $state.$field, $of);

            fn key(_: &str, name: &str) -> String {
                name.to_owned()
            }
        }
    };
    (@kept $kept:ty, $state:ident.$field:ident, $of:expr) => {
        type Kept = $kept;

        fn cache(world: &mut $crate::World) -> &mut $crate::cache::Cache<Self::Kept> {
            &mut world.$state().$field
        }

        fn kept(self) -> Self::Kept {
            $of(self)
        }
    };
}
pub(crate) use cached_in;

/// Implements [`Kind`] for a kind that is [`Cached`].
macro_rules! cached_kind {
    ($kind:ty, $name:literal $(, $more:item)*) => {
        impl $crate::kind::Kind for $kind {
            const NAME: &'static str = $name;

            $($more)*

            fn observe(world: &mut $crate::World, event: kube::runtime::watcher::Event<Self>) {
                $crate::kind::cache(world, event);
            }

            fn observe_gone(world: &mut $crate::World, namespace: &str, name: &str, uid: &str) {
                $crate::kind::uncache::<Self>(world, namespace, name, uid);
            }

            fn observe_unreadable(world: &mut $crate::World, stub: &$crate::unreadable::Stub, gone: bool) {
                $crate::kind::cache_unreadable::<Self>(world, stub, gone);
            }

            fn forget(world: &mut $crate::World) {
                <Self as $crate::kind::Cached>::cache(world).forget();
            }
        }
    };
}
pub(crate) use cached_kind;

/// Implements [`Cached`] and [`Kind`] for a kind that a part keeps in a field of its state, and that may be missing.
/// The last argument runs in addition if it is missing.
macro_rules! kept_kind {
    ($kind:ty, $name:literal, $kept:ty, $state:ident.$field:ident, $of:path $(, $lack:expr)?) => {
        $crate::kind::cached_in!($kind, $kept, $state.$field, $of);

        $crate::kind::cached_kind!(
            $kind,
            $name,
            fn observe_lack(world: &mut $crate::World) {
                Self::forget(world);
                $($lack(world);)?
            }
        );
    };
}
pub(crate) use kept_kind;

/// An observation that the world has not seen yet.
pub struct Observation {
    tell: Box<dyn FnOnce(&mut World) + Send>,
    /// What a write released: kind and count.
    released: Option<(&'static str, u64)>,
}

impl Observation {
    /// Any observation.
    pub fn new(tell: impl FnOnce(&mut World) + Send + 'static) -> Self {
        Self { tell: Box::new(tell), released: None }
    }

    /// The current state of an object.
    pub fn is<K: Kind>(object: K) -> Self {
        Self::new(move |world| {
            if world.counts(K::NAME) {
                K::observe(world, Event::Apply(object));
            }
        })
    }

    /// An object without a namespace, or in the only watched namespace, is gone.
    pub fn gone<K: Kind>(at: At) -> Self {
        Self::gone_from::<K>("", at)
    }

    /// An object of a namespace is gone.
    pub fn gone_from<K: Kind>(namespace: &str, at: At) -> Self {
        let namespace = namespace.to_owned();
        Self::new(move |world| {
            if world.counts(K::NAME) {
                K::observe_gone(world, &namespace, &at.name, &at.uid);
            }
        })
    }

    /// Combines several, if there are any.
    pub fn all(all: Vec<Self>) -> Option<Self> {
        let released = all.iter().find_map(|it| it.released);
        let some = !all.is_empty();
        let tell = move |world: &mut World| all.into_iter().for_each(|it| it.tell(world));
        some.then(|| Self { released, ..Self::new(tell) })
    }

    /// Adds what a write released.
    #[must_use]
    pub fn releasing(self, kind: &'static str, count: u64) -> Self {
        Self { released: Some((kind, count)), ..self }
    }

    /// What a write released.
    pub(crate) fn released(&self) -> Option<(&'static str, u64)> {
        self.released
    }

    /// Applies it to the world.
    pub fn tell(self, world: &mut World) {
        (self.tell)(world);
    }
}

impl Debug for Observation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Observation").field("released", &self.released).finish_non_exhaustive()
    }
}
