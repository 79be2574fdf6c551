//! A flood of new keys: memory stays within its cap, and no client's limit is evicted.

use std::fmt::Write as _;
use std::sync::Arc;

use tollkeeper::{Charge, Key, ManualClock, MemoryStore, RuleSpec, Span, Timestamp};

const MAX_KEYS: usize = 1_000_000;
const FLOOD: usize = 10_000_000;
const CLIENTS: usize = 1_000;
/// What the test itself and the allocator may take beside the store.
const SLACK_BYTES: usize = 16 << 20;

#[test]
fn ten_million_keys_evict_no_limit() {
    let _alone = super::alone();
    let clock = ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000));
    let before = resident_bytes();
    let store = MemoryStore::with(MAX_KEYS, clock.clone());
    let bound = store.memory_bytes();
    assert!(bound <= 40 * MAX_KEYS, "{bound} bytes for {MAX_KEYS} keys");

    // Client n uses n mod 6 of its 5 tokens, of which it gets one back every 12 minutes.
    let mut login = charge("login", "5/h");
    for client in 0..CLIENTS {
        let used = (0..client % 6).filter(|_| is_allowed(&store, &mut login, "client", client)).count();
        assert_eq!(used, (client % 6).min(5));
    }

    // Two microseconds apart and forgotten after a second: about half a million of them count at a time.
    let mut visit = charge("visit", "1/s");
    for newcomer in 0..FLOOD {
        clock.advance(Span::from_micros(2));
        assert!(is_allowed(&store, &mut visit, "stranger", newcomer));
        if newcomer.is_multiple_of(100_000) {
            assert!(store.len() <= MAX_KEYS);
            assert_eq!(store.memory_bytes(), bound);
        }
    }
    // Now all at one moment, so that nothing can be dropped, and those without room share what 64 keys would get.
    assert_eq!(store.overflowed().keys, 0);
    let before_flood = store.len();
    let passed = (FLOOD..FLOOD + MAX_KEYS).filter(|nth| is_allowed(&store, &mut visit, "stranger", *nth)).count();
    let own = store.len() - before_flood;
    // Of those that were kept before, the idle ones may have made way.
    assert!(passed <= own + MAX_KEYS / 2 + 64, "{passed} passed, {own} are new");
    assert!(store.overflowed().keys > 0);
    // One rule takes at most eight ninths, so that the others still find room.
    assert!((MAX_KEYS * 8 / 9..=MAX_KEYS * 8 / 9 + CLIENTS).contains(&store.len()), "{}", store.len());
    assert_eq!(store.memory_bytes(), bound);
    if let (Some(before), Some(after)) = (before, resident_bytes()) {
        assert!(after - before <= bound + SLACK_BYTES, "{} bytes resident for {bound}", after - before);
    }

    // The 20 seconds since refill no token, so each client has exactly what it had left.
    for client in 0..CLIENTS {
        // Who never came is new to the store, and finds room beside the flood.
        let left = (0..10).filter(|_| is_allowed(&store, &mut login, "client", client)).count();
        assert_eq!(left, 5 - (client % 6), "client {client}");
    }
}

/// Keys were spread over all pages of the table from the start: each of the first thousand took nearly 8 KB, in a table for twelve million.
#[test]
fn a_few_keys_take_a_few_pages_of_a_large_table() {
    const FEW: usize = 1_000;
    let _alone = super::alone();
    let store = MemoryStore::with(12 * MAX_KEYS, ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000)));
    let mut visit = charge("visit", "1/h");
    let before = resident_bytes();
    assert!((0..FEW).all(|nth| is_allowed(&store, &mut visit, "client", nth)));
    if let (Some(before), Some(after)) = (before, resident_bytes()) {
        let bytes = after.saturating_sub(before);
        // Much less than that is of the table; what earlier tests left behind changes too.
        assert!(bytes <= 2_000 * FEW, "{bytes} bytes resident for {FEW} keys");
    }
}

fn charge(rule: &str, limit: &str) -> Charge {
    let spec = RuleSpec { name: rule.into(), key: "{id}".into(), limit: limit.into(), ..RuleSpec::default() };
    Charge::new(Arc::new(spec.build().unwrap()), Key { variant: 0, value: String::new() }, 1)
}

fn name(charge: &mut Charge, kind: &str, nth: usize) {
    charge.key.value.clear();
    write!(charge.key.value, "{kind}-{nth}").unwrap();
}

fn is_allowed(store: &MemoryStore, charge: &mut Charge, kind: &str, nth: usize) -> bool {
    name(charge, kind, nth);
    store.charge(std::slice::from_ref(charge)).unwrap()[0].is_allowed()
}

/// The resident memory of this process; `None` on systems without that file.
fn resident_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()? * 1024)
}
