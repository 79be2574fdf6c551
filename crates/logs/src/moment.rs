//! The ways in which logs write a time, all into microseconds since the epoch.

/// How finely a log tells the time. Requests of one whole second have an unknown order and distance within it. These are all: logs
/// that tell less than the second are not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Precision {
    /// Fractions of a second.
    Fine,
    /// Whole seconds.
    Seconds,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) micros: u64,
    pub(crate) precision: Precision,
}

impl Moment {
    /// `10/Oct/2000:13:55:36 -0700` (Apache, nginx), `06/Feb/2009:12:14:14.655` (HAProxy, in `offset_seconds` of UTC).
    pub(crate) fn common_log(text: &str, offset_seconds: i64) -> Option<Moment> {
        let bytes = text.as_bytes();
        if bytes.len() < 20
            || bytes[2] != b'/'
            || bytes[6] != b'/'
            || bytes[11] != b':'
            || bytes[14] != b':'
            || bytes[17] != b':'
        {
            return None;
        }
        let month = month(&bytes[3..6])?;
        let date = Date { year: digits(&bytes[7..11])?, month, day: digits(&bytes[0..2])? };
        let clock = clock(&bytes[12..20])?;
        let (fraction, rest) = fraction(&text[20..])?;
        let offset = match rest.strip_prefix(' ') {
            Some(zone) => offset(zone)?,
            None if rest.is_empty() => offset_seconds,
            None => return None,
        };
        Moment::new(&date, clock, fraction, offset)
    }

    /// `2018-11-30T22:23:00.186641Z`, `2024-01-02 03:04:05+01:00`, `2024/01/02 03:04:05`; without an offset in `offset_seconds` of UTC.
    pub(crate) fn rfc3339(text: &str, offset_seconds: i64) -> Option<Moment> {
        let bytes = text.as_bytes();
        if bytes.len() < 19
            || !matches!(bytes[4], b'-' | b'/')
            || bytes[7] != bytes[4]
            || !matches!(bytes[10], b'T' | b't' | b' ' | b'\t')
            || bytes[13] != b':'
            || bytes[16] != b':'
        {
            return None;
        }
        let date = Date { year: digits(&bytes[0..4])?, month: digits(&bytes[5..7])?, day: digits(&bytes[8..10])? };
        let clock = clock(&bytes[11..19])?;
        let (fraction, rest) = fraction(&text[19..])?;
        let offset = match rest {
            "" => offset_seconds,
            "Z" | "z" | " UTC" => 0,
            zone => offset(zone.trim_start())?,
        };
        Moment::new(&date, clock, fraction, offset)
    }

    /// `1646861401.524` as seconds, milli-, micro- or nanoseconds by its size.
    pub(crate) fn epoch(text: &str) -> Option<Moment> {
        let (whole, rest) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
        if whole.is_empty() || whole.len() > 19 {
            return None;
        }
        let number: u64 = whole.parse().ok()?;
        let (fraction, rest) = fraction(rest)?;
        if !rest.is_empty() {
            return None;
        }
        if number < 100_000_000_000 {
            let micros = number.checked_mul(1_000_000)?.checked_add(fraction.unwrap_or(0))?;
            return Some(Moment {
                micros,
                precision: if fraction.is_some() { Precision::Fine } else { Precision::Seconds },
            });
        }
        let micros = match number {
            0..100_000_000_000_000 => number * 1_000 + fraction.unwrap_or(0) / 1_000,
            100_000_000_000_000..100_000_000_000_000_000 => number,
            _ => number / 1_000,
        };
        Some(Moment { micros, precision: Precision::Fine })
    }

    /// Any of the above.
    pub(crate) fn any(text: &str, offset_seconds: i64) -> Option<Moment> {
        let text = text.trim_matches(['[', ']', ' ']);
        Moment::rfc3339(text, offset_seconds)
            .or_else(|| Moment::common_log(text, offset_seconds))
            .or_else(|| Moment::epoch(text))
    }

    fn new(
        date: &Date,
        (hour, minute, second): (u64, u64, u64),
        fraction: Option<u64>,
        offset_seconds: i64,
    ) -> Option<Moment> {
        let seconds = date.days()? * 86_400 + (hour * 3_600 + minute * 60 + second) as i64 - offset_seconds;
        let micros = u64::try_from(seconds).ok()?.checked_mul(1_000_000)?.checked_add(fraction.unwrap_or(0))?;
        Some(Moment { micros, precision: if fraction.is_some() { Precision::Fine } else { Precision::Seconds } })
    }
}

struct Date {
    year: u64,
    month: u64,
    day: u64,
}

impl Date {
    /// Days since the epoch in the proleptic Gregorian calendar, counted in years that begin in March.
    fn days(&self) -> Option<i64> {
        let Date { year, month, day } = *self;
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let length = match month {
            2 => 28 + u64::from(leap),
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => return None,
        };
        if day == 0 || day > length {
            return None;
        }
        let year = if month <= 2 { year.checked_sub(1)? } else { year };
        let (era, year_of_era) = (year / 400, year % 400);
        let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        Some((era * 146_097 + day_of_era) as i64 - 719_468)
    }
}

fn month(name: &[u8]) -> Option<u64> {
    const NAMES: [&[u8; 3]; 12] =
        [b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec"];
    NAMES.iter().position(|known| known.eq_ignore_ascii_case(name)).map(|index| index as u64 + 1)
}

/// `13:55:36`. A leap second counts as the second before it.
fn clock(bytes: &[u8]) -> Option<(u64, u64, u64)> {
    let (hour, minute, second) = (digits(&bytes[0..2])?, digits(&bytes[3..5])?, digits(&bytes[6..8])?);
    (hour < 24 && minute < 60 && second <= 60).then_some((hour, minute, second.min(59)))
}

fn digits(bytes: &[u8]) -> Option<u64> {
    bytes.iter().try_fold(0, |number, byte| byte.is_ascii_digit().then(|| number * 10 + u64::from(byte - b'0')))
}

/// A fraction of a second in microseconds, if there is one, and what follows it. Finer digits are cut off.
fn fraction(text: &str) -> Option<(Option<u64>, &str)> {
    let Some(rest) = text.strip_prefix(['.', ',']) else {
        return Some((None, text));
    };
    let count = rest.bytes().take_while(u8::is_ascii_digit).count();
    if count == 0 {
        return None;
    }
    let micros = (0..6).fold(0, |micros, index| {
        micros * 10 + rest.as_bytes()[..count].get(index).map_or(0, |digit| u64::from(digit - b'0'))
    });
    Some((Some(micros), &rest[count..]))
}

/// `-0700`, `+01:00` or `Z`, in seconds east of UTC.
fn offset(zone: &str) -> Option<i64> {
    if zone == "Z" || zone == "UTC" {
        return Some(0);
    }
    let (sign, rest) = match zone.as_bytes().split_first()? {
        (b'+', rest) => (1, rest),
        (b'-', rest) => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = match rest.len() {
        2 => (digits(rest)?, 0),
        4 => (digits(&rest[..2])?, digits(&rest[2..])?),
        5 if rest[2] == b':' => (digits(&rest[..2])?, digits(&rest[3..])?),
        _ => return None,
    };
    (hours < 24 && minutes < 60).then(|| sign * (hours * 3_600 + minutes * 60) as i64)
}
