//! Makes one result for all callers who ask at the same time, and limits how often it is made; and has callers who ask different
//! things wait for each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use tenure_handles::{Clock, SystemClock};
use tokio::sync::{Mutex, Semaphore, oneshot};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::pages::Made;

/// The shortest time between two runs for one page, however many callers ask.
const PACE: Duration = Duration::from_millis(100);

/// How many questions may wait for their turn.
const MOST_WAITING: usize = 8;
/// How many times as long as a question took nothing is done for the next one.
const REST: u32 = 4;

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

/// Questions are answered one at a time. After each, nothing is done for several times as long as it took, and at least [`PACE`].
pub(crate) struct Queue {
    waiting: Semaphore,
    turn: Arc<Mutex<()>>,
}

impl Default for Queue {
    fn default() -> Self {
        Self { waiting: Semaphore::new(MOST_WAITING), turn: Arc::default() }
    }
}

impl Queue {
    /// The result of `make`; `None` if too many wait.
    pub(crate) async fn take<T: Send + 'static>(
        &self,
        make: impl FnOnce() -> BoxFuture<'static, T>,
    ) -> Option<T> {
        let waiting = self.waiting.try_acquire().ok()?;
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let (answer, answered) = oneshot::channel();
        let making = make();
        // The turn lasts until the work is done, also if the caller goes away.
        tokio::spawn(async move {
            let began = SystemClock.elapsed();
            // A caller who went away hears nothing.
            let _ = answer.send(making.await);
            let took = SystemClock.elapsed().saturating_sub(began);
            tokio::time::sleep(PACE.max(took * REST)).await;
            drop(turn);
        });
        let made = answered.await.ok();
        drop(waiting);
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
    use http::StatusCode;
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

    #[tokio::test(start_paused = true)]
    async fn questions_are_answered_one_at_a_time_with_rests_and_too_many_are_refused() {
        let queue = Arc::new(Queue::default());
        let at_once = Arc::new(AtomicU64::new(0));
        let ask = |number: u64| {
            let (queue, at_once) = (Arc::clone(&queue), Arc::clone(&at_once));
            async move {
                let answer = queue.take(|| {
                    Box::pin(async move {
                        assert_eq!(at_once.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                        tokio::task::yield_now().await;
                        at_once.fetch_sub(1, Ordering::SeqCst);
                        number
                    })
                });
                answer.await
            }
        };
        let began = RuntimeClock.elapsed();
        let answers = futures::future::join_all((0..20).map(ask)).await;
        let answered: Vec<u64> = answers.into_iter().flatten().collect();
        assert_eq!(answered, (0..8).collect::<Vec<u64>>(), "eight may wait");
        assert!(RuntimeClock.elapsed() >= began + 7 * PACE);
        assert_eq!(ask(20).await, Some(20), "nobody is refused for long");
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
