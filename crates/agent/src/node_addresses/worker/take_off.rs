//! Takes addresses off the interfaces, before they are given back.

use std::collections::BTreeSet;

use ipnet::IpNet;
use tenure_api::nmstate::mode;
use tenure_linux::interface::InterfaceState;

use super::{Worker, owned};
use crate::node_addresses::facts::Facts;
use crate::node_addresses::kernel::{clearing, failure};
use crate::node_addresses::machine::{Again, Failure};
use crate::node_addresses::manager::Gone;
use crate::node_addresses::record::Record;

impl Worker {
    /// Takes everything of an enactment off the interfaces, and returns when a dump shows that it is.
    pub(super) async fn take_off(
        &mut self,
        facts: Option<&Facts>,
        record: Option<&Record>,
    ) -> Result<(), Failure> {
        let all = self.kernel.look([]).await?;
        let mut names: BTreeSet<String> =
            record.iter().flat_map(|it| it.interfaces()).map(ToOwned::to_owned).collect();
        let mut recorded: Vec<(String, IpNet)> =
            record.iter().flat_map(|it| it.addresses()).map(owned).collect();
        let said = facts.and_then(|it| it.said.applied.as_ref());
        for address in said.iter().flat_map(|it| &it.addresses) {
            names.insert(address.interface.clone());
            recorded.extend(address.address.parse().ok().map(|it| (address.interface.clone(), it)));
        }
        let allocated: Vec<IpNet> =
            facts.iter().flat_map(|it| it.allocated.values()).map(|it| it.0).collect();
        // Without a record, our mark tells.
        for interface in &all {
            let ours = |address: &IpNet| interface.address(*address).is_some_and(|it| it.ours);
            if allocated.iter().any(ours) {
                names.insert(interface.name.clone());
            }
        }
        let on_names = names.iter().flat_map(|name| allocated.iter().map(|address| (name.clone(), *address)));
        recorded.extend(on_names.collect::<Vec<_>>());
        let by_manager = record.is_some_and(Record::is_of_manager)
            || said.and_then(|it| it.mode.as_deref()) == Some(mode::NETWORK_MANAGER);
        let there: Vec<&InterfaceState> = all.iter().filter(|it| names.contains(&it.name)).collect();
        if by_manager {
            // Also of an interface that is not there, or has none of them now: a profile may put them back.
            let routes = record.iter().flat_map(|it| it.routes()).cloned().collect();
            self.take_off_by_manager(Gone { addresses: recorded.clone(), routes }).await?;
        } else {
            let plans = there.iter().map(|it| clearing(&it.name, &recorded)).collect();
            self.kernel.apply(plans).await?;
        }
        let all = self.kernel.look([]).await?;
        let gone = recorded.iter().map(|(_, address)| *address).chain(allocated);
        for address in gone {
            if let Some(interface) = all.iter().find(|it| it.has_ip(address.addr())) {
                let message = format!(
                    "address {} is still on interface {:?}, so it is not given back; accepted is an interface without it",
                    address.addr(),
                    interface.name
                );
                return Err(failure(message, Again::Later));
            }
        }
        // Before anybody is told: a restart must not put it back.
        let Some(uid) = facts.map(|it| &it.uid).or(record.map(|it| &it.uid)) else { return Ok(()) };
        self.policies.remove(uid);
        self.logged.remove(uid);
        self.drop_record(uid)
    }

    async fn take_off_by_manager(&self, gone: Gone) -> Result<(), Failure> {
        if gone.is_empty() {
            return Ok(());
        }
        let Some(manager) = &self.manager else {
            return Err(failure("NetworkManager cannot be asked".to_owned(), Again::Later));
        };
        let applying = manager.remove(&gone, self.probe * 2).await?;
        match self.ask_api_server().await {
            Ok(()) => applying.commit().await,
            Err(failure) => {
                applying.roll_back().await?;
                Err(failure)
            }
        }
    }
}
