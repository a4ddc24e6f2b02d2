//! The dialect of nodes whose addresses another plugin gives: `"type": "tenure"` or `"coil"`, chained after it. It adds egress and
//! answers with the result of the plugins before it.

use std::net::IpAddr;

use tenure_cni::{CniResult, Code, Failure, NetworkConfig};

use super::{Attachment, Egress, Records};
use crate::key::Pod;
use crate::serve::{Answered, Call, Deleted, Dialect};

/// The plugin's names.
const OURS: [&str; 2] = ["tenure", "coil"];

/// Egress for pods that have their addresses of another plugin.
#[derive(Debug)]
pub(crate) struct EgressOnly {
    egress: Egress,
    records: Records,
}

impl EgressOnly {
    pub(crate) fn new(egress: Egress, records: Records) -> Self {
        Self { egress, records }
    }

    async fn add_egress(&self, call: &Call<'_>) -> Result<CniResult, Failure> {
        let previous = previous(call)?;
        let pod = call.pod_name()?;
        let wanted = self.egress.wanted(pod.as_ref()).await?;
        let attachment = attachment(call, previous)?;
        let written = |error: std::io::Error| {
            let message = format!("cannot remember the attachment: {error}");
            Failure::new(Code::TryAgainLater, message).detail("is the agent's run directory writable?")
        };
        self.records.put(&attachment).map_err(written)?;
        self.egress.attach(attachment, &wanted).await?;
        Ok(previous.clone())
    }
}

fn previous<'c>(call: &Call<'c>) -> Result<&'c CniResult, Failure> {
    call.network.previous.as_ref().ok_or_else(|| {
        let message = format!("prevResult is missing in network {:?}", call.network.name);
        Failure::new(Code::InvalidConfig, message).detail(
            "this agent gives no addresses (--enable-ipam=false): put this plugin after another one in the list, or start the \
             agent with --enable-ipam=true",
        )
    })
}

/// The interface that the plugins before this one made, with its addresses.
fn attachment(call: &Call<'_>, previous: &CniResult) -> Result<Attachment, Failure> {
    let ifname = &call.message.ifname;
    let inside = |index: Option<usize>| {
        // An address without an interface is the container's own, as before version 0.3.
        let Some(interface) = index.and_then(|index| previous.interfaces.get(index)) else { return true };
        interface.name == *ifname && !interface.sandbox.is_empty()
    };
    let addresses = previous.ips.iter().filter(|ip| inside(ip.interface));
    let addresses = addresses.filter_map(|ip| ip.address.split('/').next()?.parse::<IpAddr>().ok());
    let pod = call.pod_name()?.unwrap_or_default();
    let pod = Pod { namespace: pod.namespace, name: pod.name, uid: pod.uid };
    Ok(Attachment::new(&call.key()?, &pod, &call.message.netns, addresses))
}

impl Dialect for EgressOnly {
    fn accepts(&self) -> &'static str {
        "\"tenure\" or \"coil\" after another plugin"
    }

    fn is_for(&self, network: &NetworkConfig) -> bool {
        OURS.contains(&network.plugin.as_str())
    }

    fn add<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a, CniResult> {
        Box::pin(self.add_egress(call))
    }

    fn del<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a, Deleted> {
        Box::pin(async move {
            let key = call.key()?;
            // The namespace goes, and all egress with it.
            if let Err(error) = self.records.remove(key.network(), key.container(), key.interface()) {
                let message = format!("cannot forget the attachment: {error}");
                return Ok(Deleted::Later(Failure::new(Code::TryAgainLater, message)));
            }
            self.egress.detached(key.container(), key.interface());
            Ok(Deleted::Done)
        })
    }

    fn check<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a> {
        Box::pin(async move {
            let wanted = self.egress.wanted(call.pod_name()?.as_ref()).await?;
            self.egress.check(&attachment(call, previous(call)?)?, &wanted).await
        })
    }

    fn gc<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a> {
        Box::pin(async move {
            let kept = self.records.retain(&call.network.name, &call.alive()?);
            kept.map_err(|error| {
                Failure::new(Code::TryAgainLater, format!("cannot forget attachments: {error}"))
            })
        })
    }

    fn status<'a>(&'a self, _: &'a Call<'a>) -> Answered<'a> {
        Box::pin(async move { Ok(()) })
    }
}
