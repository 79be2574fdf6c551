//! The auditor's report: lines while it runs, then a page with a plot for each scenario.

use std::fmt::Write as _;
use std::path::Path;

use tollkeeper_auditor::{Audit, Bound, Bounds, Observation, audit};

use crate::client::KEYS;
use crate::fleet::KINDS;
use crate::plot::{Plot, draw};
use crate::scenarios::Scenario;
use crate::stage::Recording;

/// All scenarios of a run.
pub(crate) struct Report {
    seed: u64,
    rows: Vec<Row>,
    plots: Vec<(String, String)>,
}

/// The result for one kind of rule in one scenario: its worst key.
struct Row {
    scenario: &'static str,
    kind: &'static str,
    bound: Bound,
    asked: usize,
    admitted: usize,
    unanswered: usize,
    worst: Option<Audit>,
    /// By how much the limit itself, without regard to faults, was exceeded at most.
    excess: u64,
}

impl Report {
    pub(crate) fn new(seed: u64) -> Report {
        Report { seed, rows: Vec::new(), plots: Vec::new() }
    }

    /// Judges a scenario, and prints a line for each kind of rule.
    pub(crate) fn add(
        &mut self,
        scenario: &Scenario,
        bounds: &Bounds,
        recording: Recording,
    ) -> Result<Vec<String>, String> {
        let mut lines = Vec::new();
        let mut plots = Vec::new();
        for (index, kind) in KINDS.iter().enumerate() {
            let missing = || format!("docs/guide/bounds.md has no bound for {:?} and {:?}", scenario.fault, kind.name);
            let bound = bounds.of(scenario.fault, kind.name).ok_or_else(missing)?;
            let of_kind = || recording.asked.iter().filter(move |asked| asked.kind == index);
            let of_key = |key| -> Vec<Observation> {
                of_kind().filter(|asked| asked.key == key).map(|asked| asked.observation).collect()
            };
            let audits =
                (0..KEYS).filter_map(|key| Some((key, audit(&of_key(key), kind.limit, bound, &recording.events)?)));
            let worst = audits.max_by_key(|(_, audit)| i128::from(audit.admitted) - i128::from(audit.allowed));
            let over = |key| audit(&of_key(key), kind.limit, Bound::LIMIT, &[]);
            let excess = (0..KEYS).filter_map(over).map(|audit| audit.admitted.saturating_sub(audit.allowed)).max();
            let row = Row {
                scenario: scenario.name,
                kind: kind.name,
                bound,
                asked: of_kind().count(),
                admitted: of_kind().filter(|asked| asked.observation.admitted).count(),
                unanswered: of_kind().filter(|asked| !asked.is_answered).count(),
                worst: worst.map(|(_, audit)| audit),
                excess: excess.unwrap_or(0),
            };
            lines.push(row.to_line());
            let requests = of_key(worst.map_or(0, |(key, _)| key));
            plots.push(Plot { name: kind.name, requests, limit: kind.limit, bound });
            self.rows.push(row);
        }
        if !self.rows[self.rows.len() - KINDS.len()..].iter().all(Row::holds) {
            lines.extend(recording.logs.iter().map(|log| last_lines(log, 8)));
        }
        self.plots.push((scenario.name.to_string(), draw(&plots, &recording.events)));
        Ok(lines)
    }

    pub(crate) fn is_complete(&self) -> bool {
        !self.rows.is_empty()
    }

    pub(crate) fn holds(&self) -> bool {
        self.rows.iter().all(Row::holds)
    }

    /// What each scenario cost, by kind of rule: the table that the guide quotes.
    fn costs(&self) -> String {
        let heads =
            KINDS.map(|kind| format!("`{}`: {}/s, burst {}", kind.name, kind.limit.per_second, kind.limit.burst));
        let mut table =
            format!("## What each failure costs\n\n| what fails | {} |\n|---|---|---|---|---|\n", heads.join(" | "));
        for rows in self.rows.chunks(KINDS.len()) {
            let costs: Vec<String> = rows.iter().map(|row| row.excess.to_string()).collect();
            let _ = writeln!(table, "| {} | {} |", rows[0].scenario, costs.join(" | "));
        }
        table
    }

    /// `report.md` and the plots beside it.
    pub(crate) fn write(&self, folder: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        let mut page = format!("# Chaos report\n\n`./run chaos --seed {}`.\n\n{}\n", self.seed, self.costs());
        page += "## Every interval\n\nEach row is the key, and the interval of it, that came closest to its bound (or \
             exceeded it most). The last column is the largest excess over B + N·t in any interval, faults or not. How it is judged: \
             [bounds](../guide/bounds.md).\n\n\
             | scenario | rule | bound | requests | admitted | without an answer | worst interval | admitted in it | allowed | over the limit |\n\
             |---|---|---|---|---|---|---|---|---|---|\n";
        for row in &self.rows {
            let Row { scenario, kind, bound, asked, admitted, unanswered, excess, .. } = row;
            let worst = row.worst.map_or("– | – | –".to_string(), |worst| {
                let (from, to) = (worst.from.as_secs_f64(), worst.to.as_secs_f64());
                let mark = if row.holds() { "" } else { " **exceeded**" };
                format!("{from:.2} to {to:.2} s | {} | {}{mark}", worst.admitted, worst.allowed)
            });
            let _ = writeln!(
                page,
                "| {scenario} | `{kind}` | {bound} | {asked} | {admitted} | {unanswered} | {worst} | {excess} |"
            );
        }
        page += "\nAdmitted requests of that key over time (line), what its bound allows from the start (dashed), and the faults (shaded):\n";
        for (name, svg) in &self.plots {
            let file = format!("{}.svg", name.replace([' ', ',', '\''], "-").replace("--", "-"));
            std::fs::write(folder.join(&file), svg)?;
            let _ = write!(page, "\n## {name}\n\n![{name}]({file})\n");
        }
        std::fs::write(folder.join("report.md"), page)
    }
}

impl Row {
    fn holds(&self) -> bool {
        !self.worst.is_some_and(|worst| worst.is_violated())
    }

    fn to_line(&self) -> String {
        let worst = self.worst.map_or("nothing to judge".to_string(), |worst| {
            let seconds = (worst.to - worst.from).as_secs_f64();
            format!("worst interval {seconds:.2} s: {} admitted, {} allowed", worst.admitted, worst.allowed)
        });
        let mark = if self.holds() { "ok      " } else { "EXCEEDED" };
        format!(
            "  {mark} {:7} {:6} asked, {:5} admitted; {worst} ({}); {} over the limit itself",
            self.kind, self.asked, self.admitted, self.bound, self.excess
        )
    }
}

fn last_lines(log: &str, count: usize) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
