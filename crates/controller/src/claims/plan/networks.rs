//! Networks by the name in their CNI configuration, as claims name them: which are ours, which opt in, and where
//! their addresses come from. Attachment definitions tell, and for the cluster's own network a setting.
//!
//! Anybody who may create a definition in one namespace can give its network any name. So only the setting speaks for
//! the cluster's own network. For other networks the definitions in the claim's namespace count, and of those
//! elsewhere the oldest: a later, different definition changes nothing for others.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value;
use tenure_claims::status::Reason;
use tenure_handles::Timestamp;
use tenure_whereabouts::config::{Arguments, Config, networks_of};

use super::super::sets::Names;
use super::Refused;
use crate::attachment::Attachment;
use crate::world::World;

/// The names of our plugin, where addresses come from a pool.
const ROUTED: [&str; 2] = ["tenure", "coil"];
/// The plugin of alias addresses. Their claims use an AddressPool in one of the subnet's ranges.
const ALIASES: &str = "gcp-ipam";
/// The plugin whose addresses come from ranges.
const RANGES: &str = "whereabouts";

/// Networks by name.
#[derive(Debug, Default)]
pub(in crate::claims) struct Networks {
    /// What definitions say of each network, oldest first; for the cluster's own network only its setting.
    by_name: BTreeMap<String, Vec<Said>>,
    /// The networks of definitions.
    of_definitions: HashMap<Arc<str>, String>,
}

/// A network that claims can name.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Network {
    /// We assign its addresses.
    Ours(Source),
    /// It does not opt in; this definition says so.
    OptedOut(String),
    /// Somebody else assigns its addresses, and writes the status of its claims.
    Others,
    /// It cannot be decided, and why.
    Unclear(String),
    /// Its configuration is unusable: which definition, which field, and what is accepted.
    Invalid(String),
}

/// Where the addresses of a network come from.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Source {
    /// A pool: named by the configuration or by the claim's namespace.
    Pool(Option<String>),
    /// Whereabouts' ranges.
    Ranges(Box<Config>),
}

/// What one definition says.
#[derive(Debug, PartialEq)]
struct Said {
    network: Arc<Network>,
    /// Empty for the setting.
    namespace: String,
    definition: String,
    created: Timestamp,
}

impl Networks {
    /// Reads these definitions again, and adds the names of changed networks to `changed`.
    pub(in crate::claims) fn refresh(&mut self, world: &World, definitions: &Names, changed: &mut Names) {
        if let Some(name) =
            world.claims().cluster_network.as_ref().filter(|name| !self.by_name.contains_key(*name))
        {
            let setting = Said {
                network: Arc::new(Network::Ours(Source::Pool(None))),
                namespace: String::new(),
                definition: "the setting of the cluster's network".to_owned(),
                created: Timestamp::default(),
            };
            self.by_name.insert(name.clone(), vec![setting]);
        }
        for key in definitions {
            let known = world.ledgers().attachments.get(key).filter(|it| it.says_something());
            let new = known.and_then(|attachment| {
                let (name, network) = read(attachment)?;
                let said = Said {
                    network: Arc::new(network),
                    namespace: attachment.definition.namespace.clone(),
                    definition: definition(attachment),
                    created: attachment.definition.created,
                };
                Some((name, said))
            });
            self.put(world, key, new, changed);
        }
    }

    /// Replaces what a definition says of the network of this name.
    fn put(&mut self, world: &World, key: &Arc<str>, new: Option<(String, Said)>, changed: &mut Names) {
        // Only the setting speaks for the cluster's own network.
        let new = new.filter(|(name, _)| world.claims().cluster_network.as_ref() != Some(name));
        let mut before = None;
        if let Some(name) = self.of_definitions.remove(key)
            && let Some(all) = self.by_name.get_mut(&name)
        {
            let said = all.iter().position(|said| *said.definition == **key).map(|place| all.remove(place));
            if all.is_empty() {
                self.by_name.remove(&name);
            }
            before = said.map(|said| (name, said));
        }
        if before != new {
            let names = before.iter().chain(&new).map(|(name, _)| name.as_str().into());
            changed.extend(names);
        }
        if let Some((name, said)) = new {
            let all = self.by_name.entry(name.clone()).or_default();
            let order = |said: &Said| (said.created, said.definition.clone());
            all.insert(all.partition_point(|other| order(other) <= order(&said)), said);
            self.of_definitions.insert(key.clone(), name);
        }
    }

    /// The network of this name, for claims of a namespace.
    pub(super) fn get(&self, name: &str, namespace: &str) -> Option<Arc<Network>> {
        let all = self.by_name.get(name)?;
        let own: Vec<&Said> = all.iter().filter(|said| said.namespace == namespace).collect();
        match &own[..] {
            [] => all.first().map(|oldest| oldest.network.clone()),
            _ => Some(agreed(name, &own)),
        }
    }
}

/// Whether a definition with the name of the cluster's own network agrees with the setting about its addresses. If
/// not, it is refused: it does not speak for the cluster's network, and its users have no claims.
pub(crate) fn speaks_for_cluster(attachment: &Attachment) -> bool {
    read(attachment).is_some_and(|(_, network)| network == Network::Ours(Source::Pool(None)))
}

fn definition(attachment: &Attachment) -> String {
    format!("{}/{}", attachment.definition.namespace, attachment.definition.name)
}

/// Combines all definitions of a network, or says what they disagree on.
fn agreed(name: &str, all: &[&Said]) -> Arc<Network> {
    let Some(first) = all.last() else { return Arc::new(Network::Others) };
    match all.iter().find(|other| !same(&other.network, &first.network)) {
        None => first.network.clone(),
        Some(other) => Arc::new(Network::Unclear(format!(
            "{} and {} both define network \"{name}\" and say different things of its addresses: make them alike, or give one \
             of them another name",
            other.definition, first.definition
        ))),
    }
}

/// Whether two definitions get addresses from the same place; nothing else concerns claims.
fn same(one: &Network, other: &Network) -> bool {
    match (one, other) {
        (Network::Ours(Source::Ranges(one)), Network::Ours(Source::Ranges(other))) => {
            (&one.network, &one.ranges, one.overlapping) == (&other.network, &other.ranges, other.overlapping)
        }
        (Network::OptedOut(_), Network::OptedOut(_)) => true,
        (one, other) => one == other,
    }
}

/// The name of a definition's network, and what the definition says of it; `None` if the name cannot be read.
fn read(attachment: &Attachment) -> Option<(String, Network)> {
    let (config, own_name) = (&attachment.definition.config, &attachment.definition.name);
    let root: Value = serde_json::from_str(config).ok()?;
    let name = attachment.network.as_deref()?;
    let source = match source(&root, config, own_name) {
        Ok(Some(source)) => source,
        Ok(None) => return Some((name.to_owned(), Network::Others)),
        Err(words) => return Some((name.to_owned(), invalid(attachment, &words))),
    };
    let network = match &attachment.opted_in {
        Ok(Some(_)) => Network::Ours(source),
        Ok(None) => Network::OptedOut(definition(attachment)),
        Err(error) => invalid(attachment, &error.to_string()),
    };
    Some((name.to_owned(), network))
}

fn invalid(attachment: &Attachment, words: &str) -> Network {
    Network::Invalid(format!("NetworkAttachmentDefinition {}: {words}", definition(attachment)))
}

/// Where the addresses of a configuration come from; `None` if we do not assign them.
fn source(root: &Value, config: &str, own_name: &str) -> Result<Option<Source>, String> {
    let plugins = match root.get("plugins").and_then(Value::as_array) {
        Some(plugins) => plugins.iter().collect(),
        None => vec![root],
    };
    let type_of = |part: &Value| part.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    for plugin in plugins {
        let ipam = plugin.get("ipam").unwrap_or(&Value::Null);
        let ours = |part: &Value| ROUTED.contains(&type_of(part).as_str());
        let routed = [plugin, ipam].into_iter().find(|part| ours(part)).map(|part| (part, "pool"));
        let alias = Some((ipam, "claimPool")).filter(|(ipam, _)| type_of(ipam) == ALIASES);
        if let Some((part, field)) = routed.or(alias) {
            return match part.get(field) {
                None | Some(Value::Null) => Ok(Some(Source::Pool(None))),
                Some(Value::String(pool)) => Ok(Some(Source::Pool(Some(pool.clone())))),
                Some(other) => Err(format!("{field} is {other}; accepted is the name of an AddressPool")),
            };
        }
        if type_of(ipam) == RANGES {
            let networks = networks_of(config, own_name).map_err(|refusal| refusal.to_string())?;
            let Some(network) = networks.first() else { continue };
            let config =
                Config::load(network, None, &Arguments::default()).map_err(|error| error.to_string())?;
            return Ok(Some(Source::Ranges(Box::new(config))));
        }
    }
    Ok(None)
}

impl Network {
    /// Where the addresses come from, or why there are none; `None` if we do not assign them.
    pub(super) fn source(&self, name: &str) -> Option<Result<&Source, Refused>> {
        match self {
            Self::Ours(source) => Some(Ok(source)),
            Self::Others => None,
            Self::OptedOut(definition) => Some(Err(Refused::new(
                Reason::PersistentIpsNotAllowed,
                format!(
                    "network \"{name}\" ({definition}) does not let addresses outlive pods, so its pods get ordinary ones: put \
                     \"allowPersistentIPs\": true into its configuration, or delete the claim"
                ),
            ))),
            Self::Unclear(words) => Some(Err(Refused::new(Reason::InternalError, words.clone()))),
            Self::Invalid(words) => Some(Err(Refused::new(Reason::InvalidConfiguration, words.clone()))),
        }
    }
}
