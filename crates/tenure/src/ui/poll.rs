//! Asks agents while a page is open: soon those of nodes where something changed, and all others in turn, at a bounded rate. When all
//! have been asked again, everything is compared, as `tenure check` does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tenure_handles::{Clock, SystemClock};

use super::state::{Shared, Topic};
use crate::agents::{AT_ONCE, Agents, Roster};
use crate::check::{self, Findings};
use crate::query::Source;
use crate::watch::news;

/// The time between two steps.
const STEP: Duration = Duration::from_millis(250);
/// So many agents are asked in a step at most.
const IN_A_STEP: usize = 16;
/// An agent is not asked again sooner, whatever changes.
const SHORTEST: Duration = Duration::from_secs(1);
/// Without a reason an agent is asked so often, or when its turn comes.
const USUAL: Duration = Duration::from_secs(2);
/// How long the list of agents is good.
const RELIST: Duration = Duration::from_secs(30);
/// The shortest time between two comparisons of everything.
const COMPARE: Duration = Duration::from_secs(5);

/// Whom to ask when.
#[derive(Default)]
struct Turns {
    /// When each was asked last.
    asked: BTreeMap<String, Duration>,
    /// Those with news.
    hurried: BTreeSet<String>,
}

impl Turns {
    /// Those to ask now.
    fn next(&mut self, nodes: &BTreeSet<String>, now: Duration) -> Vec<String> {
        self.asked.retain(|node, _| nodes.contains(node));
        self.hurried.retain(|node| nodes.contains(node));
        let since = |node: &String| self.asked.get(node).map(|at| now.saturating_sub(*at));
        let hurried = self.hurried.iter().filter(|node| since(node).is_none_or(|since| since >= SHORTEST));
        let mut due: Vec<String> = hurried.take(IN_A_STEP).cloned().collect();
        let mut others: Vec<(Option<&Duration>, &String)> = nodes
            .iter()
            .filter(|node| since(node).is_none_or(|since| since >= USUAL) && !due.contains(*node))
            .map(|node| (self.asked.get(node), node))
            .collect();
        others.sort();
        due.extend(
            others.into_iter().take(IN_A_STEP.saturating_sub(due.len())).map(|(_, node)| node.clone()),
        );
        for node in &due {
            self.asked.insert(node.clone(), now);
            self.hurried.remove(node);
        }
        due
    }

    /// When the one that has waited longest was asked.
    fn oldest(&self, nodes: &BTreeSet<String>) -> Option<Duration> {
        let asked: Option<Vec<Duration>> = nodes.iter().map(|node| self.asked.get(node).copied()).collect();
        asked?.into_iter().min()
    }
}

/// Asks until the future is dropped.
pub(crate) async fn poll(shared: Arc<Shared>, source: Source) {
    let mut viewers = shared.viewers.subscribe();
    let (mut turns, mut roster, mut listed) = (Turns::default(), Roster::default(), None);
    let mut comparing = Comparing::default();
    loop {
        // Nobody looks: nobody is asked.
        if viewers.wait_for(|count| *count > 0).await.is_err() {
            return;
        }
        let now = SystemClock.elapsed();
        if listed.is_none_or(|at| now.saturating_sub(at) >= RELIST) {
            if let Err(problem) = source.agents.relist(&mut roster).await {
                tracing::warn!(problem, "the agents cannot be listed");
            }
            listed = Some(now);
        }
        turns.hurried.append(&mut shared.take_hurried());
        let nodes = nodes(&shared, &source, &roster);
        let due = turns.next(&nodes, now);
        if !due.is_empty() {
            let answers = ask(&source.agents, &roster, due).await;
            let news = shared.change(|state| {
                let news = state.told(answers);
                if let Agents::Cluster(..) = source.agents {
                    state.only_agents_of(&nodes);
                }
                news
            });
            shared.tell(news);
        }
        if shared.health.look().complete {
            let oldest = turns.oldest(&nodes);
            if oldest.is_some() || nodes.is_empty() {
                shared.asked.send_if_modified(|asked| !std::mem::replace(asked, true));
            }
            if let Some(oldest) = oldest {
                comparing.step(&shared, oldest, now).await;
            }
        }
        tokio::time::sleep(STEP).await;
    }
}

/// The nodes with something to tell.
fn nodes(shared: &Shared, source: &Source, roster: &Roster) -> BTreeSet<String> {
    let state = shared.read();
    match &source.agents {
        Agents::Cluster(..) => {
            let mut nodes = state.snapshot.owners();
            // Agents of nodes without blocks have something to report, too.
            nodes.extend(state.snapshot.nodes.iter().cloned());
            nodes.extend(roster.nodes().cloned());
            nodes
        }
        Agents::Hosts(sockets) => sockets.keys().cloned().collect(),
        // It is one; it says itself which.
        Agents::Host(_) => [state.snapshot.agents.keys().next().cloned().unwrap_or_default()].into(),
    }
}

async fn ask(
    agents: &Agents,
    roster: &Roster,
    due: Vec<String>,
) -> BTreeMap<String, Result<tenure_view::Node, String>> {
    let asked = futures::stream::iter(due).map(|node| async move {
        let answer = agents.listed(roster, &node).await;
        match (agents, &answer) {
            (Agents::Host(_), Ok(told)) => (told.node.clone(), answer),
            _ => (node, answer),
        }
    });
    let answers: BTreeMap<_, _> = asked.buffer_unordered(AT_ONCE).collect().await;
    // Of an agent that never answered nobody knows the name.
    answers.into_iter().filter(|(node, _)| !node.is_empty()).collect()
}

/// Comparing everything, twice before anything is reported.
#[derive(Default)]
struct Comparing {
    first: Option<Findings>,
    last: Option<Duration>,
}

impl Comparing {
    /// Compares if every agent has been asked since the last time.
    async fn step(&mut self, shared: &Arc<Shared>, oldest: Duration, now: Duration) {
        if self.last.is_some_and(|last| oldest <= last || now.saturating_sub(last) < COMPARE) {
            return;
        }
        self.last = Some(now);
        let snapshot = shared.read().snapshot.clone();
        let first = self.first.take();
        let compared = tokio::task::spawn_blocking(move || {
            let found = check::compare(&snapshot);
            let seen = match first {
                None => found.differences.is_empty().then(|| found.clone()),
                Some(first) => Some(Findings::and_still(first, found.clone())),
            };
            (found, seen)
        });
        let Ok((found, seen)) = compared.await else { return };
        self.first = Some(found);
        let Some(seen) = seen else { return };
        let news = shared.change(|state| {
            let mut news = Vec::new();
            if state.findings.as_ref() != Some(&seen) {
                news::of_findings(state.findings.as_ref(), &seen, &mut news);
                state.findings = Some(seen);
                state.touch(&[Topic::Findings]);
            }
            state.checked = Some(state.snapshot.now);
            news
        });
        shared.tell(news);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_with_news_come_first_and_nobody_is_asked_too_often() {
        let nodes: BTreeSet<String> = (0..40).map(|number| format!("node{number:02}")).collect();
        let mut turns = Turns::default();
        let second = Duration::from_secs;
        let first = turns.next(&nodes, second(10));
        assert_eq!((first.len(), first[0].as_str()), (IN_A_STEP, "node00"));
        assert_eq!(turns.oldest(&nodes), None, "not all were asked");
        turns.hurried.insert("node39".into());
        turns.hurried.insert("node00".into());
        let next = turns.next(&nodes, second(10));
        assert!(next.contains(&"node39".into()) && !next.contains(&"node00".into()), "{next:?}");
        let next = turns.next(&nodes, second(11));
        assert_eq!(next[0], "node00", "what was put off is not forgotten");
        assert!(turns.oldest(&nodes).is_some());
        turns.next(&[].into(), second(12));
        assert!(turns.asked.is_empty());
    }
}
