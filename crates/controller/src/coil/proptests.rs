//! Compares what plans remember with a full look and with a simple recount, whatever happens to objects in whichever
//! order.

mod events;

use std::collections::BTreeMap;

use kube::ResourceExt;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use tenure_api::coil::{EnginePool, block_name};
use tenure_api::overlap::overlaps;
use tenure_ipam::{Address, IntervalSet};

use super::carved::networks;
use super::*;
use events::{Events, Op, POOLS, op};

struct Run {
    events: Events,
    planner: CoilPlanner,
    /// A planner that always looks at everything.
    full: CoilPlanner,
    /// What claims could not get from each pool at the last plan.
    not_free: BTreeMap<&'static str, Option<IntervalSet>>,
}

impl Run {
    fn new() -> Self {
        let mut events = Events::default();
        events.world.coil_mut().pools.finish();
        events.world.coil_mut().blocks.finish();
        events.world.coil_mut().requests.finish();
        events.world.finish_nodes();
        let planner = || CoilPlanner::new(MISSING_NODE_REST);
        Self { events, planner: planner(), full: planner(), not_free: BTreeMap::new() }
    }

    /// Both plans are equal, and claims are told the truth.
    fn plan(&mut self) -> Result<(), TestCaseError> {
        let (mut board, mut of_all) = (Board::default(), Board::default());
        self.full.look_at_all();
        let now = self.events.now();
        let writes = self.planner.plan(&self.events.world, &mut board, now);
        let all = self.full.plan(&self.events.world, &mut of_all, now);
        let texts = |writes: &[Write]| writes.iter().map(|write| format!("{write:?}")).collect::<Vec<_>>();
        prop_assert_eq!(texts(&writes), texts(&all));
        prop_assert_eq!(self.planner.next_look(), self.full.next_look());
        self.events.writes = writes;
        let (carving, of_all) = (board.get::<Carving>().unwrap(), of_all.get::<Carving>().unwrap());
        prop_assert!(of_all.changed_pools.is_all());
        prop_assert_eq!(&carving.overlaps, &of_all.overlaps);
        prop_assert_eq!(&*carving.overlaps, &overlaps(self.events.world.coil().pools.iter()));
        prop_assert_eq!(&carving.promised, &of_all.promised);
        for pool in POOLS {
            let engine = self
                .events
                .world
                .coil()
                .pools
                .get(pool)
                .and_then(|pool| EnginePool::try_from(&pool.spec).ok());
            let not_free = engine.map(|engine| {
                let mut not_free = carving.carved.not_free_for_claims(pool, &engine, &carving.overlaps);
                let full = of_all.carved.not_free_for_claims(pool, &engine, &of_all.overlaps);
                assert_eq!(not_free, full, "of {pool}");
                for index in 0..=engine.pool().last_index().min(16) {
                    let expected = self.is_taken(pool, &engine, index);
                    assert_eq!(not_free.contains(index), expected, "{pool}-{index}");
                }
                for block in &carving.promised {
                    let (_, index) = split_block_name(block).filter(|(of, _)| *of == pool).unzip();
                    not_free.extend(index.map(|index| index..=index));
                }
                not_free
            });
            let named = match &carving.changed_pools {
                Changed::All => true,
                Changed::Keys(keys) => keys.contains(pool),
            };
            let before = self.not_free.insert(pool, not_free.clone()).flatten();
            prop_assert!(named || before == not_free, "{} is different, and nobody says so", pool);
        }
        Ok(())
    }

    /// Whether a claim cannot have this block, found by asking every object.
    fn is_taken(&self, pool: &str, engine: &EnginePool, index: u128) -> bool {
        let world = &self.events.world;
        let own: Vec<(Address, Address)> = networks(engine.pool().block(index)).collect();
        let shares = |(first, last): (Address, Address)| {
            own.iter().any(|own| own.0.family() == first.family() && own.0 <= last && first <= own.1)
        };
        let is_own = |name: &str| name == block_name(pool, index);
        let of_number = |name: &str| {
            let (pool, index) = split_block_name(name)?;
            EnginePool::try_from(&world.coil().pools.get(pool)?.spec).ok()?.pool().block(index)
        };
        let takes = |name: &str| is_own(name) || networks(of_number(name)).any(shares);
        let overlaps = overlaps(world.coil().pools.iter());
        let withheld = overlaps.younger.get(pool).is_some_and(|it| it.withheld.contains(index));
        let too_many_locks = overlaps.younger.values().any(|younger| {
            let locks = engine.pool().block_bits().saturating_sub(younger.block_bits);
            let shared = younger.older.get(pool).into_iter().flatten();
            locks > 8 && shared.into_iter().any(|network| shares((network.first(), network.last())))
        });
        let block = |block: &AddressBlock| {
            let there = !block.is_withheld() && networks(block.spec.to_subnet().ok()).any(shares);
            there || is_own(&block.name_any())
        };
        let coming = world.in_flight.iter().filter_map(|write| write.of::<BlockWrite>()?.block());
        let (floating, of_nodes): (Vec<&AddressBlock>, Vec<&AddressBlock>) =
            coming.partition(|block| block.is_floating());
        withheld
            || too_many_locks
            || engine.excluded_blocks().contains(index)
            || world.coil().blocks.iter().any(block)
            || world.coil().blocks.unreadable().any(takes)
            || of_nodes.iter().any(|block| takes(&block.name_any()))
            || world
                .ledgers()
                .pools
                .iter()
                .any(|it| it.is_of_the_cluster() && it.held.iter().copied().any(shares))
            || floating.iter().any(|block| takes(&block.name_any()))
                && !floating.iter().any(|block| is_own(&block.name_any()))
    }
}

/// Applies each round's changes and plans. Overlooks one round, if given.
fn run(rounds: &[Vec<Op>], overlooked: Option<usize>) -> Result<(), TestCaseError> {
    let mut run = Run::new();
    for (round, ops) in rounds.iter().enumerate() {
        for op in ops {
            run.events.apply(op);
        }
        if overlooked == Some(round) {
            run.planner.index.overlook(&run.events.world);
        }
        run.plan()?;
    }
    Ok(())
}

fn rounds() -> impl Strategy<Value = Vec<Vec<Op>>> {
    proptest::collection::vec(proptest::collection::vec(op(), 0..4), 1..40)
}

#[test]
fn a_change_that_is_overlooked_is_found() {
    let config = Config { failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let found = runner.run(&(rounds(), 1_usize..40), |(rounds, overlooked)| run(&rounds, Some(overlooked)));
    assert!(matches!(found, Err(TestError::Fail(..))), "{found:?}");
}

proptest! {
    #[test]
    fn a_plan_of_what_has_changed_is_that_of_everything_and_says_which_pools_are_different(
        rounds in rounds()
    ) {
        run(&rounds, None)?;
    }
}
