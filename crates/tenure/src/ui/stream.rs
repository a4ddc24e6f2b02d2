//! What an open page is told: first everything, then what changed, at most a few times a second.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::map::{Asked, Map};
use super::pages::{self, Page, Rows, Summary};
use super::state::{Shared, State, Viewer};

/// The shortest time between two events of a page.
const PACE: Duration = Duration::from_millis(200);
/// After so long without an event, a line says that the stream is alive.
const ALIVE: Duration = Duration::from_secs(15);
/// Events that a page has not read yet. Then it gets none until it has.
const UNREAD: usize = 4;

/// What a page shows.
pub(super) enum Shown {
    List { page: Page, version: Option<u64>, sent: Rows },
    Map { map: Box<Map>, begun: bool },
    Node { name: String, sent: BTreeMap<String, Value> },
}

/// An event of a list: rows that are new or different, and rows that are gone.
#[derive(Serialize)]
struct ListNews<'a> {
    set: Vec<(&'a String, &'a Value)>,
    gone: Vec<&'a String>,
}

impl Shown {
    /// What is asked for, by a query.
    pub(super) fn of(state: &State, query: &BTreeMap<String, String>) -> Result<Self> {
        let value = |name: &str| query.get(name).map(String::as_str).filter(|value| !value.is_empty());
        match value("page").context("which page? accepted is page=NAME")? {
            "map" => {
                let pool = value("pool").context("which pool? accepted is pool=NAME")?;
                let rows = crate::pools::rows(&state.snapshot);
                let mut rows = rows.into_iter().filter(|row| row.name == pool);
                let row = rows.find(|row| value("kind").is_none_or(|kind| kind == row.kind));
                let row = row.with_context(|| format!("there is no pool {pool:?}"))?;
                let owned = |name| value(name).map(str::to_owned);
                let cells = value("cells").map(str::parse).transpose().context("cells is no number")?;
                let asked =
                    Asked { pool: pool.to_owned(), subnet: owned("subnet"), part: owned("part"), cells };
                let map = Box::new(Map::of(&state.index, &asked, &row.subnets)?);
                Ok(Self::Map { map, begun: false })
            }
            "node" => {
                let name = value("name").context("which node? accepted is name=NAME")?.to_owned();
                Ok(Self::Node { name, sent: BTreeMap::new() })
            }
            other => {
                let page = Page::named(other).with_context(|| format!("there is no page {other:?}"))?;
                Ok(Self::List { page, version: None, sent: Rows::new() })
            }
        }
    }

    /// What the page does not know yet.
    pub(super) fn news(&mut self, state: &State) -> Result<Option<String>> {
        match self {
            Self::Map { map, begun } => {
                let drawn = if std::mem::replace(begun, true) {
                    map.news(&state.index)
                } else {
                    Some(map.all(&state.index))
                };
                drawn.map(|drawn| event("map", &drawn)).transpose()
            }
            Self::List { page, version, sent } => {
                let now = page.version(state);
                if *version == Some(now) {
                    return Ok(None);
                }
                let rows = page.rows(state);
                let set: Vec<_> = rows.iter().filter(|(key, row)| sent.get(*key) != Some(*row)).collect();
                let gone: Vec<_> = sent.keys().filter(|key| !rows.contains_key(*key)).collect();
                let is_news = version.is_none() || !set.is_empty() || !gone.is_empty();
                let news = is_news.then(|| event("list", &ListNews { set, gone })).transpose()?;
                *version = Some(now);
                *sent = rows;
                Ok(news)
            }
            Self::Node { name, sent } => {
                let page = pages::node_page(state, name);
                let page = page.unwrap_or_else(|| json!({"node": name, "missing": true}));
                let Value::Object(fields) = page else { return Ok(None) };
                let mut news: BTreeMap<&String, &Value> =
                    fields.iter().filter(|(name, value)| sent.get(*name) != Some(*value)).collect();
                // A page that reads this forgets the field.
                news.extend(
                    sent.keys().filter(|name| !fields.contains_key(*name)).map(|name| (name, &Value::Null)),
                );
                let news = (!news.is_empty()).then(|| event("node", &news)).transpose()?;
                *sent = fields.into_iter().collect();
                Ok(news)
            }
        }
    }
}

/// An event as a browser reads it.
fn event(kind: &str, news: &impl Serialize) -> Result<String> {
    Ok(format!("event: {kind}\ndata: {}\n\n", serde_json::to_string(news)?))
}

/// Tells a page everything, and then what changes, until it is closed.
pub(super) fn start(shared: Arc<Shared>, mut shown: Shown) -> mpsc::Receiver<Bytes> {
    let (tell, told) = mpsc::channel(UNREAD);
    tokio::spawn(async move {
        let _viewer = Viewer::of(&shared);
        let (mut changes, mut last) = (shared.changes(), None);
        loop {
            changes.mark_unchanged();
            let news = {
                let state = shared.read();
                let summary = Summary::of(&state, &shared.health.look());
                let head = (last.as_ref() != Some(&summary)).then(|| event("summary", &summary));
                last = Some(summary);
                head.into_iter().chain(shown.news(&state).transpose()).collect::<Result<String>>()
            };
            match news {
                Ok(text) if text.is_empty() => {}
                Ok(text) => {
                    if tell.send(text.into()).await.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "a page cannot be written");
                    return;
                }
            }
            let next = tokio::select! {
                next = timeout(ALIVE, changes.changed()) => next,
                () = tell.closed() => return,
            };
            match next {
                Ok(Ok(())) => sleep(PACE).await,
                Ok(Err(_)) => return,
                Err(_) => {
                    // The health of the watches changes without them.
                    if tell.send(Bytes::from_static(b": alive\n\n")).await.is_err() {
                        return;
                    }
                }
            }
        }
    });
    told
}
