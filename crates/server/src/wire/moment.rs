//! Moments as people write them: RFC 3339 in UTC, `2026-01-31T12:00:00Z`.

use tollkeeper::Timestamp;

/// How a moment is described in the schema.
pub(crate) const PATTERN: &str =
    r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?Z$";

const DAY_US: u64 = 86_400_000_000;

/// To the millisecond.
pub(crate) fn write_moment(moment: Timestamp) -> String {
    let micros = moment.as_micros();
    let (year, month, day) = date(micros / DAY_US);
    let ms = micros % DAY_US / 1_000;
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1_000)
}

/// `None` for what is no moment, is not in UTC, or lies before 1970.
pub(crate) fn read_moment(text: &str) -> Option<Timestamp> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    if fraction.is_empty() || fraction.len() > 6 {
        return None;
    }
    let numbers = |text: &str, separator: char, widths: [usize; 3]| {
        let parts: Vec<&str> = text.split(separator).collect();
        let fits = parts.len() == 3 && parts.iter().zip(widths).all(|(part, width)| part.len() == width);
        let number = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse::<u64>().ok());
        fits.then(|| parts.iter().map(number).collect::<Option<Option<Vec<u64>>>>()).flatten().flatten()
    };
    let (date, time) = (numbers(date, '-', [4, 2, 2])?, numbers(time, ':', [2, 2, 2])?);
    let (&[year, month, day], &[hour, minute, second]) = (&date[..], &time[..]) else { return None };
    let is_time = hour < 24 && minute < 60 && second < 60 && (1..=12).contains(&month);
    if !is_time || !(1..=days_in(year, month)).contains(&day) || year < 1970 {
        return None;
    }
    let days = (1970..year).map(|year| if is_leap(year) { 366 } else { 365 }).sum::<u64>()
        + (1..month).map(|month| days_in(year, month)).sum::<u64>()
        + day
        - 1;
    let fraction: u64 =
        fraction.bytes().all(|byte| byte.is_ascii_digit()).then(|| format!("{fraction:0<6}"))?.parse().ok()?;
    let seconds = hour * 3_600 + minute * 60 + second;
    Some(Timestamp::from_micros(days * DAY_US + seconds * 1_000_000 + fraction))
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_in(year: u64, month: u64) -> u64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap(year) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Year, month and day of a day since the epoch. No moment lies beyond 2112, so counting is quick.
fn date(mut days: u64) -> (u64, u64, u64) {
    let (mut year, mut month) = (1970, 1);
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    while days >= days_in(year, month) {
        days -= days_in(year, month);
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_they_are_written() {
        for (text, micros) in [
            ("1970-01-01T00:00:00.000Z", 0),
            ("2000-02-29T23:59:59.999Z", 951_868_799_999_000),
            ("2026-01-01T00:00:00.000Z", 1_767_225_600_000_000),
            ("2100-03-01T00:00:00.000Z", 4_107_542_400_000_000),
        ] {
            let moment = Timestamp::from_micros(micros);
            assert_eq!(write_moment(moment), text);
            assert_eq!(read_moment(text), Some(moment));
        }
        assert_eq!(read_moment("2026-01-01T00:00:00.5Z"), Some(Timestamp::from_micros(1_767_225_600_500_000)));
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in [
            "",
            "Z",
            "tomorrow",
            "2026-01-01",
            "2026-01-01T00:00:00",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00+01:00",
            "+026-01-01T00:00:00Z",
            "2026-01-01T00:00:00.1234567Z",
            "1969-12-31T23:59:59Z",
        ] {
            assert_eq!(read_moment(text), None, "{text}");
        }
    }
}
