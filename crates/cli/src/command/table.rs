//! A service's answers as tables.

use std::io::Write as _;

use serde_json::Value;
use tollkeeper_tune::words::counted;

use super::ending::Ending;
use super::visible::visible;

/// Prints an answer as text, or as it came.
pub fn print(answer: &Value, as_json: bool, text: impl FnOnce(&Value) -> String) -> anyhow::Result<Ending> {
    let text = if as_json { format!("{answer}\n") } else { text(answer) };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(Ending::Fine)
}

/// A line that says how many are missing from the list, if any are.
pub fn missing(answer: &Value, what: &str) -> String {
    match answer["dropped"].as_u64() {
        Some(dropped) if dropped > 0 => format!("{} missing: they could not be stored\n", counted(dropped, what)),
        _ => String::new(),
    }
}

/// One line per row, below the column titles. A column is a title and the field that it shows.
pub fn table<const N: usize>(columns: &[(&str, &str); N], rows: &Value) -> String {
    let rows = rows.as_array().map(Vec::as_slice).unwrap_or_default();
    let head = columns.map(|(title, _)| title.to_string());
    let lines: Vec<[String; N]> =
        std::iter::once(head).chain(rows.iter().map(|row| columns.map(|(_, field)| cell(&row[field])))).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Clients choose much of this text.
fn cell(value: &Value) -> String {
    const LONGEST: usize = 48;
    let text = match value {
        Value::Null => "-".to_string(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => visible(&text[..end]) + "…",
        None => visible(&text),
    }
}
