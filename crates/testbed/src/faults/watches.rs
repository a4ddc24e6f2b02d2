//! The open watches, and which of them are held back or broken off.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use super::{Call, Calls};

/// All open watches behind one [`super::Faults`].
#[derive(Debug, Default)]
pub(super) struct Watches(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    next: u64,
    open: BTreeMap<u64, Open>,
    holds: BTreeMap<u64, Calls>,
}

#[derive(Debug)]
struct Open {
    call: Call,
    end: Option<End>,
    waker: Option<Waker>,
}

/// How a watch ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Like a lost connection.
    Cut,
    /// The server says that it has forgotten the watch's version, so that everything must be listed again.
    Expired,
}

/// Holds watches back until it is dropped.
#[derive(Debug)]
pub struct Hold {
    watches: Arc<Watches>,
    id: u64,
}

/// One open watch.
#[derive(Debug)]
pub(super) struct OpenWatch {
    watches: Arc<Watches>,
    id: u64,
}

/// What an open watch may do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// Deliver.
    Open,
    /// Wait; it will be woken.
    Held,
    /// End.
    Ends(End),
}

impl Watches {
    pub(super) fn hold(watches: &Arc<Self>, calls: Calls) -> Hold {
        let mut state = watches.state();
        let id = state.number();
        state.holds.insert(id, calls);
        Hold { watches: Arc::clone(watches), id }
    }

    pub(super) fn end(&self, calls: &Calls, end: End) {
        let mut state = self.state();
        for open in state.open.values_mut().filter(|open| calls.describes(&open.call)) {
            open.end = Some(end);
            open.waker.take().into_iter().for_each(Waker::wake);
        }
    }

    pub(super) fn open(watches: &Arc<Self>, call: Call) -> OpenWatch {
        let mut state = watches.state();
        let id = state.number();
        state.open.insert(id, Open { call, end: None, waker: None });
        OpenWatch { watches: Arc::clone(watches), id }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl OpenWatch {
    /// What it may do now; the caller is woken when that changes.
    pub(super) fn gate(&self, context: &Context<'_>) -> Gate {
        let mut state = self.watches.state();
        let State { open, holds, .. } = &mut *state;
        let Some(open) = open.get_mut(&self.id) else { return Gate::Ends(End::Cut) };
        open.waker = Some(context.waker().clone());
        if let Some(end) = open.end {
            Gate::Ends(end)
        } else if holds.values().any(|calls| calls.describes(&open.call)) {
            Gate::Held
        } else {
            Gate::Open
        }
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.watches.state().open.remove(&self.id);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.watches.state();
        state.holds.remove(&self.id);
        let wakers: Vec<Waker> = state.open.values_mut().filter_map(|open| open.waker.take()).collect();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}
