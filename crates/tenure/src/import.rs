//! `tenure import`: from another system's addresses to pools, with blocks reserved for the pods that still have old addresses.
//!
//! ```text
//!  etcd ─────▶ coil_v1 ────┐
//!  files ────▶ host_local ─┼─▶ records ──▶ plan ──▶ cluster (adapt) ──▶ manifests ──▶ standard output
//!  objects ──▶ calico ─────┘
//!                                 reserved blocks, pods ──▶ finish (plan) ──▶ deletes
//! ```
//!
//! Importing changes nothing: it writes manifests, and whoever runs it applies them. It refuses when one record cannot be understood,
//! because what it left out could be an address in use. `finish` removes reserved blocks once no pod has an address of them.

mod calico;
mod cluster;
mod coil_v1;
mod etcd;
mod finding;
mod finish;
mod host_local;
mod manifests;
mod plan;
mod records;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use kube::Client;

use self::cluster::Cluster;
use self::manifests::Summary;
use self::records::{Records, Renames};
use crate::table::Output;

/// The label of reserved blocks that were imported. The value names the system that they come from.
pub(crate) const IMPORTED: &str = "tenure/imported";
/// The exit code when nothing was imported because of errors.
const REFUSED: u8 = 1;

/// The options of the verb.
#[derive(Args, Debug)]
pub(crate) struct ImportOptions {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Convert what Coil v1 has in etcd
    CoilV1(CoilV1Options),
    /// Convert what the plugin host-local has in files
    HostLocal(HostLocal),
    /// Convert what Calico's IPAM has in objects
    Calico(CalicoOptions),
    /// Remove reserved blocks whose old pods are gone
    Finish(finish::FinishOptions),
}

/// Options of all conversions.
#[derive(Args, Clone, Debug, Default)]
struct CommonOptions {
    /// Kubeconfig file of the cluster; without it the usual places
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long)]
    context: Option<String>,
    /// Show what would be written, and write no manifests
    #[arg(long)]
    dry_run: bool,
    /// The format of the manifests; with --dry-run json is for programs
    #[arg(short, long, value_enum, default_value = "yaml")]
    output: ManifestFormat,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ManifestFormat {
    /// Documents for `kubectl apply`.
    #[default]
    Yaml,
    /// A list for `kubectl apply`.
    Json,
}

/// Pools that get another name.
#[derive(Args, Clone, Debug, Default)]
struct RenameOptions {
    /// Give a pool another name
    #[arg(long = "rename", value_name = "OLD=NEW", value_parser = rename)]
    renames: Vec<(String, String)>,
}

#[derive(Args, Debug)]
struct CoilV1Options {
    #[command(flatten)]
    etcd: etcd::EtcdOptions,
    /// Prefix of Coil's keys
    #[arg(long, value_name = "PREFIX", default_value = "/coil/")]
    prefix: String,
    /// Do not ask the cluster for its namespaces, nodes, pools and blocks
    #[arg(long, conflicts_with_all = ["kubeconfig", "context"])]
    offline: bool,
    #[command(flatten)]
    rename: RenameOptions,
    #[command(flatten)]
    common: CommonOptions,
}

#[derive(Args, Debug)]
struct HostLocal {
    #[command(flatten)]
    files: host_local::HostLocalOptions,
    /// Do not ask the cluster for its nodes, pools and blocks
    #[arg(long, conflicts_with_all = ["kubeconfig", "context"])]
    offline: bool,
    #[command(flatten)]
    common: CommonOptions,
}

#[derive(Args, Debug)]
struct CalicoOptions {
    #[command(flatten)]
    rename: RenameOptions,
    #[command(flatten)]
    common: CommonOptions,
}

fn rename(text: &str) -> Result<(String, String)> {
    match text.split_once('=') {
        Some((old, new)) if !old.is_empty() && !new.is_empty() => Ok((old.to_owned(), new.to_owned())),
        _ => bail!("accepted is OLD=NEW"),
    }
}

impl RenameOptions {
    fn renames(&self) -> Result<Renames> {
        let mut renames = BTreeMap::new();
        for (old, new) in &self.renames {
            if renames.insert(old.clone(), new.clone()).is_some() {
                bail!("--rename {old}=…: is there twice; accepted is one new name for each pool");
            }
        }
        Ok(Renames(renames))
    }
}

impl CommonOptions {
    async fn client(&self) -> Result<Client> {
        Ok(tenure_daemon::connect(self.kubeconfig.as_deref(), self.context.as_deref()).await?)
    }
}

/// Runs the verb.
pub(crate) async fn run(options: ImportOptions) -> Result<Output> {
    match options.what {
        What::CoilV1(options) => {
            let renames = options.rename.renames()?;
            let entries = etcd::read(&options.etcd, &options.prefix).await?;
            let records = coil_v1::read(&options.prefix, &entries, &renames);
            convert(&records, options.offline, &options.common).await
        }
        What::HostLocal(options) => {
            let records = host_local::read(&options.files)?;
            convert(&records, options.offline, &options.common).await
        }
        What::Calico(options) => {
            let client = options.common.client().await?;
            let records = calico::read(&calico::fetch(&client).await?, &options.rename.renames()?);
            convert(&records, false, &options.common).await
        }
        What::Finish(options) => finish::run(options).await,
    }
}

async fn convert(records: &Records, offline: bool, common: &CommonOptions) -> Result<Output> {
    let mut plan = plan::plan(records);
    if offline {
        cluster::guess_namespaces(&mut plan, records);
    } else {
        cluster::adapt(&mut plan, &Cluster::read(&common.client().await?).await?);
    }
    let summary = Summary::of(&plan);
    let errors = plan.errors().count();
    let mut output = match (common.dry_run, common.output) {
        (true, ManifestFormat::Json) => Output::text(serde_json::to_string_pretty(&summary)? + "\n"),
        (true, ManifestFormat::Yaml) => Output::text(summary.text()),
        (false, format) => {
            let text = match format {
                _ if errors > 0 => String::new(),
                ManifestFormat::Yaml => manifests::yaml(&plan)?,
                ManifestFormat::Json => manifests::json(&plan)?,
            };
            Output { notes: summary.text(), ..Output::text(text) }
        }
    };
    if errors > 0 {
        let _ = writeln!(output.notes, "nothing is imported because of {errors} errors");
        output.code = REFUSED;
    }
    Ok(output)
}
