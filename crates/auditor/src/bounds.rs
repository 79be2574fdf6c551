//! The published table of bounds, parsed from the documentation.

use std::collections::BTreeMap;
use std::fmt;

/// How much may pass compared to the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// This many times the limit, and this many full bursts more for each event.
    Limited {
        /// 1 is the limit itself.
        times: u32,
        /// For each event.
        bursts: u32,
    },
    /// Anything may pass from the start of an event until the limiter has recovered; the limit applies before and
    /// after.
    NotLimitedDuringFault,
}

impl Bound {
    /// The limit and nothing more.
    pub const LIMIT: Bound = Bound::Limited { times: 1, bursts: 0 };

    /// The terms of the table: `limit`, `2 x limit`, `limit + 1 burst per event`, `not limited during the fault`.
    fn parse(cell: &str) -> Option<Bound> {
        if cell == "not limited during the fault" {
            return Some(Bound::NotLimitedDuringFault);
        }
        let (limit, bursts) = match cell.split_once(" + ") {
            Some((limit, bursts)) => {
                let count =
                    bursts.strip_suffix(" burst per event").or_else(|| bursts.strip_suffix(" bursts per event"));
                (limit, count?.parse().ok()?)
            }
            None => (cell, 0),
        };
        let times = if limit == "limit" { 1 } else { limit.strip_suffix(" x limit")?.parse().ok()? };
        Some(Bound::Limited { times, bursts })
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bound::Limited { times, bursts } = self else { return out.write_str("not limited during the fault") };
        if *times != 1 {
            write!(out, "{times} x ")?;
        }
        out.write_str("limit")?;
        match bursts {
            0 => Ok(()),
            1 => out.write_str(" + 1 burst per event"),
            bursts => write!(out, " + {bursts} bursts per event"),
        }
    }
}

/// A table: a bound for each fault (row) and each kind of rule (column).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    rows: BTreeMap<String, BTreeMap<String, Bound>>,
}

/// What is wrong with the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableTable(String);

impl fmt::Display for UnreadableTable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for UnreadableTable {}

impl Bounds {
    /// Reads the first table of a Markdown page whose first column is headed `fault`.
    pub fn read(page: &str) -> Result<Bounds, UnreadableTable> {
        let mut lines = page.lines().skip_while(|line| !line.starts_with("| fault |"));
        let head = lines.next().ok_or_else(|| UnreadableTable("no table whose first column is `fault`".into()))?;
        let kinds: Vec<String> = cells(head).skip(1).collect();
        let mut rows = BTreeMap::new();
        for line in lines.skip(1).take_while(|line| line.starts_with('|')) {
            let mut cells = cells(line);
            let fault = cells.next().unwrap_or_default();
            let mut row = BTreeMap::new();
            for (kind, cell) in kinds.iter().zip(cells) {
                let unknown = || UnreadableTable(format!("row {fault:?}, column {kind:?}: {cell:?} is not a bound"));
                row.insert(kind.clone(), Bound::parse(&cell).ok_or_else(unknown)?);
            }
            rows.insert(fault, row);
        }
        Ok(Bounds { rows })
    }

    /// The bound for a kind of rule under a fault.
    pub fn of(&self, fault: &str, kind: &str) -> Option<Bound> {
        self.rows.get(fault)?.get(kind).copied()
    }

    /// The faults that the table has.
    pub fn faults(&self) -> impl Iterator<Item = &str> {
        self.rows.keys().map(String::as_str)
    }
}

fn cells(line: &str) -> impl Iterator<Item = String> {
    line.trim().trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`').to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const PAGE: &str = "# Bounds\n\nText.\n\n| fault | `closed` | `open` |\n|---|---|---|\n\
        | none | limit | limit |\n| Redis restarts empty | limit + 1 burst per event | not limited during the fault |\n\nMore.\n";

    #[test]
    fn a_table_is_read_by_row_and_column() {
        let bounds = Bounds::read(PAGE).unwrap();
        assert_eq!(bounds.of("none", "closed"), Some(Bound::LIMIT));
        assert_eq!(bounds.of("Redis restarts empty", "closed"), Some(Bound::Limited { times: 1, bursts: 1 }));
        assert_eq!(bounds.of("Redis restarts empty", "open"), Some(Bound::NotLimitedDuringFault));
        assert_eq!(bounds.of("none", "local"), None);
        assert_eq!(bounds.faults().collect::<Vec<_>>(), ["Redis restarts empty", "none"]);
    }

    #[test]
    fn words_that_mean_no_bound_are_refused_with_their_place() {
        let error = Bounds::read(&PAGE.replace("not limited during the fault", "a little more")).unwrap_err();
        assert_eq!(error.to_string(), r#"row "Redis restarts empty", column "open": "a little more" is not a bound"#);
        assert!(Bounds::read("no table").is_err());
    }

    #[test]
    fn a_bound_is_shown_as_it_is_read() {
        for words in [
            "limit",
            "2 x limit",
            "limit + 1 burst per event",
            "3 x limit + 2 bursts per event",
            "not limited during the fault",
        ] {
            assert_eq!(Bound::parse(words).map(|bound| bound.to_string()).as_deref(), Some(words));
        }
    }
}
