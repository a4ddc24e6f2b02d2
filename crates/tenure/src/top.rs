//! `tenure top`: pools, rates and the slowest ADDs, live on a terminal, or as lines for programs.
//!
//! It sees what `tenure ui` sees: objects by watches, agents by asking them in turn. Rates are what an agent counted between two answers.

mod frame;
mod screen;

use std::io::{self, IsTerminal as _, Write as _};
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use tenure_handles::{Clock as _, SystemClock, SystemEntropy};
use tokio::signal::unix::{SignalKind, signal};

use crate::query::QueryOptions;
use crate::table::{self, COULD_NOT_LOOK, Format, Output};
use crate::ui::state::{Shared, Viewer};
use crate::ui::{Live, live};
use frame::{Frame, Samples};
use screen::Screen;

/// Without a screen to fill, the first frame waits so long for two answers of every agent.
const FIRST: Duration = Duration::from_secs(15);
/// How often new answers are noted.
const NOTE: Duration = Duration::from_millis(250);

/// The options of the verb.
#[derive(Args, Debug)]
pub(crate) struct TopOptions {
    #[command(flatten)]
    query: QueryOptions,
    /// Print one frame, and end
    #[arg(long)]
    once: bool,
    /// The time between two frames
    #[arg(long, default_value = "2s", value_parser = tenure_daemon::duration)]
    interval: Duration,
}

/// Runs the verb, until `q`, Ctrl-C, or nobody reads it.
pub(crate) async fn run(options: TopOptions) -> Result<Output> {
    let source = options.query.source().await?;
    let entropy = SystemEntropy::new().context("cannot get random numbers")?;
    let Live { shared, mut tasks } = live(source, entropy)?;
    let _viewer = Viewer::of(&shared);
    let table = options.query.output == Format::Table;
    let mut screen =
        if table && !options.once && io::stdout().is_terminal() { Some(Screen::open()?) } else { None };
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for signals")?;
    let mut interrupt = pin!(tokio::signal::ctrl_c());
    let (mut samples, began) = (Samples::default(), SystemClock.elapsed());
    let mut shown: Option<Duration> = None;
    loop {
        samples.note(&shared.read().snapshot);
        let now = SystemClock.elapsed();
        let waited = now.saturating_sub(began);
        let ready = screen.is_some() || waited >= FIRST || is_known(&shared, &samples);
        if ready && shown.is_none_or(|at| now.saturating_sub(at) >= options.interval) {
            shown = Some(now);
            let frame = Frame::of(&shared, &samples);
            match &mut screen {
                Some(screen) => screen.draw(&frame)?,
                None if options.once => return options.finish(&frame),
                None if !options.print(&frame)? => return Ok(Output::nothing()),
                None => {}
            }
        }
        let quit = async {
            match &mut screen {
                Some(screen) => screen.quit().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = tokio::time::sleep(NOTE.min(options.interval)) => {}
            () = quit => return Ok(Output::nothing()),
            _ = terminate.recv() => return Ok(Output::nothing()),
            ended = &mut interrupt => {
                ended.context("cannot wait for Ctrl-C")?;
                return Ok(Output::nothing());
            }
            Some(ended) = tasks.join_next() => ended.context("a part of the program ended")?,
        }
    }
}

/// Whether a frame would have everything that there is.
fn is_known(shared: &Shared, samples: &Samples) -> bool {
    *shared.asked.borrow() && samples.all_rated(&shared.read().snapshot)
}

impl TopOptions {
    fn text(&self, frame: &Frame) -> Result<String> {
        Ok(match self.query.output {
            Format::Table => frame.lines().concat(),
            Format::Json => serde_json::to_string(frame)? + "\n",
        })
    }

    fn finish(&self, frame: &Frame) -> Result<Output> {
        let code = if frame.complete { 0 } else { COULD_NOT_LOOK };
        Ok(Output { code, ..Output::text(self.text(frame)?) })
    }

    /// Prints a frame below the last one; `false` if nobody reads it any more.
    fn print(&self, frame: &Frame) -> Result<bool> {
        let (text, mut out) = (self.text(frame)?, io::stdout().lock());
        let between = if self.query.output == Format::Table { "\n" } else { "" };
        let written = out.write_all(format!("{}{between}", table::visible(&text)).as_bytes());
        Ok(written.and_then(|()| out.flush()).is_ok())
    }
}
