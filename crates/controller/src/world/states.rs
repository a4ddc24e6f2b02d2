//! The states of parts, by type. The world itself knows no dialect.
//!
//! There are about as many states as parts, so a linear search of a list is the fastest lookup. The list only grows:
//! a reader of a state that nobody has written gets an empty one.

use std::any::{Any, TypeId};
use std::cell::OnceCell;
use std::fmt::Debug;

/// What a part knows of the objects that it watches.
pub trait State: Any + Debug + Send {
    /// How often something of it has changed.
    fn changes(&self) -> u64;

    /// The nodes that its objects belong to. The world remembers the deletion of a node while it is named here.
    fn nodes(&self) -> Vec<&str> {
        Vec::new()
    }
}

/// One state of each type.
#[derive(Debug, Default)]
pub(super) struct States(OnceCell<Box<Entry>>);

#[derive(Debug)]
struct Entry {
    id: TypeId,
    state: Box<dyn State>,
    rest: States,
}

impl States {
    /// The state of this type, an empty one if nobody has written to it.
    pub(super) fn get<T: State + Default>(&self) -> &T {
        let mut here = self;
        loop {
            let entry = here.first::<T>();
            if entry.id == TypeId::of::<T>()
                && let Some(state) = (entry.state.as_ref() as &dyn Any).downcast_ref()
            {
                return state;
            }
            here = &entry.rest;
        }
    }

    /// The same, mutable.
    pub(super) fn get_mut<T: State + Default>(&mut self) -> &mut T {
        self.first::<T>();
        // The cell has just been filled, so this is unreachable.
        let Some(entry) = self.0.get_mut() else { return Box::leak(Box::default()) };
        let Entry { state, rest, .. } = entry.as_mut();
        (state.as_mut() as &mut dyn Any).downcast_mut().unwrap_or_else(|| rest.get_mut())
    }

    /// The first entry; creates one of this type if there is none.
    fn first<T: State + Default>(&self) -> &Entry {
        self.0.get_or_init(|| {
            Box::new(Entry { id: TypeId::of::<T>(), state: Box::<T>::default(), rest: Self::default() })
        })
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &dyn State> {
        let mut here = self;
        std::iter::from_fn(move || {
            let entry = here.0.get()?;
            here = &entry.rest;
            Some(entry.state.as_ref())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct One(u64);
    #[derive(Debug, Default)]
    struct Two(u64);

    impl State for One {
        fn changes(&self) -> u64 {
            self.0
        }
    }

    impl State for Two {
        fn changes(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn there_is_one_state_of_each_type_and_it_is_empty_before_somebody_writes() {
        let mut states = States::default();
        assert_eq!((states.get::<Two>().0, states.get::<One>().0), (0, 0));
        states.get_mut::<One>().0 = 1;
        states.get_mut::<Two>().0 += 2;
        states.get_mut::<Two>().0 += 2;
        assert_eq!((states.get::<One>().0, states.get::<Two>().0), (1, 4));
        assert_eq!(states.iter().map(State::changes).sum::<u64>(), 5);
    }
}
