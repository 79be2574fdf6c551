//! Numbers, counts and spans of time as people say them.

use std::time::Duration;

/// `1,234`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 key`, `1,200 keys`.
pub(crate) fn counted(number: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// `40 µs`, `100 ms`, `4.2 s`, `3 min 5 s`, `2 h 10 min`, `17 days 6 h`: the two largest units.
pub(crate) fn lasting(time: Duration) -> String {
    let micros = time.as_micros();
    if micros < 1_000_000 {
        return match micros {
            0 => "0 s".into(),
            1..1_000 => format!("{micros} µs"),
            _ => format!("{} ms", decimal(micros as f64 / 1e3)),
        };
    }
    if micros < 60_000_000 {
        return format!("{} s", decimal(micros as f64 / 1e6));
    }
    // Rounded up, so that nobody is told a time that is too short.
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    let days = match seconds / 86_400 {
        1 => "1 day".to_string(),
        days => format!("{} days", grouped(days)),
    };
    let (large, small, unit) = match seconds {
        0..3_600 => (format!("{} min", seconds / 60), seconds % 60, "s"),
        3_600..86_400 => (format!("{} h", seconds / 3_600), seconds % 3_600 / 60, "min"),
        _ => (days, seconds % 86_400 / 3_600, "h"),
    };
    if small == 0 { large } else { format!("{large} {small} {unit}") }
}

/// With up to three decimals.
fn decimal(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `check` said "passes in 1490418.338 s".
    #[test]
    fn spans_are_in_the_units_that_people_use() {
        for (micros, expected) in [
            (0, "0 s"),
            (40, "40 µs"),
            (100_000, "100 ms"),
            (1_500, "1.5 ms"),
            (4_200_000, "4.2 s"),
            (59_999_999, "60 s"),
            (185_000_000, "3 min 5 s"),
            (7_200_000_000, "2 h"),
            (7_800_000_000, "2 h 10 min"),
            (86_400_000_000, "1 day"),
            (1_490_418_338_000, "17 days 6 h"),
        ] {
            assert_eq!(lasting(Duration::from_micros(micros)), expected, "{micros}");
        }
    }

    #[test]
    fn one_is_singular() {
        assert_eq!([0, 1, 2, 1_234].map(|number| counted(number, "key")), ["0 keys", "1 key", "2 keys", "1,234 keys"]);
    }
}
