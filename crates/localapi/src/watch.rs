//! Watches: the state at the start if requested, then every change that concerns the watcher, in order.
//!
//! ```text
//!        ┌─────────┐ sent  ┌───────────┐  nothing new   ┌─────────┐
//!  ─────▶│ initial │──────▶│ following │───────────────▶│ waiting │
//!        └─────────┘       └───────────┘◀───────────────└─────────┘
//!                             │ log too short   change, bookmark │ time over, closing,
//!                             ▼                                  ▼ definition gone
//!                          ERROR 410, end                       end
//! ```
//!
//! A watcher reads from the log at its own pace; none can delay a writer or another watcher.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use serde_json::{Value, json};
use tenure_handles::Clock;
use tokio::sync::watch;
use tokio::time::Sleep;

use crate::core::Core;
use crate::list::{Selection, invalid_options, uncaught_version};
use crate::present;
use crate::registry::Resource;
use crate::request::{Form, Query};
use crate::respond::View;
use crate::schema::{Cause, Path};
use crate::status::{Status, quote};
use crate::store::{Draft, Event, EventKind, Object, Store, Unreachable, frame};
use crate::table::Include;

/// How often a watcher that asked for bookmarks gets one.
const BOOKMARK_PERIOD: Duration = Duration::from_mins(1);

/// Watches without a limit of their own end after one to two of these, so that clients spread out.
const LONGEST: Duration = Duration::from_mins(30);

/// Events taken from the log at once.
const BATCH: usize = 128;

/// The parameters of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WatchOptions {
    /// Start after this version; `None` starts with the present state.
    after: Option<u64>,
    /// Whether to send the state at the start, and then a bookmark that says that it is complete.
    initial_bookmark: bool,
    bookmarks: bool,
    timeout: Option<Duration>,
}

impl WatchOptions {
    /// Reads and checks the parameters.
    pub(crate) fn parse(query: &Query) -> Result<Self, Status> {
        query.number("limit")?;
        let timeout = query.number("timeoutSeconds")?.and_then(|seconds| u64::try_from(seconds).ok());
        let version = query.text("resourceVersion");
        let mut matching = query.text("resourceVersionMatch");
        let mut initial = query.tristate("sendInitialEvents");
        if initial.is_none() && matching.is_empty() && (version.is_empty() || version == "0") {
            initial = Some(true);
            matching = "NotOlderThan";
        }
        let causes = problems(initial, matching, query);
        if !causes.is_empty() {
            return Err(invalid_options(&causes));
        }
        let number: u64 =
            if version.is_empty() { 0 } else { version.parse().map_err(|_| uncaught_version(version))? };
        let bookmarks = query.flag("allowWatchBookmarks");
        Ok(Self {
            after: match initial {
                Some(true) => None,
                Some(false) if number == 0 => Some(0),
                _ => Some(number),
            },
            initial_bookmark: initial == Some(true) && bookmarks,
            bookmarks,
            timeout: timeout.filter(|seconds| *seconds > 0).map(Duration::from_secs),
        })
    }
}

fn problems(initial: Option<bool>, matching: &str, query: &Query) -> Vec<Cause> {
    let mut causes = Vec::new();
    let path = Path::Text("resourceVersionMatch");
    if initial.is_some() && matching != "NotOlderThan" {
        let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        causes.push(Cause::forbidden(&path, detail));
    }
    if !matching.is_empty() {
        if initial.is_none() {
            let detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            causes.push(Cause::forbidden(&path, detail));
        }
        if matching != "NotOlderThan" {
            causes.push(Cause::not_supported(&path, &json!(matching), &["NotOlderThan".to_owned()]));
        }
        if query.has("continue") {
            let detail = "resourceVersionMatch is forbidden when continue is provided";
            causes.push(Cause::forbidden(&path, detail));
        }
    }
    causes
}

/// Starts a watch; the stream consists of lines of JSON.
pub(crate) fn watch(
    core: &Core,
    resource: Arc<Resource>,
    selection: Selection,
    form: Form,
    include: Include,
    options: &WatchOptions,
) -> impl Stream<Item = Bytes> + Send + use<> {
    let store = core.store.clone();
    let changed = store.subscribe(&resource.collection);
    let mut ready = VecDeque::new();
    let mut watcher = Watcher {
        cursor: 0,
        ended: false,
        bookmarked: 0,
        bookmarks: options.bookmarks,
        changed,
        closing: core.closing(),
        served: core.registry_changes(),
        lasts: options.timeout.unwrap_or_else(|| LONGEST + LONGEST.mul_f64(core.fraction())),
        end: None,
        bookmark_due: None,
        with_header: true,
        include,
        clock: core.clock.clone(),
        store,
        resource,
        selection,
        form,
        ready: VecDeque::new(),
    };
    match options.after {
        None => {
            let listing = watcher.store.list(&watcher.resource.collection, &watcher.selection.scope, "");
            watcher.cursor = listing.version;
            for object in &listing.objects {
                if watcher.selection.matches(object) {
                    ready.push_back(watcher.line(EventKind::Added, object));
                }
            }
            if options.initial_bookmark {
                ready.push_back(watcher.bookmark(true));
            }
        }
        // "From any version": nothing of the past.
        Some(0) => watcher.cursor = watcher.store.version(),
        Some(version) => watcher.cursor = version,
    }
    watcher.ready = ready;
    futures::stream::unfold(watcher, |mut watcher| async move {
        let line = watcher.next().await?;
        Some((line, watcher))
    })
}

struct Watcher {
    store: Arc<Store>,
    resource: Arc<Resource>,
    selection: Selection,
    form: Form,
    /// Everything up to this version was sent, or does not concern the watcher.
    cursor: u64,
    /// The version of the last bookmark.
    bookmarked: u64,
    bookmarks: bool,
    ready: VecDeque<Bytes>,
    ended: bool,
    changed: watch::Receiver<u64>,
    closing: watch::Receiver<bool>,
    served: watch::Receiver<u64>,
    lasts: Duration,
    end: Option<Pin<Box<Sleep>>>,
    bookmark_due: Option<Pin<Box<Sleep>>>,
    /// A table names its columns once.
    with_header: bool,
    include: Include,
    clock: Arc<dyn Clock>,
}

impl Watcher {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Some(line);
            }
            if self.ended || *self.closing.borrow() {
                return None;
            }
            self.changed.borrow_and_update();
            self.follow();
            if self.ready.is_empty() {
                self.wait().await;
            }
        }
    }

    /// Processes new events.
    fn follow(&mut self) {
        match self.store.events_after(&self.resource.collection, self.cursor, BATCH) {
            Ok((events, reached)) => {
                for event in &events {
                    if let Some(line) = self.line_for(event) {
                        self.ready.push_back(line);
                    }
                }
                self.cursor = reached;
            }
            Err(Unreachable::TooOld(oldest) | Unreachable::TooNew(oldest)) => {
                let message = format!("too old resource version: {} ({oldest})", self.cursor);
                let status = Status::expired(message).to_value();
                self.ready.push_back(line_of("ERROR", &status));
                self.ended = true;
            }
        }
    }

    /// Waits until something happens. A watch that ends sends a last bookmark.
    async fn wait(&mut self) {
        let lasts = self.lasts;
        let end = self.end.get_or_insert_with(|| Box::pin(tokio::time::sleep(lasts)));
        let bookmark_due =
            self.bookmark_due.get_or_insert_with(|| Box::pin(tokio::time::sleep(BOOKMARK_PERIOD)));
        tokio::select! {
            changed = self.changed.changed() => self.ended |= changed.is_err(),
            () = end => self.ended = true,
            () = bookmark_due => self.bookmark_due = None,
            _ = self.closing.wait_for(|closing| *closing) => self.ended = true,
            changed = self.served.changed() => {
                self.ended |= changed.is_err() || !self.resource.is_still_served();
                return;
            }
        }
        let quiet = self.changed.has_changed().is_ok_and(|changed| !changed);
        let due = self.ended || self.bookmark_due.is_none();
        if self.bookmarks && due && quiet && self.cursor > self.bookmarked {
            let bookmark = self.bookmark(false);
            self.ready.push_back(bookmark);
        }
    }

    /// What an event means for this watcher: an object that starts to match was added, one that no longer
    /// matches is deleted and shown as it last matched.
    fn line_for(&mut self, event: &Event) -> Option<Bytes> {
        if !self.selection.scope.contains(&event.object.key) {
            return None;
        }
        if self.selection.is_everything() {
            if self.form == Form::Plain && present::is_as_stored(&self.resource, &event.object) {
                return Some(event.frame());
            }
            return Some(self.line(event.kind, &event.object));
        }
        let before = event.previous.as_ref().is_some_and(|object| self.selection.matches(object));
        let after = event.present().is_some_and(|object| self.selection.matches(object));
        match (before, after) {
            (false, false) => None,
            (false, true) => Some(self.line(EventKind::Added, &event.object)),
            (true, true) => Some(self.line(EventKind::Modified, &event.object)),
            (true, false) if event.kind == EventKind::Deleted => {
                Some(self.line(EventKind::Deleted, &event.object))
            }
            (true, false) => {
                let previous = event.previous.as_ref()?;
                let last = Draft::new(previous.value.clone()).finish(previous.key.clone(), event.version());
                Some(self.line(EventKind::Deleted, &last))
            }
        }
    }

    fn line(&mut self, kind: EventKind, object: &Object) -> Bytes {
        match self.form {
            Form::Table => {
                let value = present::value(&self.resource, object).into_owned();
                line_of(kind.as_str(), &self.table(&value))
            }
            Form::Metadata | Form::MetadataList => {
                let value = present::value(&self.resource, object);
                line_of(kind.as_str(), &present::metadata_of(&value))
            }
            Form::Plain => frame(kind, &present::text(&self.resource, object)),
        }
    }

    fn table(&mut self, value: &Value) -> Value {
        let now = self.clock.now().to_jiff();
        let view = View { resource: &self.resource, form: self.form, include: self.include, now };
        let table = view.table_of_one(value, self.with_header);
        self.with_header = false;
        table
    }

    fn bookmark(&mut self, initial: bool) -> Bytes {
        self.bookmarked = self.cursor;
        let mut metadata = json!({"resourceVersion": self.cursor.to_string()});
        if initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let mut object = json!({
            "kind": self.resource.kind, "apiVersion": self.resource.api_version, "metadata": metadata,
        });
        // Built-in kinds show the parts that they always have.
        if self.resource.builtin().is_some() {
            let parts: &[&str] = match self.resource.kind.as_str() {
                "Lease" => &["spec"],
                "Namespace" | "Node" | "Pod" | "Service" => &["spec", "status"],
                _ => &[],
            };
            for part in parts {
                object[*part] = json!({});
            }
        }
        let object = match self.form {
            Form::Table => self.table(&object),
            Form::Metadata | Form::MetadataList => present::metadata_of(&object),
            Form::Plain => object,
        };
        line_of("BOOKMARK", &object)
    }
}

fn line_of(kind: &str, object: &Value) -> Bytes {
    format!("{{\"type\":{},\"object\":{object}}}\n", quote(kind)).into()
}
