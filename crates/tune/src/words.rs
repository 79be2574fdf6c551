//! Numbers, counts and spans of time as people say them.

use std::time::Duration;

/// `1,234`.
pub fn grouped(number: u64) -> String {
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
pub fn counted(number: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// `40 µs`, `100 ms`, `4.2 s`, `3 min 5 s`, `2 h 10 min`, `17 days 6 h`: the two largest units.
pub fn lasting(time: Duration) -> String {
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
    // Rounded up, so that no wait is shown too short.
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

/// A share as people say it, with two digits below one percent: `0.08 %`, `4.2 %`, `31 %`. 0 % and 100 % mean exactly that.
pub fn share(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        0.0 => "0 %".to_string(),
        100.0.. => "100 %".to_string(),
        99.9..100.0 => "over 99.9 %".to_string(),
        99.0..99.9 => format!("{percent:.1} %"),
        10.0..99.0 => format!("{percent:.0} %"),
        1.0..10.0 => format!("{percent:.1} %"),
        0.01..1.0 => format!("{percent:.2} %"),
        0.001..0.01 => format!("{percent:.3} %"),
        _ => "under 0.001 %".to_string(),
    }
}

/// A time in UTC from seconds since the epoch: `2026-01-31 13:05`.
pub fn minute_of(seconds: u64) -> String {
    // Days in years that begin in March, as in Howard Hinnant's "chrono-compatible low-level date algorithms".
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month + 2) / 5 + 1;
    let (month, year) = if month < 10 { (month + 3, era * 400 + year) } else { (month - 9, era * 400 + year + 1) };
    format!("{year:04}-{month:02}-{date:02} {:02}:{:02}", seconds / 3_600 % 24, seconds / 60 % 60)
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
    fn shares_say_no_more_than_is_true() {
        let shown = [0.0, 0.000_001, 0.0008, 0.0420, 0.31, 0.9995, 1.0].map(share);
        assert_eq!(shown, ["0 %", "under 0.001 %", "0.08 %", "4.2 %", "31 %", "over 99.9 %", "100 %"]);
    }

    #[test]
    fn times_are_in_utc() {
        let shown = [0, 951_782_400, 1_767_225_599].map(minute_of);
        assert_eq!(shown, ["1970-01-01 00:00", "2000-02-29 00:00", "2025-12-31 23:59"]);
    }

    #[test]
    fn one_is_singular() {
        assert_eq!([0, 1, 2, 1_234].map(|number| counted(number, "key")), ["0 keys", "1 key", "2 keys", "1,234 keys"]);
    }
}
