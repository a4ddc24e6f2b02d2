//! Questions, and which periods answer them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use tenure_view::Period;

/// How many periods an answer has; the youngest.
pub const MOST_PERIODS: usize = 1_000;

/// What is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// Who had an address.
    Address(IpAddr),
    /// What a pod had.
    Pod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// What a container had: the beginning of its ID.
    Container(String),
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// What is asked about.
    pub who: Who,
    /// Since when; `None` for everything.
    pub from: Option<Timestamp>,
    /// Until when; `None` for everything.
    pub to: Option<Timestamp>,
}

impl Query {
    /// The question in the query of a page, by the names of its values.
    pub fn parse(values: &BTreeMap<String, String>) -> Result<Self, String> {
        let known = ["address", "pod", "container", "from", "to"];
        if let Some(name) = values.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(format!("\"{name}\" is unknown; accepted are {}", known.join(", ")));
        }
        let get = |name: &str| values.get(name).filter(|value| !value.is_empty());
        let who = match (get("address"), get("pod"), get("container")) {
            (Some(address), None, None) => Who::Address(
                address
                    .parse::<IpAddr>()
                    .map_err(|_| format!("address is \"{address}\"; accepted is an IPv4 or IPv6 address"))?,
            ),
            (None, Some(pod), None) => {
                let (namespace, name) = pod
                    .split_once('/')
                    .filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty())
                    .ok_or_else(|| format!("pod is \"{pod}\"; accepted is NAMESPACE/NAME"))?;
                Who::Pod { namespace: namespace.to_owned(), name: name.to_owned() }
            }
            (None, None, Some(container)) => Who::Container(container.clone()),
            _ => return Err("accepted is one of address, pod and container".to_owned()),
        };
        let time = |name: &str| match get(name) {
            None => Ok(None),
            Some(text) => text.parse::<Timestamp>().map(Some).map_err(|_| {
                format!("{name} is \"{text}\"; accepted is a time such as 2026-11-15T09:00:00Z")
            }),
        };
        Ok(Self { who, from: time("from")?, to: time("to")? })
    }

    /// The query of the page that asks this, percent-encoded.
    pub fn encode(&self) -> String {
        let who = match &self.who {
            Who::Address(address) => format!("address={address}"),
            Who::Pod { namespace, name } => format!("pod={}/{}", escape(namespace), escape(name)),
            Who::Container(id) => format!("container={}", escape(id)),
        };
        let time = |name, at: Option<Timestamp>| at.map(|at| format!("&{name}={at}")).unwrap_or_default();
        format!("{who}{}{}", time("from", self.from), time("to", self.to))
    }

    /// Whether a period answers the question.
    pub fn matches(&self, period: &Period) -> bool {
        let is_it = match &self.who {
            Who::Address(address) => period.addresses.contains(address),
            Who::Pod { namespace, name } => {
                period.holder.pod.as_ref().is_some_and(|pod| pod.namespace == *namespace && pod.name == *name)
            }
            Who::Container(id) => period.holder.container.starts_with(id.as_str()),
        };
        is_it && period.overlaps(self.from, self.to)
    }

    /// Text that every line with an answer contains, so that most lines need not be decoded.
    pub fn needle(&self) -> String {
        let quoted = |text: &str| serde_json::to_string(text).unwrap_or_default();
        match &self.who {
            Who::Address(address) => quoted(&address.to_string()),
            Who::Pod { name, .. } => quoted(name),
            Who::Container(id) => {
                let mut text = quoted(id);
                text.pop();
                text
            }
        }
    }
}

fn escape(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte);
    let one = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(one).collect()
}

/// Collects the youngest answers.
#[derive(Clone, Debug)]
pub struct Collector {
    query: Query,
    most: usize,
    found: BTreeMap<Id, Period>,
    more: bool,
}

/// Periods by their beginning; a hold that is said twice has one.
type Id = (Option<Timestamp>, String, String, String, u64, Vec<IpAddr>, bool);

impl Collector {
    /// Collects at most this many answers.
    pub fn new(query: Query, most: usize) -> Self {
        Self { query, most, found: BTreeMap::new(), more: false }
    }

    /// Takes a period if it is an answer. One that has ended replaces the same one without an end.
    pub fn take(&mut self, period: Period) {
        if !self.query.matches(&period) {
            return;
        }
        let holder = period.holder.clone();
        let id = (
            period.from,
            holder.network,
            holder.container,
            holder.interface,
            period.part,
            period.addresses.clone(),
            period.is_reached(),
        );
        let known = self.found.get(&id);
        if known.is_none_or(|known| known.to.is_none() || period.to.is_some_and(|to| Some(to) < known.to)) {
            self.found.insert(id, period);
        }
        if self.found.len() > self.most {
            self.found.pop_first();
            self.more = true;
        }
    }

    /// The answers, oldest first, and whether there are older ones.
    pub fn finish(self) -> (Vec<Period>, bool) {
        (self.found.into_values().collect(), self.more)
    }
}

#[cfg(test)]
mod tests;
