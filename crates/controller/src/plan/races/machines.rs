//! Machines: a kubelet, an agent and containers, whatever their Node object says.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use tenure_api::coil::AddressBlock;
use tenure_api::release::mark_of;
use tenure_ipam::{Address, Cidr};

use super::super::model::Server;
use super::{HEARD_WITHIN, Run, covers, networks};
use crate::write::At;

pub(super) struct Machine {
    node: &'static str,
    /// Running containers by pod name, with the address and, if the pod's object is gone, since when.
    containers: BTreeMap<String, (Address, Option<u64>)>,
    /// Whether the agent runs.
    agent: bool,
    /// Blocks that the agent assigns from, by UID, with their networks.
    relies: BTreeMap<String, Vec<Cidr>>,
    /// Marks that it is about to remove.
    objects: Vec<At>,
    /// When it last heard of everything.
    heard: u64,
}

impl Machine {
    pub(super) fn new(node: &'static str) -> Self {
        let (containers, relies) = (BTreeMap::new(), BTreeMap::new());
        Self { node, containers, agent: true, relies, objects: Vec::new(), heard: 0 }
    }

    pub(super) fn uses(&self, networks: &[Cidr]) -> bool {
        self.containers.values().any(|(address, _)| covers(networks, *address))
    }

    pub(super) fn forget(&mut self, uid: &str) {
        self.relies.remove(uid);
    }

    /// The machine is switched off with everything on it; its pods are deleted.
    pub(super) fn stop(&mut self, server: &mut Server) {
        for pod in std::mem::take(&mut self.containers).into_keys() {
            server.bound.remove(&pod);
        }
        self.agent = false;
        self.relies.clear();
        self.objects.clear();
    }

    /// The agent hears of its blocks. It relies on those without a mark.
    fn hear(&mut self, server: &Server) {
        self.heard = server.now;
        if !self.agent {
            return;
        }
        self.relies.clear();
        self.objects.clear();
        for block in server.blocks.values().filter(|block| block.node() == Some(self.node)) {
            if mark_of(block).is_some() {
                self.objects.push(At::of(block));
            } else {
                self.relies.insert(block.uid().unwrap_or_default(), networks(server, &block.name_any()));
            }
        }
    }

    /// Removes one mark, if the block is unchanged.
    fn object(&mut self, server: &mut Server) {
        if let Some(marked) = self.objects.pop() {
            server.annotate_block(&marked, None);
        }
    }

    /// What has to happen in time: a living agent hears and objects, and a kubelet ends containers without a pod.
    pub(super) fn catch_up(&mut self, server: &mut Server) {
        if server.now - self.heard >= HEARD_WITHIN - 5_000 {
            self.hear(server);
            while !self.objects.is_empty() {
                self.object(server);
            }
        }
        let now = server.now;
        self.containers.retain(|_, (_, gone)| gone.is_none_or(|gone| now - gone < HEARD_WITHIN));
    }

    /// Whether this machine allows a block to be deleted.
    pub(super) fn survives(&self, block: &AddressBlock, server: &Server) -> Result<(), String> {
        let subnet = block.spec.to_subnet().ok();
        let networks: Vec<Cidr> = subnet.into_iter().flat_map(|it| [it.ipv4, it.ipv6]).flatten().collect();
        let (name, node) = (block.name_any(), self.node);
        if let Some((pod, _)) = self.containers.iter().find(|(_, (address, _))| covers(&networks, *address)) {
            return Err(format!("{name} was deleted while pod {pod} of {node} runs with an address of it"));
        }
        let relied = block.uid().is_some_and(|uid| self.relies.contains_key(&uid));
        if relied && server.nodes.contains_key(node) {
            return Err(format!("{name} was deleted while the agent of {node} relies on it"));
        }
        Ok(())
    }
}

impl Run {
    /// Something happens on a machine, or to its objects.
    pub(super) fn live(&mut self, node: &'static str) {
        let (what, number) = (self.below(16), self.number);
        let chance = self.below(usize::MAX);
        let Self { server, machines, .. } = self;
        let Some(machine) = machines.get_mut(node) else { return };
        match what {
            0..3 => machine.hear(server),
            3..6 => machine.object(server),
            6..10 => {
                // A pod is started: its agent gives it an address that nobody here has.
                let blocks: Vec<&Vec<Cidr>> = machine.relies.values().collect();
                let Some(block) = blocks.get(chance % blocks.len().max(1)) else { return };
                let used: BTreeSet<Address> =
                    machine.containers.values().map(|(address, _)| *address).collect();
                let free = (0..8).filter_map(|offset| block.first()?.nth(offset).ok());
                let free =
                    free.into_iter().find(|address| covers(block, *address) && !used.contains(address));
                if let Some(address) = free.filter(|_| machine.agent && server.nodes.contains_key(node)) {
                    self.number += 1;
                    let pod = format!("{node}-{number}");
                    machine.containers.insert(pod.clone(), (address, None));
                    server.bound.insert(pod, node.to_owned());
                }
            }
            10 => {
                // A pod ends.
                if let Some((pod, _)) = machine.containers.pop_first() {
                    server.bound.remove(&pod);
                }
            }
            // The Node object is deleted, whatever runs there; later its pods' objects are.
            11 | 12 => server.delete_node(node),
            13 if !server.nodes.contains_key(node) => {
                let now = server.now;
                for (pod, (_, gone)) in &mut machine.containers {
                    server.bound.remove(pod);
                    gone.get_or_insert(now);
                }
            }
            14 => {
                // It is switched off, usually permanently.
                machine.stop(server);
                if !chance.is_multiple_of(4) {
                    server.delete_node(node);
                }
            }
            _ => {
                // The machine exists, and registers if needed.
                if !server.nodes.contains_key(node) {
                    server.node(node, None);
                }
                machine.agent = true;
            }
        }
    }
}
