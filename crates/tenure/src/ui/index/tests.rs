//! The index against the plainest one: everything said once more to an empty index, address by address; and what pages are told of
//! changes against everything.

use proptest::prelude::*;

use super::super::map::{Asked, Map};
use super::*;

const POOL: &str = "default";
const NETWORK: &str = "10.0.0.0/24";

fn address(offset: u8) -> Address {
    std::net::IpAddr::from([10, 0, 0, offset]).into()
}

/// What a source says: whether it has its block, who has addresses there, and what single addresses are.
#[derive(Clone, Debug)]
struct Word {
    source: u8,
    block: Option<(Kind, bool)>,
    marks: Vec<(u8, State, bool)>,
    excluded: Option<(u8, u8)>,
}

impl Word {
    fn pieces(&self) -> Vec<Piece> {
        let (pool, node): (Name, Name) = (POOL.into(), format!("node{}", self.source % 3).into());
        let (first, last) = (address(self.source * 16), address(self.source * 16 + 15));
        let area = |kind, first, last| {
            let node = (kind != Kind::Floating && kind != Kind::Excluded).then(|| node.clone());
            Piece::Area { pool: pool.clone(), first, last, kind, node, name: "b".into() }
        };
        let block = self.block.iter().flat_map(|(kind, told)| {
            let told = told.then(|| area(Kind::Told, first, last));
            [Some(area(*kind, first, last)), told].into_iter().flatten()
        });
        // Each has its own part of what is excluded, as pools have.
        let excluded = self.excluded.map(|(from, to)| {
            let base = self.source * 16;
            area(Kind::Excluded, address(base + from.min(to)), address(base + from.max(to)))
        });
        let mark = |(offset, state, on): &(u8, State, bool)| Piece::Mark {
            pool: pool.clone(),
            address: address(*offset),
            state: *state,
            node: on.then(|| node.clone()),
        };
        block.chain(excluded).chain(self.marks.iter().map(mark)).collect()
    }
}

fn words() -> impl Strategy<Value = Vec<Word>> {
    let state = prop_oneof![
        Just(State::Cooling),
        Just(State::Reserved),
        Just(State::Held),
        Just(State::Claimed),
        Just(State::Moving)
    ];
    let kind = prop_oneof![Just(Kind::Owned), Just(Kind::Floating), Just(Kind::Reserved)];
    let marks = prop::collection::vec((any::<u8>(), state, any::<bool>()), 0..6);
    let block = prop::option::of((kind, any::<bool>()));
    let excluded = prop::option::of((0_u8..16, 0_u8..16));
    let word = (0_u8..16, block, marks, excluded);
    let word = word.prop_map(|(source, block, marks, excluded)| Word { source, block, marks, excluded });
    prop::collection::vec(word, 0..24)
}

fn say(index: &mut Index, word: &Word) {
    index.say(("test", word.source.to_string()), word.pieces());
}

/// Cells with the names of nodes, because another index has other numbers for them.
fn named(index: &Index, cells: BTreeMap<u32, Cell>) -> BTreeMap<u32, (Option<String>, Cell)> {
    let name = |cell: &Cell| match cell.owner {
        Owner::Node(node) => index.node(node).map(ToString::to_string),
        _ => None,
    };
    let cells = cells.into_iter().map(|(number, cell)| {
        let owner = if let Owner::Node(_) = cell.owner { Owner::Node(0) } else { cell.owner };
        (number, (name(&cell), Cell { owner, ..cell }))
    });
    cells.filter(|(_, (_, cell))| *cell != Cell::default()).collect()
}

fn view(bits: u8) -> View {
    View { pool: POOL.into(), first: address(0), bits, cells: 256 >> bits }
}

proptest! {
    #[test]
    fn whatever_was_said_before_only_the_last_word_of_each_source_counts(words in words(), bits in 0_u8..5) {
        let (mut index, mut last) = (Index::default(), BTreeMap::new());
        for word in &words {
            say(&mut index, word);
            last.insert(word.source, word);
        }
        let mut fresh = Index::default();
        for word in last.values() {
            say(&mut fresh, word);
        }
        let cells = index.cells(&view(bits), 0..view(bits).cells);
        let all = fresh.cells(&view(bits), 0..view(bits).cells);
        prop_assert_eq!(named(&index, cells), named(&fresh, all));
    }

    #[test]
    fn a_cell_counts_what_its_addresses_are_and_never_more_than_it_has(words in words()) {
        let mut index = Index::default();
        for word in &words {
            say(&mut index, word);
        }
        let single = index.cells(&view(0), 0..256);
        for (number, cell) in index.cells(&view(4), 0..16) {
            let own = single.range(number * 16..(number + 1) * 16);
            let sum = |of: fn(&Cell) -> u128| own.clone().map(|(_, cell)| of(cell)).sum::<u128>();
            prop_assert_eq!((cell.moving, cell.claimed, cell.held), (sum(|it| it.moving), sum(|it| it.claimed), sum(|it| it.held)));
            prop_assert_eq!((cell.cooling, cell.carved), (sum(|it| it.cooling), sum(|it| it.carved)));
            let all = cell.held + cell.claimed + cell.moving + cell.cooling + cell.reserved + cell.excluded + cell.unknown;
            prop_assert!(all <= 16, "{:?}", cell);
        }
        for cell in single.values() {
            let all = cell.held + cell.claimed + cell.moving + cell.cooling + cell.reserved + cell.excluded + cell.unknown;
            prop_assert!(all <= 1, "{:?}", cell);
        }
    }

    #[test]
    fn who_is_told_of_changes_knows_everything(words in words(), looks in prop::collection::vec(any::<bool>(), 24)) {
        let mut index = Index::default();
        let asked = Asked { pool: POOL.into(), part: Some(NETWORK.into()), cells: Some(256), ..Asked::default() };
        let networks = [NETWORK.to_owned()];
        let mut told = Map::of(&index, &asked, &networks).unwrap();
        told.all(&index);
        for (word, look) in words.iter().zip(looks) {
            say(&mut index, word);
            if look {
                told.news(&index);
            }
        }
        told.news(&index);
        let mut fresh = Map::of(&index, &asked, &networks).unwrap();
        fresh.all(&index);
        prop_assert_eq!(told.known(), fresh.known());
        prop_assert!(told.news(&index).is_none(), "nothing changed since");
    }
}

#[test]
fn a_large_pool_costs_what_is_in_it() {
    let mut index = Index::default();
    let first: Address = std::net::IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 0]).into();
    let pool: Name = POOL.into();
    let mark = |offset: u128| Piece::Mark {
        pool: pool.clone(),
        address: first.plus(offset).unwrap(),
        state: State::Held,
        node: None,
    };
    index.say(("test", "six".into()), vec![mark(5), mark(1 << 40)]);
    let view = View { pool: pool.clone(), first, bits: 52, cells: 4096 };
    let cells = index.cells(&view, 0..4096);
    assert_eq!(cells.iter().map(|(number, cell)| (*number, cell.held)).collect::<Vec<_>>(), [(0, 2)]);
    let last = first.plus((1 << 64) - 1).unwrap();
    assert_eq!(
        index.extent(&pool, first, last),
        Some((first.plus(5).unwrap(), first.plus(1 << 40).unwrap()))
    );
    let asked = Asked { pool: POOL.into(), ..Asked::default() };
    let mut map = Map::of(&index, &asked, &["fd00::/64".to_owned()]).unwrap();
    let drawn = serde_json::to_value(map.all(&index)).unwrap();
    assert_eq!(
        (&drawn["part"], &drawn["bits"], &drawn["cells"]),
        (&"fd00::/87".into(), &29.into(), &4096.into())
    );
    assert_eq!(drawn["runs"], serde_json::json!([[0, 1, -1, 0, 1], [2048, 1, -1, 0, 1]]));
}

#[test]
fn who_looks_too_rarely_reads_everything_again() {
    let mut index = Index::default();
    let view = view(0);
    let since = index.version();
    for round in 0..REMEMBERED + 2 {
        let state = if round % 2 == 0 { State::Held } else { State::Cooling };
        let mark = Piece::Mark { pool: POOL.into(), address: address(1), state, node: None };
        index.say(("test", "one".into()), vec![mark]);
    }
    assert_eq!(index.news(&view, since), News::All);
    let version = index.version();
    assert_eq!(index.news(&view, version), News::Cells(BTreeSet::new(), false));
    index.say(("test", "one".into()), Vec::new());
    assert_eq!(index.news(&view, version), News::Cells([1].into(), false));
}
