//! CNI configuration, flat file and CNI arguments → the effective configuration.

use serde_json::{Value, json};
use tenure_ipam::{Address, Family};
use tenure_whereabouts::config::{Arguments, Config, RangeConfig, StaticAddress};

use super::{Answer, Input, refused};

pub(super) fn config(input: &Input) -> Answer {
    let arguments = Arguments::parse(input.text("cni_args")).map_err(refused)?;
    let conf = input.get("conf").cloned().unwrap_or_default();
    let config = Config::load(&conf, input.get("flat"), &arguments).map_err(refused)?;
    let mut answer = json!({
        "cni_version": conf["cniVersion"].as_str().unwrap_or_default(),
        "name": config.name,
        "kubeconfig": config.kubeconfig,
        "lease_ms": config.lease_ms,
        "log_level": config.log_level,
        "log_file": config.log_file,
        "network_name": config.network,
        "node_slice_size": config.slice_size,
        "overlapping": config.overlapping,
        "podref": config.podref(),
        "ranges": config.ranges.iter().map(range).collect::<Vec<_>>(),
        "static": config.statics.iter().map(fixed).collect::<Vec<_>>(),
    });
    if let Some(gateway) = config.gateway {
        answer["gateway"] = json!(gateway.to_string());
    }
    Ok(answer)
}

fn range(range: &RangeConfig) -> Value {
    let mut answer = json!({"range": range.cidr().to_string(), "range_start": range.start.to_string()});
    if let Some(end) = range.end {
        answer["range_end"] = json!(end.to_string());
    }
    if !range.exclude.is_empty() {
        answer["exclude"] = json!(range.exclude);
    }
    answer
}

fn fixed(fixed: &StaticAddress) -> Value {
    let family = |address: Address| if address.family() == Family::V4 { "v4" } else { "v6" };
    let mut text = format!("{}/{} {}", fixed.address, fixed.cidr.prefix(), family(fixed.address));
    if let Some(gateway) = fixed.gateway {
        text = format!("{text} gw {gateway}");
    }
    json!(text)
}
