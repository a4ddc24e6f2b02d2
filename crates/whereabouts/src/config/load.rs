//! Reading everything, in the order in which one key depends on another.

use serde::Deserialize;
use serde_json::{Value, json};
use tenure_api::whereabouts::{pool_name, slice_pool_name};
use tenure_cni::{Dns, Route, Version};
use tenure_ipam::{Address, Notation};

use super::keys::{self, Keys};
use super::range::{self, Shared};
use super::{Arguments, Config, ConfigError, Notice, Object, RangeConfig, Refusal, places, statics};

const LEVELS: [&str; 4] = ["debug", "verbose", "error", "panic"];

pub(super) fn load(
    network: &Value,
    flat: Option<&Value>,
    arguments: &Arguments,
) -> Result<Config, ConfigError> {
    let mut notices = Vec::new();
    let root = network.as_object().cloned().unwrap_or_default();
    let root = Keys::new("configuration", &root);
    let version = Version::parse(&root.text("cniVersion")?).map_err(ConfigError::Version)?;
    let own = root.object("ipam")?;
    keys::check_names("ipam", &own, &mut notices)?;
    let flat_object = flat.map(flat_file).transpose()?.unwrap_or_default();
    keys::check_names("flat file", &flat_object, &mut notices)?;
    let merged = keys::merge(&own, &flat_object);
    let keys = Keys::new("ipam", &merged);

    let gateway = gateway(&keys)?;
    let (ranges, slice_size) = ranges(&keys, &merged, gateway, &mut notices)?;
    let mut fixed = statics::read(&keys)?;
    fixed.extend(arguments.addresses.iter().copied());
    statics::set_gateways(&mut fixed, &arguments.gateways)?;
    statics::check_room(version, &fixed)?;
    statics::notice_overlaps(&fixed, &ranges, &mut notices);
    if ranges.is_empty() && fixed.is_empty() {
        return Err(keys
            .refuse("range", "", "there is nothing to hand out", "range, ipRanges or addresses")
            .into());
    }
    let config = Config {
        version,
        name: root.text("name")?,
        network: keys.text("network_name")?,
        ranges,
        statics: fixed,
        gateway,
        routes: routes(&keys)?,
        dns: dns(&keys)?,
        slice_size,
        overlapping: overlapping(&own, &flat_object, &mut notices)?,
        kubeconfig: kubeconfig(&keys, flat.is_some())?,
        configuration_path: places::path(&keys, "configuration_path")?,
        log_file: keys.text("log_file")?,
        log_level: log_level(&keys)?,
        lease_ms: lease(&keys)?,
        arguments: arguments.clone(),
        notices,
    };
    check_gateway(&config, &own)?;
    check_names(&config)?;
    Ok(config)
}

fn flat_file(flat: &Value) -> Result<Object, Refusal> {
    let object = flat.as_object().cloned();
    object.ok_or_else(|| Refusal::new("flat file", &flat.to_string(), "it is no object", "a JSON object"))
}

fn gateway(keys: &Keys<'_>) -> Result<Option<Address>, Refusal> {
    let text = keys.text("gateway")?;
    let gateway = (!text.is_empty()).then(|| Notation::LeadingZeros.address(&text)).transpose();
    gateway.map_err(|error| Refusal::parse(&keys.path("gateway"), &text, &error))
}

/// `range` and `ipRanges`, and the effective slice size.
fn ranges(
    keys: &Keys<'_>,
    merged: &Object,
    gateway: Option<Address>,
    notices: &mut Vec<Notice>,
) -> Result<(Vec<RangeConfig>, String), Refusal> {
    let slice_size = slice_size(keys)?;
    let kept_back = gateway.filter(|_| keys.flag("exclude_gateway").ok().flatten() == Some(true));
    if keys.flag("exclude_gateway")? == Some(true) && gateway.is_none() {
        return Err(keys.refuse(
            "exclude_gateway",
            "true",
            "there is no gateway to exclude",
            "a gateway beside it",
        ));
    }
    let l3 = keys.flag("enable_l3")?.unwrap_or(false);
    let mut shared = Shared { l3, kept_back, slice_size: slice_size.clone() };
    let mut ranges = Vec::new();
    if keys.text("range")?.is_empty() {
        for key in ["range_start", "range_end", "exclude", "pick_addresses"] {
            if keys.get(key).is_some_and(|value| *value != json!("") && *value != json!([])) {
                let value = keys.get(key).map(ToString::to_string).unwrap_or_default();
                return Err(keys.refuse(key, &value, "there is no range beside it", "range beside it"));
            }
        }
    } else {
        ranges.push(range::read("ipam", merged, Notation::LeadingZeros, &shared, notices)?);
    }
    for (place, value) in keys.list("ipRanges")?.iter().enumerate() {
        let path = keys.path(&format!("ipRanges[{place}]"));
        let object = range::entry(&path, value, notices)?;
        let own_size = Keys::new(&path, object).text("node_slice_size")?;
        if slice_size.is_empty() && !own_size.is_empty() && keys.flag("fast_ipam")? != Some(false) {
            let problem = "a network is cut as a whole, and this one is not";
            let accepted = "node_slice_size of the network, beside ipRanges";
            return Err(Refusal::new(&format!("{path}.node_slice_size"), &own_size, problem, accepted));
        }
        if let Some(first) = ranges.first().and_then(|first| first.slices) {
            let cidr = Notation::LeadingZeros.range(&Keys::new(&path, object).text("range")?);
            if let Ok(parsed) = cidr {
                shared.slice_size = range::size_like(&first, parsed.cidr);
            }
        }
        ranges.push(range::read(&path, object, Notation::Strict, &shared, notices)?);
    }
    if !slice_size.is_empty() && ranges.is_empty() {
        return Err(keys.refuse(
            "node_slice_size",
            &slice_size,
            "there is no range to cut",
            "range beside it",
        ));
    }
    Ok((ranges, slice_size))
}

/// `node_slice_size`, unless `fast_ipam` says that there are no slices.
fn slice_size(keys: &Keys<'_>) -> Result<String, Refusal> {
    let size = keys.text("node_slice_size")?;
    match keys.flag("fast_ipam")? {
        Some(true) if size.is_empty() => {
            Err(keys.refuse("fast_ipam", "true", "it needs the size of a slice", "node_slice_size beside it"))
        }
        Some(false) => Ok(String::new()),
        _ => Ok(size),
    }
}

fn routes(keys: &Keys<'_>) -> Result<Vec<Route>, Refusal> {
    let entry = |(place, value): (usize, &Value)| {
        let path = keys.path(&format!("routes[{place}]"));
        let accepted = "{\"dst\": \"0.0.0.0/0\", \"gw\": \"10.0.0.1\"}, gw being optional";
        let route = Route::deserialize(value)
            .map_err(|error| Refusal::new(&path, &value.to_string(), &error.to_string(), accepted))?;
        Notation::Strict.cidr(&route.dst).map_err(|error| Refusal::parse(&path, &route.dst, &error))?;
        Ok(route)
    };
    keys.list("routes")?.iter().enumerate().map(entry).collect()
}

fn dns(keys: &Keys<'_>) -> Result<Dns, Refusal> {
    let object = Value::Object(keys.object("dns")?);
    Dns::deserialize(&object).map_err(|error| {
        let accepted = "{\"nameservers\": [], \"domain\": \"\", \"search\": [], \"options\": []}";
        keys.refuse("dns", &object.to_string(), &error.to_string(), accepted)
    })
}

/// The network's own value, or true. The flat file does not count: Whereabouts ignores it too, and a cluster
/// that relied on that must not lose its guard.
fn overlapping(own: &Object, flat: &Object, notices: &mut Vec<Notice>) -> Result<bool, Refusal> {
    const KEY: &str = "enable_overlapping_ranges";
    let said = Keys::new("ipam", own).flag(KEY)?;
    let flat = Keys::new("flat file", flat);
    if flat.flag(KEY)?.is_some_and(|flat| flat != said.unwrap_or(true)) {
        let note = "ignored: it is true unless the network's own configuration says otherwise".to_owned();
        notices.push(Notice { key: flat.path(KEY), note });
    }
    Ok(said.unwrap_or(true))
}

/// A flat file without a kubeconfig is incomplete; without any file the agent's own access is used.
fn kubeconfig(keys: &Keys<'_>, has_flat_file: bool) -> Result<String, Refusal> {
    let kubernetes = keys.object("kubernetes")?;
    let path = keys.path("kubernetes");
    let kubernetes = Keys::new(&path, &kubernetes);
    let kubeconfig = kubernetes.text("kubeconfig")?;
    if kubeconfig.is_empty() && has_flat_file {
        let problem = "there is a flat file, and neither it nor the network says how to reach the API server";
        return Err(kubernetes.refuse(
            "kubeconfig",
            "",
            problem,
            "the path of a kubeconfig, or no flat file",
        ));
    }
    Ok(kubeconfig)
}

fn log_level(keys: &Keys<'_>) -> Result<String, Refusal> {
    let level = keys.text("log_level")?.to_ascii_lowercase();
    if level.is_empty() || LEVELS.contains(&level.as_str()) {
        return Ok(level);
    }
    Err(keys.refuse("log_level", &level, "there is no such level", &LEVELS.join(", ")))
}

fn lease(keys: &Keys<'_>) -> Result<[u64; 3], Refusal> {
    let or = |key, default| Ok(keys.number(key)?.filter(|number| *number > 0).unwrap_or(default));
    Ok([
        or("leader_lease_duration", 1500)?,
        or("leader_renew_deadline", 1000)?,
        or("leader_retry_period", 500)?,
    ])
}

/// A gateway that no address can use is a mistake, unless it is the flat file's, which is for many networks.
fn check_gateway(config: &Config, own: &Object) -> Result<(), Refusal> {
    let own = Keys::new("ipam", own);
    match config.gateway {
        Some(gateway)
            if !config.has_family(gateway.family())
                && !config.ranges.is_empty()
                && !own.text("gateway")?.is_empty() =>
        {
            let problem = format!("it is {} and no range is", gateway.family());
            Err(own.refuse("gateway", &gateway.to_string(), &problem, "a gateway of a range's family"))
        }
        _ => Ok(()),
    }
}

/// Objects are named after the network and its ranges: invalid names are refused before the first write.
fn check_names(config: &Config) -> Result<(), Refusal> {
    for range in &config.ranges {
        let cidr = range.cidr().to_string();
        pool_name(&config.network, "", &cidr).map_err(|error| {
            Refusal::new(
                "ipam.network_name",
                &config.network,
                &error.to_string(),
                "lower-case letters, digits, '-' and '.'",
            )
        })?;
    }
    if config.is_sliced() {
        slice_pool_name(&config.network, &config.name).map_err(|error| {
            let key = if config.network.is_empty() { "name" } else { "ipam.network_name" };
            Refusal::new(key, &error.value, &error.to_string(), "lower-case letters, digits, '-' and '.'")
        })?;
    }
    Ok(())
}
