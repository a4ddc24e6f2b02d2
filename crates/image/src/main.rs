//! `tenure-image`: puts static programs into an image and says where it is, its size and its digest.
//! `cargo xtask image` builds them and calls this.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use tenure_image::{Image, is_static};

/// Where the image has its programs.
const PROGRAMS: &str = "/usr/local/bin";

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
    let mut image = Image::named(&flags.name).variable("PATH", PROGRAMS);
    for program in &flags.programs {
        let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
        if !is_static(&bytes) {
            bail!("{} is not a static program, and the image has no libraries for it", program.display());
        }
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        image = image.program(&format!("{PROGRAMS}/{name}"), program)?;
    }
    image = image.entrypoint(&[&format!("{PROGRAMS}/{}", flags.entrypoint)]);
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
