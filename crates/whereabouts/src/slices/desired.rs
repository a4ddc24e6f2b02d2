//! Which pools are requested.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tenure_api::names::NameError;
use tenure_api::whereabouts::{NodeSlicePool, pool_name, slice_pool_name};
use tenure_ipam::Slices;

use super::{AttachmentDefinition, Group, SlicePlan};
use crate::config::{Arguments, Config, ConfigError, RangeConfig, networks_of};
use crate::ledger::PoolId;

/// Two attachment definitions of one network that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The pool.
    pub pool: String,
    /// The one that counts, by namespace and name.
    pub heeded: (String, String),
    /// The one that does not.
    pub other: (String, String),
    /// What they say.
    pub message: String,
}

/// An attachment definition, and what it requests.
#[derive(Clone, Debug)]
pub struct Definition {
    /// The definition.
    pub attachment: AttachmentDefinition,
    /// The `network_name`s of all our networks in it, sliced or not.
    pub networks: BTreeSet<String>,
    /// What it requests, or why it cannot be read.
    asks: Result<Asks, String>,
}

/// What a definition requests.
#[derive(Clone, Debug, Default, PartialEq)]
struct Asks {
    pools: Vec<AskedPool>,
    /// Ranges that it requests undivided, and whether it respects other ranges of the network.
    whole: Vec<(PoolId, bool)>,
}

/// A pool that a definition requests.
#[derive(Clone, Debug, PartialEq)]
struct AskedPool {
    name: String,
    network: String,
    range: RangeConfig,
    cut: Slices,
    size: String,
}

impl Definition {
    /// Reads a definition; `flat` is the cluster's flat file, if there is one.
    pub fn read(attachment: AttachmentDefinition, flat: Option<&Value>) -> Self {
        let mut networks = BTreeSet::new();
        let found = networks_of(&attachment.config, &attachment.name);
        let mut asks = found.as_ref().map(|_| Asks::default()).map_err(ToString::to_string);
        for network in found.iter().flatten() {
            match Config::load(network, flat, &Arguments::default()) {
                Ok(config) => {
                    asks = asks.and_then(|asks| asks.and(&config));
                    networks.extend(Some(config.network).filter(|network| !network.is_empty()));
                }
                Err(ConfigError::Other { .. }) => {}
                Err(error) => asks = asks.and_then(|_| Err(error.to_string())),
            }
        }
        Self { attachment, networks, asks }
    }

    /// Whether it requests the same as another one; other differences do not matter here.
    pub fn asks_like(&self, other: &Self) -> bool {
        let mut edited = other.attachment.clone();
        edited.config.clone_from(&self.attachment.config);
        self.attachment == edited
            && self.asks.is_ok()
            && self.asks == other.asks
            && self.networks == other.networks
    }

    /// Why it cannot be read.
    pub fn refusal(&self) -> Option<&str> {
        self.asks.as_ref().err().map(String::as_str)
    }

    /// The names of the pools that it requests or, if it cannot be read, may mean.
    pub fn pool_names(&self) -> BTreeSet<String> {
        match &self.asks {
            Ok(asks) => asks.pools.iter().map(|pool| pool.name.clone()).collect(),
            Err(_) => names_meant(&self.attachment),
        }
    }

    /// The ranges of a pool that it requests.
    pub fn ranges_of(&self, pool: &str) -> impl Iterator<Item = PoolId> {
        let asked = self.asks.iter().flat_map(|asks| &asks.pools).filter(move |asked| asked.name == pool);
        asked.map(|asked| PoolId::shared(&asked.network, asked.cut.whole()))
    }

    /// The ranges that it requests undivided.
    pub fn whole(&self) -> impl Iterator<Item = &PoolId> {
        self.asks.iter().flat_map(|asks| &asks.whole).map(|(id, _)| id)
    }
}

impl Asks {
    /// Adds what another network requests.
    fn and(mut self, config: &Config) -> Result<Self, String> {
        if !config.is_sliced() {
            let whole = config.ranges.iter().map(|range| PoolId::shared(&config.network, range.cidr()));
            self.whole.extend(whole.map(|id| (id, config.overlapping)));
            return Ok(self);
        }
        let names = slice_pools(config).map_err(|error| error.to_string())?;
        let ranges = config.ranges.iter().filter(|range| range.slices.is_some());
        for (place, ((name, cut), range)) in names.into_iter().zip(ranges).enumerate() {
            let size = if place == 0 { config.slice_size.clone() } else { format!("/{}", cut.prefix()) };
            let (network, range) = (config.network.clone(), range.clone());
            self.pools.push(AskedPool { name, network, range, cut, size });
        }
        Ok(self)
    }
}

/// A requested pool.
#[derive(Clone, Debug)]
pub(super) struct Desired<'a> {
    pub(super) name: &'a str,
    pub(super) network: &'a str,
    pub(super) range: &'a RangeConfig,
    pub(super) cut: Slices,
    /// The slice size as written.
    pub(super) size: &'a str,
    /// The definitions that request it, oldest first.
    pub(super) owners: Vec<&'a AttachmentDefinition>,
    pub(super) conflicts: Vec<Conflict>,
}

/// A range that a definition requests undivided.
#[derive(Clone, Debug)]
pub(super) struct Whole<'a> {
    pub(super) id: &'a PoolId,
    /// Whether it respects other ranges of the network.
    pub(super) heeds: bool,
    pub(super) owner: &'a AttachmentDefinition,
}

/// All requested pools, undivided ranges, and unreadable definitions.
pub(super) struct AllDesired<'a> {
    pub(super) pools: BTreeMap<&'a str, Desired<'a>>,
    /// Oldest first.
    pub(super) whole: Vec<Whole<'a>>,
    unreadable: Vec<&'a AttachmentDefinition>,
}

/// The annotation of a `NodeSlicePool` with the UIDs of the definitions that requested it, separated by blanks.
const DEFINITIONS: &str = "whereabouts.cni.cncf.io/definitions";
/// How many are listed.
const MOST_DEFINITIONS: usize = 64;

/// What a pool says about who requested it.
pub(super) fn definitions(owners: &[&AttachmentDefinition]) -> (String, String) {
    let uids = owners.iter().take(MOST_DEFINITIONS).map(|owner| owner.uid.as_str());
    (DEFINITIONS.to_owned(), uids.collect::<Vec<_>>().join(" "))
}

impl AllDesired<'_> {
    /// Whether an unreadable definition may mean a pool.
    pub(super) fn keeps(&self, pool: &NodeSlicePool) -> bool {
        self.unreadable.iter().any(|definition| may_mean(definition, pool))
    }
}

/// The names of a sliced network's pools, one for each range, in order: the network's (or the configuration's) name
/// for the first, and that name followed by the range for each further one.
pub fn slice_pools(config: &Config) -> Result<Vec<(String, Slices)>, NameError> {
    let base = slice_pool_name(&config.network, &config.name)?;
    let cuts = config.ranges.iter().filter_map(|range| Some((range, range.slices?)));
    let name = |(place, (range, cut)): (usize, (&RangeConfig, Slices))| {
        let name = if place == 0 {
            base.clone()
        } else {
            let range = pool_name("", "", &range.cidr().to_string()).unwrap_or_default();
            slice_pool_name(&format!("{base}-{range}"), "")?
        };
        Ok((name, cut))
    };
    cuts.enumerate().map(name).collect()
}

/// Whether any of these definitions requests a pool, or cannot be read and may mean it.
pub fn is_asked_for(
    pool: &NodeSlicePool,
    attachments: &[AttachmentDefinition],
    flat: Option<&Value>,
) -> bool {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    attachments.iter().any(|attachment| match Definition::read(attachment.clone(), flat).asks {
        Ok(asks) => asks.pools.iter().any(|asked| asked.name == name),
        Err(_) => may_mean(attachment, pool),
    })
}

/// The `network_name`s of all our networks in these definitions, sliced or not.
pub fn networks(attachments: &[AttachmentDefinition], flat: Option<&Value>) -> BTreeSet<String> {
    attachments.iter().flat_map(|one| Definition::read(one.clone(), flat).networks).collect()
}

pub(super) fn read<'a>(inputs: &Group<'a>, plan: &mut SlicePlan) -> AllDesired<'a> {
    let mut all = AllDesired { pools: BTreeMap::new(), whole: Vec::new(), unreadable: Vec::new() };
    let mut definitions = inputs.definitions.to_vec();
    definitions.sort_by_key(|Definition { attachment, .. }| {
        (attachment.created, &attachment.namespace, &attachment.name)
    });
    let mut asked: BTreeMap<&str, Vec<Desired<'a>>> = BTreeMap::new();
    for definition in definitions {
        let owner = &definition.attachment;
        match &definition.asks {
            Ok(asks) => {
                all.whole.extend(asks.whole.iter().map(|(id, heeds)| Whole { id, heeds: *heeds, owner }));
                for AskedPool { name, network, range, cut, size } in &asks.pools {
                    let (cut, owners) = (*cut, vec![owner]);
                    let pool = Desired { name, network, range, cut, size, owners, conflicts: Vec::new() };
                    asked.entry(name).or_default().push(pool);
                }
            }
            Err(words) => {
                plan.refused.insert(format!("{}/{}", owner.namespace, owner.name), words.clone());
                all.unreadable.push(owner);
            }
        }
    }
    for (name, candidates) in asked {
        let pool = agree(inputs, candidates);
        plan.conflicts.extend(pool.iter().flat_map(|pool| pool.conflicts.clone()));
        all.pools.extend(pool.map(|pool| (name, pool)));
    }
    all
}

/// One pool from all that request it: as it is now if anybody still wants that, otherwise as the oldest wants it.
fn agree<'a>(inputs: &Group<'a>, candidates: Vec<Desired<'a>>) -> Option<Desired<'a>> {
    let name = candidates.first()?.name;
    let present = inputs.pools.iter().find(|pool| pool.object.metadata.name.as_deref() == Some(name));
    let is_present = |pool: &Desired<'_>| present.is_some_and(|present| present.facts.cut == Some(pool.cut));
    let heeded = candidates.iter().position(is_present).unwrap_or(0);
    let mut pool = candidates.get(heeded)?.clone();
    let of = |pool: &Desired<'_>| {
        pool.owners.first().map(|owner| (owner.namespace.clone(), owner.name.clone())).unwrap_or_default()
    };
    let who = of(&pool);
    pool.owners.clear();
    for other in candidates {
        if other.cut != pool.cut {
            let (cut, against) = (pool.cut, other.cut);
            pool.conflicts.push(Conflict {
                pool: name.to_owned(),
                heeded: who.clone(),
                other: of(&other),
                message: format!(
                    "{}/{} cuts {} into /{}, and {}/{} of the same network cuts {} into /{}: the former is heeded; give \
                     them the same range and node_slice_size, or different network_names",
                    who.0,
                    who.1,
                    cut.whole(),
                    cut.prefix(),
                    of(&other).0,
                    of(&other).1,
                    against.whole(),
                    against.prefix()
                ),
            });
        }
        pool.owners.extend(other.owners);
    }
    Some(pool)
}

/// Whether an unreadable definition may request a pool: by its name, unless the pool says that others did. A typing
/// error must not delete a pool.
fn may_mean(definition: &AttachmentDefinition, pool: &NodeSlicePool) -> bool {
    let said = pool.metadata.annotations.as_ref().and_then(|all| all.get(DEFINITIONS));
    let asked = said.is_none_or(|said| said.split_whitespace().any(|uid| uid == definition.uid));
    asked && pool.metadata.name.as_ref().is_some_and(|name| names_meant(definition).contains(name))
}

/// The names that the pools of an unreadable definition may have.
fn names_meant(attachment: &AttachmentDefinition) -> BTreeSet<String> {
    let mut names = BTreeSet::from([attachment.name.clone()]);
    if let Ok(root) = serde_json::from_str::<Value>(&attachment.config) {
        let plugins = root.get("plugins").and_then(Value::as_array).cloned().unwrap_or_default();
        for part in std::iter::once(&root).chain(&plugins) {
            let texts = [part.get("name"), part.get("ipam").and_then(|ipam| ipam.get("network_name"))];
            names.extend(texts.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned));
        }
    }
    names
}
