//! `tenured`: flags, signals, and the agent.

use anyhow::Result;
use clap::Parser;
use tenured::Flags;

#[tokio::main]
async fn main() -> Result<()> {
    tenured::run(Flags::parse()).await
}
