//! Numbers in few characters.

use std::time::Duration;

use tollkeeper_tune::words::lasting;

pub(super) fn short(number: f64) -> String {
    let (scaled, unit) = match number {
        ..100_000.0 => (number, ""),
        ..1_000_000.0 => (number / 1e3, "k"),
        ..1_000_000_000.0 => (number / 1e6, "M"),
        _ => (number / 1e9, "G"),
    };
    let decimals = usize::from(scaled < 100.0 && scaled.fract() >= 0.05);
    format!("{scaled:.decimals$}{unit}")
}

/// `1 call`, `2 calls`.
pub(super) fn counted(number: u64, what: &str) -> String {
    format!("{} {what}{}", short(number as f64), if number == 1 { "" } else { "s" })
}

pub(super) fn percent(share: f64) -> String {
    match share * 100.0 {
        none if none <= 0.0 => "0 %".into(),
        little if little < 0.1 => "<0.1 %".into(),
        most if most < 100.0 && most > 99.9 => ">99.9 %".into(),
        part => format!("{part:.1} %"),
    }
}

pub(super) fn micros(us: Option<f64>) -> String {
    match us {
        None => "-".into(),
        Some(us) if us < 1e3 => format!("{us:.0} µs"),
        Some(us) if us < 1e6 => format!("{:.1} ms", us / 1e3),
        Some(us) => format!("{:.1} s", us / 1e6),
    }
}

/// `19 min 54 s`.
pub(super) fn span(seconds: u64) -> String {
    lasting(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_claim_no_more_than_is_true() {
        let shown = [0.0, 0.3, 12.0, 99.96, 280.4, 99_999.0, 250_000.0, 1e6, 1.25e6, 3e9].map(short);
        assert_eq!(shown, ["0", "0.3", "12", "100.0", "280", "99999", "250k", "1M", "1.2M", "3G"]);
        let shares = [0.0, 0.0001, 0.249, 0.99995, 1.0].map(percent);
        assert_eq!(shares, ["0 %", "<0.1 %", "24.9 %", ">99.9 %", "100.0 %"]);
        assert_eq!([None, Some(10.0), Some(2_500.0), Some(1e6)].map(micros), ["-", "10 µs", "2.5 ms", "1.0 s"]);
        assert_eq!([8, 194, 7_260, 90_000].map(span), ["8 s", "3 min 14 s", "2 h 1 min", "1 day 1 h"]);
    }
}
