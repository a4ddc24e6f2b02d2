//! The parts that come with the agent, and how they use each other. Nothing else of the agent's core names a dialect.

use std::sync::Arc;
use std::time::Duration;

use super::error::StartError;
use super::options::AgentOptions;
use crate::alias::{Aliases, GcpIpam};
use crate::claims::{Claims, ClaimsOptions, Reason};
use crate::coil::Coil;
use crate::egress::{Attachments, Egress, EgressInspector, EgressOnly, Records};
use crate::node_addresses::NodeAddresses;
use crate::part::{Core, Inspect, Started};
use crate::serve::Dialect;
use crate::sources::BlockSource;
use crate::whereabouts::Whereabouts;
use crate::whereabouts::ledgers::{Ledgers, LedgersOptions};
use crate::whereabouts::slices::{Slices, SlicesOptions};

/// Longer than any agent runs.
const NEVER: Duration = Duration::from_hours(100 * 365 * 24);

/// Starts all parts, in the order in which their dialects are asked. Further parts come first: our plugin may be asked for
/// addresses of theirs. `claim_users` tells whether the journal has any.
pub(super) fn start(
    core: &Core,
    options: &AgentOptions,
    claim_users: bool,
) -> Result<Vec<Started>, StartError> {
    let further = options.parts.iter().map(|part| part.start(core).map_err(StartError::Part));
    let mut parts = further.collect::<Result<Vec<_>, _>>()?;
    let claims = start_claims(core, options, claim_users);
    parts.extend(claims.as_ref().map(claims_part));
    let (egress, egress_part) = start_egress(core, options)?;
    parts.extend(alias_part(core, options, claims.as_ref()));
    let chained = egress.as_ref().is_some_and(Egress::is_chained);
    for mut part in
        [whereabouts_part(core, options, claims.as_ref()), coil_part(core, options, claims, egress)]
    {
        if chained {
            // Another plugin gives addresses. What pods still have of ours stays known.
            part.dialects.clear();
        }
        parts.push(part);
    }
    parts.extend(egress_part);
    parts.extend(node_addresses_part(core, options));
    Ok(parts)
}

fn start_claims(core: &Core, options: &AgentOptions, claim_users: bool) -> Option<Claims> {
    // Outside Kubernetes neither pods nor networks can refer to a claim.
    if options.outside_kubernetes {
        return None;
    }
    let routes = options.route_blocks.then(|| core.objects.clone());
    let around = (core.node.clone(), core.pods.clone(), routes);
    let wanted = ClaimsOptions {
        cluster_network: options.persistent_network.clone(),
        default_network: options.default_network.clone(),
        namespace: options.whereabouts_namespace.clone(),
        ..ClaimsOptions::default()
    };
    let claims =
        Claims::start(core.client.clone(), wanted, Arc::clone(&core.clock), around, core.stop.clone());
    if claim_users {
        claims.watch(Reason::ClaimUses);
    }
    Some(claims)
}

fn claims_part(claims: &Claims) -> Started {
    let ready = {
        let claims = claims.clone();
        Box::pin(async move { claims.ready().await })
    };
    Started { inspect: Some(Arc::new(claims.clone())), ready: Some(ready), ..Started::default() }
}

fn whereabouts_part(core: &Core, options: &AgentOptions, claims: Option<&Claims>) -> Started {
    let mut wanted = SlicesOptions::new(&core.name, &options.whereabouts_namespace);
    if options.outside_kubernetes {
        // Such an API has no pods, so a missing pod means nothing.
        wanted.look_at_pods = NEVER;
    }
    let (clock, node, stop) = (Arc::clone(&core.clock), core.node.clone(), core.stop.clone());
    let slices = Slices::start(core.client.clone(), wanted, clock, node, stop);
    let wanted = LedgersOptions {
        namespace: options.whereabouts_namespace.clone(),
        reserving_always: options.whereabouts_reserves_always,
        cooling: options.node.cooling,
        ..LedgersOptions::new(&core.name, options.paths.ledgers())
    };
    let ledgers = Ledgers::new(core.client.clone(), wanted, Arc::clone(&core.clock), core.stop.clone());
    let pods = core.pods.clone();
    let outside = options.outside_kubernetes;
    let dialect = Whereabouts::new(ledgers, slices.clone(), pods, &core.run, outside);
    let slices = Arc::new(slices);
    Started {
        dialects: vec![Arc::new(dialect.with_claims(claims.cloned()))],
        source: Some(Arc::clone(&slices) as Arc<dyn BlockSource>),
        inspect: Some(slices),
        ..Started::default()
    }
}

fn coil_part(core: &Core, options: &AgentOptions, claims: Option<Claims>, egress: Option<Egress>) -> Started {
    let gateways = (options.kernel.gateway_v4, options.kernel.gateway_v6);
    let dialect = Coil::new(core.objects.resolver(), gateways).with_claims(claims).with_egress(egress);
    Started { dialects: vec![Arc::new(dialect)], ..Started::default() }
}

fn start_egress(
    core: &Core,
    options: &AgentOptions,
) -> Result<(Option<Egress>, Option<Started>), StartError> {
    // Outside Kubernetes no pod can name an Egress.
    let Some(wanted) = options.egress.clone().filter(|_| !options.outside_kubernetes) else {
        return Ok((None, None));
    };
    let records = Records::new(options.paths.egress());
    let attachments = if wanted.chained {
        Attachments::Records(records.clone())
    } else {
        Attachments::Node(core.node.clone())
    };
    let around = (core.pods.clone(), core.objects.clone(), attachments);
    let outside = (Arc::clone(&core.clock), core.namespace.clone());
    let egress = Egress::start(core.client.clone(), wanted, outside, around, core.stop.clone())
        .map_err(StartError::Egress)?;
    let chained: Option<Arc<dyn Dialect>> =
        egress.is_chained().then(|| Arc::new(EgressOnly::new(egress.clone(), records)) as Arc<dyn Dialect>);
    let part = Started {
        dialects: chained.into_iter().collect(),
        inspect: Some(Arc::new(EgressInspector::new(egress.clone()))),
        ..Started::default()
    };
    Ok((Some(egress), Some(part)))
}

fn node_addresses_part(core: &Core, options: &AgentOptions) -> Option<Started> {
    // Outside Kubernetes nobody writes policies.
    let wanted = options.node_addresses.clone().filter(|_| !options.outside_kubernetes)?;
    let places = (core.namespace.clone(), core.state.clone());
    let (clock, stop) = (Arc::clone(&core.clock), core.stop.clone());
    let started = NodeAddresses::start(core.client.clone(), &core.name, wanted, places, clock, stop);
    Some(Started { inspect: Some(Arc::new(started) as Arc<dyn Inspect>), ..Started::default() })
}

fn alias_part(core: &Core, options: &AgentOptions, claims: Option<&Claims>) -> Option<Started> {
    // Outside Kubernetes nobody attaches alias ranges.
    let wanted = options.alias.clone().filter(|_| !options.outside_kubernetes)?;
    let (clock, around) = (Arc::clone(&core.clock), (core.node.clone(), core.pods.clone()));
    let aliases = Aliases::start(core.client.clone(), &core.name, wanted, clock, around, core.stop.clone());
    let dialect = GcpIpam::new(aliases.clone(), core.pods.clone()).with_claims(claims.cloned());
    let aliases = Arc::new(aliases);
    Some(Started {
        dialects: vec![Arc::new(dialect)],
        source: Some(Arc::clone(&aliases) as Arc<dyn BlockSource>),
        inspect: Some(aliases),
        ..Started::default()
    })
}
