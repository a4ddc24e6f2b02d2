//! What the demo shows: numbered steps of one line each, and small tables.

use std::io::Write;

use anyhow::Result;
use comfy_table::Table;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use kube::ResourceExt;
use tenure_api::coil::{AddressPool, EnginePool};

use super::blocks::NodeBlock;

/// The terminal, or whatever takes its place.
pub(crate) struct Screen<'a, W> {
    out: &'a mut W,
    step: usize,
}

impl<'a, W: Write> Screen<'a, W> {
    pub(crate) fn new(out: &'a mut W) -> Self {
        Self { out, step: 0 }
    }

    /// Begins the next step.
    pub(crate) fn step(&mut self, line: &str) -> Result<()> {
        self.step += 1;
        Ok(writeln!(self.out, "\n{}. {line}", self.step)?)
    }

    /// Says something about the present step.
    pub(crate) fn say(&mut self, line: &str) -> Result<()> {
        Ok(writeln!(self.out, "   {line}")?)
    }

    /// The pool as it was created.
    pub(crate) fn pool(&mut self, pool: &AddressPool) -> Result<()> {
        let engine = EnginePool::try_from(&pool.spec)?;
        let engine = engine.pool();
        let mut table = Self::table(["POOL", "SUBNETS", "BLOCKS", "ADDRESSES"]);
        let subnets = pool.spec.subnets.iter().flat_map(|subnet| [&subnet.ipv4, &subnet.ipv6]);
        let subnets: Vec<&str> = subnets.flatten().map(String::as_str).collect();
        let (blocks, addresses) = (engine.block_count().to_string(), engine.address_count().to_string());
        table.add_row([pool.name_any(), subnets.join(" + "), blocks, addresses]);
        self.show(&table)
    }

    /// Blocks, their owners and how full they are.
    pub(crate) fn blocks(&mut self, blocks: &[NodeBlock]) -> Result<()> {
        let mut table = Self::table(["BLOCK", "NODE", "IPv4", "IPv6", "USE"]);
        for block in blocks {
            let text = |cidr: &Option<String>| cidr.clone().unwrap_or_default();
            let fields = &block.object.spec;
            table.add_row([
                block.name.clone(),
                block.node.clone(),
                text(&fields.ipv4),
                text(&fields.ipv6),
                block.counts(),
            ]);
        }
        self.show(&table)
    }

    /// Who holds what.
    pub(crate) fn holds(&mut self, blocks: &[NodeBlock]) -> Result<()> {
        let mut table = Self::table(["HOLDER", "ADDRESSES", "BLOCK", "HOLD"]);
        for block in blocks {
            for entry in block.block.holds() {
                let holder = entry.active.key.to_string();
                let number = entry.active.sequence.to_string();
                table.add_row([holder, entry.addresses.to_string(), block.name.clone(), number]);
            }
        }
        self.show(&table)
    }

    fn table<const N: usize>(header: [&str; N]) -> Table {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED).set_header(header);
        table
    }

    fn show(&mut self, table: &Table) -> Result<()> {
        for line in table.lines() {
            self.say(&line)?;
        }
        Ok(())
    }
}
