//! `tenure provision gcp`: makes the addresses of an alias pool, and the pool.
//!
//! ```text
//!  what is there ──read──▶ plan (no I/O) ──▶ first step that is not done ──perform──▶ read again …
//! ```
//!
//! The plan is made anew after every step from what is there, and from nothing that was remembered. So a run that was killed anywhere
//! is finished by the next one, and a run that has nothing to do changes nothing.

mod advice;
mod discover;
mod perform;
mod plan;
mod seen;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use serde::Serialize;
use tenure_api::cloud::SECONDARY_RANGE;
use tenure_cloud::gcp::{Endpoints, Gcp, Metadata, TokenSource, Tokens};
use tenure_handles::{SystemClock, SystemEntropy};

use self::discover::ClusterSubnet;
use self::perform::Performer;
use self::plan::{Plan, Wanted};
use crate::table::{self, Format, Output};

/// The options of the verb.
#[derive(Args, Debug)]
pub(crate) struct ProvisionOptions {
    #[command(subcommand)]
    cloud: Cloud,
}

#[derive(Subcommand, Debug)]
enum Cloud {
    /// Reserve a range, add it to the cluster's subnet, and make the IPPool; again and again without harm
    Gcp(Box<GcpOptions>),
}

/// The options for Google's cloud.
#[derive(Args, Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own on the command line")]
pub(crate) struct GcpOptions {
    /// Print what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Add one more range than the pool has now
    #[arg(long, conflicts_with_all = ["ranges", "remove"])]
    grow: bool,
    /// Add ranges until the pool has so many in all; unlike --grow it can be repeated
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=65), conflicts_with = "remove")]
    ranges: Option<u16>,
    /// Remove the pool, and the ranges and reservations that were made for it; refused while addresses are in use
    #[arg(long)]
    remove: bool,
    /// Use a part of the subnet's primary range, --cidr: makes the IPPool and nothing else
    #[arg(long = "static", requires = "cidr")]
    is_static: bool,
    /// The addresses of a new range, such as 10.111.0.0/16; without it Google chooses
    #[arg(long, value_name = "CIDR")]
    cidr: Option<String>,
    /// The size of a new range
    #[arg(long, value_name = "BITS", default_value_t = 16, value_parser = clap::value_parser!(u8).range(8..=29))]
    prefix: u8,
    /// Where Google chooses it
    #[arg(long, value_name = "CIDR", default_value = "10.0.0.0/8")]
    within: String,

    /// Name of the IPPool; ippool-SUBNET if not given
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    /// Name of the subnet's secondary range; further ones are NAME-1, NAME-2, …
    #[arg(long, value_name = "NAME", default_value = SECONDARY_RANGE)]
    range_name: String,
    /// Name of the reservation; tenure-CLUSTER-RANGE if not given
    #[arg(long, value_name = "NAME")]
    internal_range: Option<String>,

    /// Project; the machine's if not given
    #[arg(long)]
    project: Option<String>,
    /// Region; that of the zone if not given
    #[arg(long)]
    region: Option<String>,
    /// Zone; the machine's if not given
    #[arg(long)]
    zone: Option<String>,
    /// A machine in the subnet; this one if not given
    #[arg(long)]
    instance: Option<String>,
    /// The subnet, by name or as projects/PROJECT/regions/REGION/subnetworks/NAME; the machine's if not given
    #[arg(long)]
    subnet: Option<String>,
    /// The cluster, which names the reservation; the machine's if not given
    #[arg(long)]
    cluster: Option<String>,

    /// Kubeconfig file of the cluster; without it the usual places
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long)]
    context: Option<String>,
    /// File with an access token; without it the metadata server gives one
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Host and port of the metadata server
    #[arg(long, value_name = "HOST", env = "GCE_METADATA_HOST", default_value = "metadata.google.internal")]
    metadata_host: String,
    /// Address of the Compute API, with its version
    #[arg(long, value_name = "URL", default_value_t = Endpoints::default().compute)]
    compute_endpoint: String,
    /// Address of the Network Connectivity API, with its version
    #[arg(long, value_name = "URL", default_value_t = Endpoints::default().connectivity)]
    connectivity_endpoint: String,
    /// How long to try
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = tenure_daemon::duration)]
    timeout: Duration,
    /// How often to ask whether an operation has ended
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = tenure_daemon::duration)]
    poll: Duration,
    /// How the answer looks
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

/// What was found and done, as `tenure provision gcp -o json` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    project: String,
    region: String,
    subnet: String,
    cluster: Option<String>,
    pool: String,
    /// Whether nothing was changed, because of `--dry-run`.
    dry_run: bool,
    steps: Vec<plan::Row>,
}

/// Runs the verb.
pub(crate) async fn run(options: ProvisionOptions) -> Result<Output> {
    let Cloud::Gcp(options) = options.cloud;
    let metadata = Metadata::at(&options.metadata_host);
    let source = match &options.token_file {
        Some(path) => TokenSource::File(path.clone()),
        None => TokenSource::Metadata(metadata.clone()),
    };
    let endpoints = Endpoints {
        compute: options.compute_endpoint.clone(),
        connectivity: options.connectivity_endpoint.clone(),
    };
    let gcp = Gcp::new("", endpoints, Tokens::new(source, Arc::new(SystemClock)))?;
    let place = discover::place(&options, &metadata, &gcp).await?;
    let client = tenure_daemon::connect(options.kubeconfig.as_deref(), options.context.as_deref()).await?;
    say(&format!("project {}, region {}, subnet {}", place.project, place.region, place.subnet));
    let wanted = wanted(&options, &place)?;
    let performer = Performer {
        gcp: gcp.in_project(&place.project),
        client,
        entropy: SystemEntropy::new().context("asking the system for randomness")?,
        poll: options.poll,
        timeout: options.timeout,
        place: place.clone(),
    };
    let plan = if options.dry_run { performer.plan(wanted).await? } else { performer.finish(wanted).await? };
    answer(&options, &place, &plan)
}

/// What the options ask for.
fn wanted(options: &GcpOptions, place: &ClusterSubnet) -> Result<Wanted> {
    let of_cluster = place.cluster.as_deref().unwrap_or(&place.subnet);
    let reservation = options
        .internal_range
        .clone()
        .unwrap_or_else(|| format!("tenure-{of_cluster}-{}", options.range_name));
    // Room for the number of the last range.
    let longest = 60;
    if reservation.len() > longest {
        bail!(
            "the name \"{reservation}\" of the reservation is too long; accepted is --internal-range NAME with at most {longest} \
             characters"
        );
    }
    Ok(Wanted {
        place: place.clone(),
        pool: options.pool.clone().unwrap_or_else(|| format!("ippool-{}", place.subnet)),
        range_name: options.range_name.clone(),
        reservation,
        cidr: options.cidr.clone(),
        prefix: options.prefix,
        within: options.within.clone(),
        mode: match options {
            GcpOptions { remove: true, .. } => plan::Mode::Remove,
            GcpOptions { is_static: true, .. } => plan::Mode::Static,
            _ => plan::Mode::Secondary,
        },
        count: match options {
            GcpOptions { grow: true, .. } => plan::Count::OneMore,
            GcpOptions { ranges: Some(count), .. } => plan::Count::AtLeast(usize::from(*count)),
            _ => plan::Count::AtLeast(1),
        },
    })
}

fn answer(options: &GcpOptions, place: &ClusterSubnet, plan: &Plan) -> Result<Output> {
    let answer = Answer {
        project: place.project.clone(),
        region: place.region.clone(),
        subnet: place.subnet.clone(),
        cluster: place.cluster.clone(),
        pool: plan.pool.clone(),
        dry_run: options.dry_run,
        steps: plan.rows(),
    };
    Output::either(options.output, &answer, || text(&answer))
}

fn text(answer: &Answer) -> String {
    if answer.steps.is_empty() {
        return "There is nothing to do.\n".to_owned();
    }
    table::columns(
        ["STATE", "STEP", "OBJECT", "ADDRESSES"],
        answer.steps.iter().map(|row| {
            let state = if row.done { "done" } else { "to do" };
            [state.to_owned(), row.act.to_owned(), row.object.clone(), row.addresses.clone()]
        }),
    )
}

/// A line of progress.
fn say(line: &str) {
    // Nobody reads it: no reason to stop.
    let _ = writeln!(io::stderr(), "{line}");
}
