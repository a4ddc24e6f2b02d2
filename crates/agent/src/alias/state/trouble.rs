//! Why a pod waits, in words.

use tenure_ipam::{Address, Cidr};

use super::State;

impl State {
    /// Why a pod may be waiting: for this address, or for any.
    pub(in super::super) fn trouble(&self, address: Option<Address>) -> Option<String> {
        let alias = address.and_then(|address| self.aliases.get_key_value(&Cidr::host(address)));
        if let Some((cidr, alias)) = alias {
            let state = if let Some(problem) = &alias.problem {
                problem.clone()
            } else if !alias.attached {
                format!("{cidr} is being attached to this machine")
            } else if !self.machine.contains(cidr) {
                self.not_arrived(cidr)
            } else if alias.pod.is_none() {
                format!("{cidr} is on this machine, but was not moved here for a pod")
            } else {
                format!("{cidr} is on this machine for another pod")
            };
            return Some(state);
        }
        if address.is_some() {
            return None;
        }
        let mut pending = self.pending();
        let of_one = pending.find_map(|(cidr, alias)| {
            alias.problem.clone().or_else(|| alias.attached.then(|| self.not_arrived(cidr)))
        });
        self.problem.clone().or(of_one)
    }

    fn not_arrived(&self, cidr: &Cidr) -> String {
        match &self.machine_trouble {
            Some(trouble) => format!("whether {cidr} has arrived at this machine is not known: {trouble}"),
            None => format!("{cidr} is attached, but not yet in the machine's metadata"),
        }
    }
}
