//! Makes one result for all callers who ask at the same time, and limits how often it is made.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::Mutex;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::pages::Made;

/// The shortest time between two runs for one page, however many callers ask.
const PACE: Duration = Duration::from_millis(100);

/// A result is started after it was requested, so nobody gets an old one; and it is started at most every
/// [`PACE`], so nobody can keep the program busy with requests.
#[derive(Default)]
pub(crate) struct Turns {
    begun: AtomicU64,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    number: u64,
    made: Option<Made>,
    pace: Option<Interval>,
}

impl Turns {
    /// The result of `make`, for this caller or for another one who asked no later.
    pub(crate) async fn take(&self, make: impl FnOnce() -> BoxFuture<'static, Made>) -> Made {
        let asked = self.begun.load(Ordering::SeqCst);
        let mut last = self.last.lock().await;
        if last.number > asked
            && let Some(made) = &last.made
        {
            return made.clone();
        }
        last.pace.get_or_insert_with(paced).tick().await;
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let made = make().await;
        last.number = number;
        last.made = Some(made.clone());
        made
    }
}

/// The first tick comes at once, each further one at least [`PACE`] later.
pub(crate) fn paced() -> Interval {
    let mut pace = interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pace
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::StatusCode;
    use tenure_handles::Clock as _;
    use tenure_testbed::clock::RuntimeClock;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_thousand_questions_at_once_are_one_look_and_nobody_hears_what_is_old() {
        let (turns, looks) = (Turns::default(), Arc::new(AtomicU64::new(0)));
        let ask = || {
            turns.take(|| {
                let number = looks.fetch_add(1, Ordering::SeqCst) + 1;
                Box::pin(async move { (StatusCode::OK, "", number.to_string().into()) })
            })
        };
        let began = RuntimeClock.elapsed();
        assert_eq!(ask().await.2, "1");
        let told = futures::future::join_all((0..1000).map(|_| ask())).await;
        assert!(told.iter().all(|(_, _, text)| text == "2"), "{looks:?} looks");
        assert_eq!(ask().await.2, "3");
        assert_eq!(RuntimeClock.elapsed(), began + 2 * PACE);
    }

    #[tokio::test]
    async fn who_goes_away_while_a_page_is_made_takes_it_from_nobody() {
        let turns = Arc::new(Turns::default());
        let first = tokio::spawn({
            let turns = Arc::clone(&turns);
            async move { turns.take(|| Box::pin(std::future::pending())).await }
        });
        tokio::task::yield_now().await;
        let second = turns.take(|| Box::pin(async { (StatusCode::OK, "", "2".into()) }));
        let mut second = std::pin::pin!(second);
        assert!(futures::poll!(&mut second).is_pending());
        first.abort();
        assert_eq!(second.await.2, "2");
    }
}
