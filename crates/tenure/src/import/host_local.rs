//! What the plugin host-local has on disk: a directory for each network, and in it a file for each address in use, named for it.
//! The first line is the container's ID, the second the interface.
//!
//! The files do not tell which addresses a network has, so whoever imports says which pool they become. Nodes' directories are
//! read together, each below the node's name, because a block that two nodes use must be seen.

use std::fs;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use tenure_ipam::{Cidr, Notation, Subnet};

use super::finding::quoted;
use super::records::{Origin, PoolRecord, Records, Use};

/// The most bytes of a file that are read.
const MOST: u64 = 4096;

/// Where the files are, and what they become.
#[derive(Args, Clone, Debug)]
pub(super) struct HostLocalOptions {
    /// Directory of this node: /var/lib/cni/networks, or a copy of it; repeat it for several nodes
    #[arg(long = "node", value_name = "NODE=DIRECTORY", value_parser = node, required = true)]
    nodes: Vec<(String, PathBuf)>,
    /// Read this network alone; without it, all that the directories have
    #[arg(long = "network", value_name = "NAME")]
    networks: Vec<String>,
    /// Name of the pool
    #[arg(long, default_value = tenure_api::coil::DEFAULT_POOL)]
    pool: String,
    /// A subnet of the pool: a network, or one of each family with a comma between them
    #[arg(long = "subnet", value_name = "CIDR[,CIDR]", value_parser = subnet, required = true)]
    subnets: Vec<Subnet>,
    /// A block of the pool has two to this power of addresses
    #[arg(long, value_name = "BITS", default_value_t = 5, value_parser = clap::value_parser!(u8).range(0..=64))]
    block_size_bits: u8,
}

fn node(text: &str) -> Result<(String, PathBuf)> {
    match text.split_once('=') {
        Some((node, directory)) if !node.is_empty() && !directory.is_empty() => {
            Ok((node.to_owned(), directory.into()))
        }
        _ => bail!("accepted is NODE=DIRECTORY, such as node1=/var/lib/cni/networks"),
    }
}

fn subnet(text: &str) -> Result<Subnet> {
    let parse = |text: &str| Notation::Strict.cidr(text).map_err(anyhow::Error::from);
    match text.split_once(',') {
        None => Ok(Subnet::single(parse(text)?)),
        Some((one, other)) => {
            let (one, other): (Cidr, Cidr) = (parse(one)?, parse(other)?);
            let (ipv4, ipv6) = if one.family() < other.family() { (one, other) } else { (other, one) };
            if ipv4.family() == ipv6.family() {
                bail!("accepted is one network, or one of each family");
            }
            Ok(Subnet::dual(ipv4, ipv6))
        }
    }
}

/// Reads the files.
pub(super) fn read(options: &HostLocalOptions) -> Result<Records> {
    let mut records = Records::of(Origin::HostLocal);
    records.pools.push(PoolRecord {
        at: format!("--pool {}", options.pool),
        name: options.pool.clone(),
        block_bits: options.block_size_bits,
        subnets: options.subnets.clone(),
    });
    for (node, directory) in &options.nodes {
        let mut found = false;
        for network in entries(directory)? {
            let name = network.file_name().unwrap_or_default().to_string_lossy();
            if !options.networks.is_empty() && !options.networks.contains(&name.clone().into_owned()) {
                continue;
            }
            if !network.is_dir() {
                records.note(network.display().to_string(), "is no directory of a network", "it is ignored");
                continue;
            }
            found = true;
            for file in entries(&network)? {
                one(&mut records, node, &file)?;
            }
        }
        if !found {
            records.error(
                directory.display().to_string(),
                "there is no directory of a network",
                "accepted is a directory such as /var/lib/cni/networks; --network names one of those in it",
            );
        }
    }
    Ok(records)
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let act = || format!("reading {}", directory.display());
    let entries = fs::read_dir(directory).with_context(act)?;
    let mut paths =
        entries.map(|entry| Ok(entry.with_context(act)?.path())).collect::<Result<Vec<PathBuf>>>()?;
    paths.sort();
    Ok(paths)
}

fn one(records: &mut Records, node: &str, path: &Path) -> Result<()> {
    let at = path.display().to_string();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name == "lock" || name.starts_with("last_reserved_ip") {
        return Ok(());
    }
    let Ok(address) = name.parse::<IpAddr>() else {
        records.error(
            at,
            "the file is named for no address",
            "accepted is a file that host-local has written",
        );
        return Ok(());
    };
    let metadata = fs::symlink_metadata(path).with_context(|| format!("reading {at}"))?;
    if !metadata.is_file() {
        records.error(at, "is no plain file", "accepted is a file that host-local has written");
        return Ok(());
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(path).with_context(|| format!("reading {at}"))?;
    file.take(MOST).read_to_end(&mut bytes).with_context(|| format!("reading {at}"))?;
    let text = String::from_utf8_lossy(&bytes);
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let holder = match (lines.next(), lines.next()) {
        (None, _) => "a container that the file does not name".to_owned(),
        (Some(container), None) => format!("container {}", quoted(container)),
        (Some(container), Some(interface)) => {
            format!("container {} ({})", quoted(container), quoted(interface))
        }
    };
    let holder = format!("{holder} on node {node}");
    records.uses.push(Use { at, address: address.into(), holder, node: Some(node.to_owned()) });
    Ok(())
}

#[cfg(test)]
mod tests;
