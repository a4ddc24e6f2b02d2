//! `tenure watch`: one line for each event, live: from the watches and the agents' answers that `tenure ui` has, too.

pub(crate) mod news;

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use tenure_handles::SystemEntropy;

use crate::query::QueryOptions;
use crate::snapshot;
use crate::table::{self, Format, Output};
use crate::ui::state::{Shared, Viewer};
use crate::ui::{Live, live};
use news::{News, TOPICS};

/// How often is looked whether something cannot be seen.
const LOOK: Duration = Duration::from_secs(1);

/// The options of the verb.
#[derive(Args, Debug)]
pub(crate) struct WatchOptions {
    #[command(flatten)]
    query: QueryOptions,
    /// Only events about these: block, slice, request, hold, claim, pool, node-address, egress, alias, node, agent, finding
    #[arg(value_name = "TOPIC", value_parser = clap::builder::PossibleValuesParser::new(TOPICS), hide_possible_values = true)]
    topics: Vec<String>,
}

/// Runs the verb, until Ctrl-C, or until nobody reads it.
pub(crate) async fn run(options: WatchOptions) -> Result<Output> {
    let source = options.query.source().await?;
    let entropy = SystemEntropy::new().context("cannot get random numbers")?;
    let Live { shared, mut tasks } = live(source, entropy)?;
    let mut news = shared.listen();
    let mut asked = shared.asked.subscribe();
    let _viewer = Viewer::of(&shared);
    let mut stop = pin!(tokio::signal::ctrl_c());
    let mut trouble = Trouble::default();
    let (mut started, mut look) = (false, tokio::time::interval(LOOK));
    loop {
        tokio::select! {
            Some(it) = news.recv() => {
                if options.shows(&it) && !options.say(&it)? {
                    return Ok(Output::nothing());
                }
            }
            known = asked.wait_for(|asked| *asked), if !started => {
                known.context("a part of the program ended")?;
                started = true;
                let message = format!("{}; what happens from now on follows", summary(&shared));
                let start = News { time: snapshot::now(), event: "started", subject: "tenure watch".to_owned(), message };
                if !options.say(&start)? {
                    return Ok(Output::nothing());
                }
            }
            Some(ended) = tasks.join_next() => ended.context("a part of the program ended")?,
            ended = &mut stop => {
                ended.context("cannot wait for Ctrl-C")?;
                return Ok(Output::nothing());
            }
            _ = look.tick() => trouble.say(&shared),
        }
    }
}

impl WatchOptions {
    fn shows(&self, news: &News) -> bool {
        // The longest topic that fits: `node-address-assigned` is not about nodes.
        let fits = |topic: &&str| news.event.strip_prefix(*topic).is_some_and(|rest| rest.starts_with('-'));
        let topic = TOPICS.into_iter().filter(fits).max_by_key(|topic| topic.len()).unwrap_or_default();
        self.topics.is_empty() || self.topics.iter().any(|it| it == topic)
    }

    /// Prints an event; `false` if nobody reads it any more.
    fn say(&self, it: &News) -> Result<bool> {
        let line = match self.query.output {
            Format::Table => {
                let rest = if it.message.is_empty() { String::new() } else { format!(": {}", it.message) };
                format!("{:.0} {:<22} {}{rest}", it.time, it.event, it.subject)
            }
            Format::Json => serde_json::to_string(it)?,
        };
        let line = table::one_line(&line);
        let mut out = io::stdout().lock();
        Ok(writeln!(out, "{line}").and_then(|()| out.flush()).is_ok())
    }
}

/// What is known, in numbers.
fn summary(shared: &Shared) -> String {
    let state = shared.read();
    let answered = state.snapshot.agents.values().filter(|it| it.is_ok()).count();
    format!(
        "{} pools, {} blocks, {} claims, {answered} of {} agents",
        state.snapshot.pools.len(),
        state.snapshot.blocks.len(),
        state.claims.len(),
        state.snapshot.agents.len()
    )
}

/// What cannot be seen, said once each time that it begins.
#[derive(Default)]
struct Trouble {
    said: BTreeMap<&'static str, String>,
    lost: u64,
}

impl Trouble {
    fn say(&mut self, shared: &Shared) {
        let health = shared.health.look();
        let failing: BTreeMap<&'static str, String> =
            health.watches.into_iter().filter_map(|(what, it)| Some((what, it.failing?))).collect();
        let mut notes: Vec<String> = Vec::new();
        for (what, problem) in failing.iter().filter(|(what, _)| !self.said.contains_key(*what)) {
            notes.push(format!("? {what} cannot be watched: {problem}"));
        }
        self.said = failing;
        let lost = shared.lost.load(Ordering::Relaxed);
        if lost > self.lost {
            notes.push(format!("? {} events were left out, because they were not read", lost - self.lost));
            self.lost = lost;
        }
        for note in notes {
            let _ = writeln!(io::stderr().lock(), "{}", table::one_line(&note));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_the_longest_that_fits() {
        let options =
            |topic: &str| WatchOptions { query: QueryOptions::default(), topics: vec![topic.to_owned()] };
        let event =
            |event| News { time: snapshot::now(), event, subject: String::new(), message: String::new() };
        assert!(options("node-address").shows(&event("node-address-assigned")));
        assert!(!options("node").shows(&event("node-address-assigned")));
        assert!(options("node").shows(&event("node-gone")));
    }
}
