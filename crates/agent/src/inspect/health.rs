//! The agent's health.

use std::fmt::Write as _;

use tenure_cni::Failure;

use super::Inspector;
use crate::run::Stage;

impl Inspector {
    /// Whether the node's loop answers, with a text for people. If not, a restart may help.
    pub async fn live(&self) -> (bool, String) {
        match self.look(|_| ()).await {
            Ok(()) => (true, "ok\n".to_owned()),
            Err(problem) => (false, problem + "\n"),
        }
    }

    /// Whether the agent answers the plugin and can record new holds, with a text for people. An unreachable
    /// API server is shown but does not count: addresses of owned blocks are assigned without it.
    pub async fn ready(&self) -> (bool, String) {
        let stage = (self.inner.agent.stage)();
        let mut text = format!("agent: {}\n", said(stage));
        let seen = self.look(|node| (node.journal().broken, node.status().err())).await;
        let works = match seen {
            Ok((broken, problem)) => {
                _ = writeln!(text, "journal: {}", if broken { "cannot be written" } else { "works" });
                match problem {
                    None => text.push_str("addresses: assigned\n"),
                    Some(error) => _ = writeln!(text, "addresses: {}", Failure::from(error).message),
                }
                !broken
            }
            Err(problem) => {
                _ = writeln!(text, "node: {problem}");
                false
            }
        };
        let now = self.inner.agent.clock.now();
        let objects = self.health();
        let answered = objects.last_answer.map(|at| format!("answered {} s ago", now.since(at).as_secs()));
        _ = writeln!(text, "API server: {}", answered.as_deref().unwrap_or("never answered"));
        for (watched, health) in &objects.watches {
            let state = match &health.failing {
                Some(failing) => failing,
                None if health.listed => "works",
                None => "not listed yet",
            };
            _ = writeln!(text, "watch of {watched}: {state}");
        }
        (stage == Stage::Serving && works, text)
    }
}

fn said(stage: Stage) -> &'static str {
    match stage {
        Stage::Reading => "reading journal, kernel and API server; nothing is assigned yet",
        Stage::Replaying => "performing the DELs that came while no agent ran",
        Stage::Serving => "answering the plugin",
        Stage::Stopping => "stopping",
        Stage::Ended => "ended",
    }
}
