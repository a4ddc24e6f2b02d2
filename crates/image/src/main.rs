//! `tenure-image`: puts static programs into an image and says where it is, its size and its digest.
//! `cargo xtask image` builds them and calls this.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Parser;
use tenure_image::Image;

/// Puts static programs into an image.
#[derive(Debug, Parser)]
struct Flags {
    /// The image's name, with a registry and a tag
    #[arg(long)]
    name: String,
    /// Where to write it
    #[arg(long)]
    output: PathBuf,
    /// What its containers run if nothing else is said: the name of one of the programs
    #[arg(long)]
    entrypoint: String,
    /// The programs
    #[arg(required = true)]
    programs: Vec<PathBuf>,
}

fn main() -> Result<()> {
    let flags = Flags::parse();
    let image = Image::of_programs(&flags.name, &flags.entrypoint, &flags.programs)?;
    if let Some(directory) = flags.output.parent() {
        fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    }
    let saved = image.save(&flags.output)?;
    #[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
    let megabytes = saved.size as f64 / 1e6;
    writeln!(std::io::stdout(), "{}", flags.output.display())?;
    writeln!(std::io::stdout(), "{} {megabytes:.1} MB {}", flags.name, saved.digest)?;
    Ok(())
}
