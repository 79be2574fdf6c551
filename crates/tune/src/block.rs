//! Requests that have been decided, in order of time, on their way to those who count them. Every counter sees every block, each in a thread
//! of its own if there are enough, so counts do not depend on how many threads there are.

use std::sync::Arc;

use crate::facts::Asks;
use crate::hot_keys::HotKeys;
use crate::lines::{Line, LineCharge, Lines};
use crate::routes::{self, Routes};
use crate::timeline::Counts;
use crate::traffic::{HOT_ROOM, Said, Traffic};
use crate::trial::Outcome;

/// Requests of a block; few in tests, so that short logs have many blocks.
const ROOM: usize = if cfg!(test) { 256 } else { 8_192 };

/// Decided requests.
#[derive(Debug, Default)]
pub(crate) struct Block {
    /// Those that the rows refer to.
    lines: Vec<Arc<Lines>>,
    rows: Vec<Row>,
    /// What was said to the charges of each row, one after the other, and then to those of the rules to compare with.
    said: Vec<Said>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    at_us: u64,
    lines: u32,
    index: u32,
    said: u32,
    fate: Outcome,
    /// Under the rules to compare with.
    then: Outcome,
}

impl Block {
    pub(crate) fn is_full(&self) -> bool {
        self.rows.len() >= ROOM
    }

    /// What was said to the charges of the row that is added next.
    pub(crate) fn said(&mut self) -> &mut Vec<Said> {
        &mut self.said
    }

    /// Adds a row whose answers, from `said` on, have been added.
    pub(crate) fn add(&mut self, at_us: u64, request: (&Arc<Lines>, usize), said: usize, fates: [Outcome; 2]) {
        let (lines, index) = request;
        // Nearly always one of the last.
        let known = self.lines.iter().rposition(|known| Arc::ptr_eq(known, lines));
        let place = known.unwrap_or_else(|| {
            self.lines.push(lines.clone());
            self.lines.len() - 1
        });
        let [fate, then] = fates;
        self.rows.push(Row { at_us, lines: place as u32, index: index as u32, said: said as u32, fate, then });
    }

    fn each(&self, mut with: impl FnMut(&Row, &Lines, &Line)) {
        for row in &self.rows {
            let lines = &*self.lines[row.lines as usize];
            with(row, lines, lines.request(row.index as usize));
        }
    }
}

/// One who counts.
#[derive(Debug)]
pub(crate) enum Counter<'f> {
    /// Keys of some kind.
    Keys(Of, &'f mut Traffic),
    Overall(&'f mut Overall),
}

/// Whose keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// All requests, by address.
    Clients,
    /// Those that sign in, by address.
    SignIns,
    /// Those of the rule or the kind of keys at this position.
    Rule(u32),
    /// Those of a rule to compare with.
    Compared(u32),
}

/// What is counted of all requests together.
#[derive(Debug)]
pub(crate) struct Overall {
    pub(crate) routes: Routes,
    /// By day of the week from Monday, and hour, in UTC.
    pub(crate) week: [[Counts; 24]; 7],
    /// Requests that pass under the rules to compare with and do not now, by address.
    pub(crate) gaining: HotKeys<()>,
    /// The other way round.
    pub(crate) losing: HotKeys<()>,
}

impl Counter<'_> {
    pub(crate) fn count(&mut self, block: &Block) {
        match self {
            Counter::Keys(of, traffic) => of.count(block, traffic),
            Counter::Overall(overall) => block.each(|row, lines, line| overall.count(row, lines, line)),
        }
    }
}

impl Of {
    fn count(self, block: &Block, traffic: &mut Traffic) {
        let add = |traffic: &mut Traffic, row: &Row, lines: &Lines, line: &Line, charge: &LineCharge, said: Said| {
            traffic.add(row.at_us, &charge.key, lines.key(&charge.key), charge.cost, &line.facts, said);
        };
        match self {
            Of::Clients | Of::SignIns => block.each(|row, lines, line| {
                let Some(client) = line.client else { return };
                if self == Of::Clients || line.facts.asks == Asks::SignIn {
                    let denied = row.fate == Outcome::Denied;
                    let said = if denied { Said::Denied { wait: None } } else { Said::Allowed };
                    traffic.add(row.at_us, &client, lines.key(&client), 1, &line.facts, said);
                }
            }),
            Of::Rule(rule) => block.each(|row, lines, line| {
                let said = &block.said[row.said as usize..];
                for (charge, said) in lines.charges(line).iter().zip(said).filter(|(charge, _)| charge.rule == rule) {
                    add(traffic, row, lines, line, charge, *said);
                }
            }),
            Of::Compared(rule) => block.each(|row, lines, line| {
                let said = &block.said[row.said as usize + lines.charges(line).len()..];
                for (charge, said) in lines.compared(line).iter().zip(said).filter(|(charge, _)| charge.rule == rule) {
                    add(traffic, row, lines, line, charge, *said);
                }
            }),
        }
    }
}

impl Overall {
    pub(crate) fn new() -> Overall {
        Overall {
            routes: Routes::new(),
            week: [[Counts::default(); 24]; 7],
            gaining: HotKeys::new(HOT_ROOM),
            losing: HotKeys::new(HOT_ROOM),
        }
    }

    fn count(&mut self, row: &Row, lines: &Lines, line: &Line) {
        let facts = &line.facts;
        let hour = row.at_us / 3_600_000_000;
        // The epoch was a Thursday.
        let counts = &mut self.week[((hour / 24 + 3) % 7) as usize][(hour % 24) as usize];
        counts.requests += 1;
        counts.denied += u64::from(row.fate == Outcome::Denied);
        let counts = routes::Counts {
            requests: 1,
            refused: u64::from((400..500).contains(&facts.status)),
            failed: u64::from(facts.status >= 500),
            sign_ins: u64::from(facts.asks == Asks::SignIn),
            no_rule: u64::from(row.fate == Outcome::NoRule),
        };
        self.routes.count(facts.route, lines.route(line), counts);
        let change = match (row.fate == Outcome::Denied, row.then == Outcome::Denied) {
            (true, false) => &mut self.gaining,
            (false, true) => &mut self.losing,
            _ => return,
        };
        if let Some(client) = line.client {
            change.count(client.hash, 0, lines.key(&client));
        }
    }
}
