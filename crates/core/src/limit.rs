//! Limits and lengths of time as people write them: `6,000/min`, `10/s`, `0.5/s`, `5/90s`, `1000/month`, `30s`.

use crate::calendar::CalendarUnit;
use crate::time::Span;

/// `count` per `period`; a `concurrency` limit may come without a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// How many.
    pub count: u32,
    /// Per how long, if given. For a month 30 days, for a year 365.
    pub period: Option<Span>,
    /// The part of the calendar that was written, such as `month`. Whether windows follow it depends on the algorithm.
    pub calendar: Option<CalendarUnit>,
    /// What may pass at once by default: the count as written, rounded up.
    pub burst: u32,
}

/// Why a text is not a limit. The message says what is expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LimitError(String);

impl LimitError {
    pub(crate) fn new(problem: impl Into<String>) -> LimitError {
        LimitError(problem.into())
    }
}

const UNITS: [(&[&str], u64); 8] = [
    (&["us", "microsecond", "microseconds"], 1),
    (&["ms", "millisecond", "milliseconds"], 1_000),
    (&["s", "sec", "secs", "second", "seconds"], 1_000_000),
    (&["m", "min", "mins", "minute", "minutes"], 60_000_000),
    (&["h", "hr", "hour", "hours"], 3_600_000_000),
    (&["d", "day", "days"], 86_400_000_000),
    (&["w", "week", "weeks"], 604_800_000_000),
    (&["month", "months"], 30 * 86_400_000_000),
];

impl std::str::FromStr for Limit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Limit, LimitError> {
        let (count, period) = match text.split_once('/') {
            Some((count, period)) => (count, Some(period)),
            None => (text, None),
        };
        let wrong = |problem: String| match problem.starts_with(&format!("{text:?} ")) {
            // It is about the whole text, as for `10 per second`.
            true => LimitError(problem),
            false => LimitError(format!("{text:?}: {problem}")),
        };
        let calendar = period.and_then(|period| calendar_unit(period.trim()));
        let period = match calendar {
            Some((1, unit)) => Some(unit.usual_length()),
            Some((count, unit @ (CalendarUnit::Month | CalendarUnit::Year))) => {
                let days = count.saturating_mul(unit.usual_length().as_micros() / 86_400_000_000);
                return Err(wrong(format!("a calendar window is a single {unit}, not {count}; write {days}day")));
            }
            _ => period.map(|period| parse_period(period.trim())).transpose().map_err(wrong)?,
        };
        let calendar = calendar.filter(|(count, _)| *count == 1).map(|(_, unit)| unit);
        let Rate { count, per, burst } = Rate::read(count.trim(), period.is_some())
            .map_err(|problem| wrong(format!("{problem}; write for example 10/s or 6,000/min")))?;
        let too_long = || wrong(format!("{per} times that period is too long; the longest is 71 years"));
        let longer = |period: Span| period.as_micros().checked_mul(per).map(Span::from_micros).ok_or_else(too_long);
        if let Some(unit @ (CalendarUnit::Month | CalendarUnit::Year)) = calendar.filter(|_| per > 1) {
            return Err(wrong(format!("a calendar window counts whole requests per {unit}; write a whole number")));
        }
        let calendar = calendar.filter(|_| per == 1);
        Ok(Limit { count, period: period.map(longer).transpose()?, calendar, burst })
    }
}

/// A count, possibly with decimals: `1.5` is 3 in two periods.
struct Rate {
    count: u32,
    /// In how many periods.
    per: u64,
    /// Rounded up.
    burst: u32,
}

impl Rate {
    /// More are a slip.
    const DECIMALS: usize = 6;

    fn read(text: &str, is_rate: bool) -> Result<Rate, LimitError> {
        let Some((whole, decimals)) = text.split_once('.').filter(|_| is_rate) else {
            let count = parse_count(text)?;
            return Ok(Rate { count, per: 1, burst: count });
        };
        let wrong = || LimitError(format!("{text:?} is not a number"));
        let is_digits = !decimals.is_empty() && decimals.bytes().all(|byte| byte.is_ascii_digit());
        if !is_digits || decimals.len() > Rate::DECIMALS {
            return Err(if is_digits { LimitError(format!("{text:?} has more than six decimals")) } else { wrong() });
        }
        if decimals == "000" {
            return Err(LimitError(format!(
                "{text:?} could be {whole} or {whole} thousand; write {whole} or {whole},000"
            )));
        }
        let (whole, part) = (parse_count(whole)?, decimals.parse::<u64>().map_err(|_| wrong())?);
        let per = 10_u64.pow(decimals.len() as u32);
        let count = u64::from(whole) * per + part;
        let common = greatest_common_divisor(count, per);
        let too_large = |_| LimitError(format!("{text} has too many digits to be counted exactly; round it"));
        let count_in_all = u32::try_from(count / common).map_err(too_large)?;
        Ok(Rate { count: count_in_all, per: per / common, burst: whole.saturating_add(u32::from(part > 0)) })
    }
}

/// How many of which part of the calendar a period is, if it is written as one.
fn calendar_unit(period: &str) -> Option<(u64, CalendarUnit)> {
    let unit_at = period.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = period.split_at(unit_at);
    let unit = match unit.trim().to_ascii_lowercase().as_str() {
        "d" | "day" | "days" => CalendarUnit::Day,
        "w" | "week" | "weeks" => CalendarUnit::Week,
        "month" | "months" => CalendarUnit::Month,
        "y" | "yr" | "year" | "years" => CalendarUnit::Year,
        _ => return None,
    };
    Some((if number.is_empty() { 1 } else { number.parse().ok()? }, unit))
}

fn greatest_common_divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one.max(1) } else { greatest_common_divisor(other, one % other) }
}

/// A length of time such as `30s`, `2 min` or `1h`.
pub fn parse_span(text: &str) -> Result<Span, LimitError> {
    parse_period(text.trim()).map_err(|problem| LimitError(format!("{text:?}: {problem}")))
}

/// Digits, optionally grouped by threes with `,` or freely with `_`.
pub fn parse_count(text: &str) -> Result<u32, LimitError> {
    let groups: Vec<&str> = text.split(',').collect();
    let grouped = groups.len() == 1 || (groups[0].len() <= 3 && groups[1..].iter().all(|group| group.len() == 3));
    let digits: String = text.chars().filter(|c| !matches!(c, ',' | '_')).collect();
    let well_formed = text.starts_with(|c: char| c.is_ascii_digit())
        && text.ends_with(|c: char| c.is_ascii_digit())
        && digits.bytes().all(|b| b.is_ascii_digit());
    if !well_formed || !grouped {
        return Err(LimitError(format!("{text:?} is not a whole number")));
    }
    digits.parse().map_err(|_| LimitError(format!("{text} is too large (at most {})", u32::MAX - 1)))
}

fn parse_period(text: &str) -> Result<Span, String> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = (&text[..unit_at], text[unit_at..].trim());
    let number: u64 = match number {
        "" => 1,
        digits => digits.parse().map_err(|_| format!("a period of {text} is too long; the longest is 71 years"))?,
    };
    if unit == "M" {
        return Err("\"M\" could be a minute or a month; write min or month".into());
    }
    let unit_name = unit.to_ascii_lowercase();
    let size = UNITS.iter().find(|(names, _)| names.contains(&unit_name.as_str())).map(|(_, size)| *size);
    match size {
        Some(size) => number
            .checked_mul(size)
            .map(Span::from_micros)
            .ok_or_else(|| format!("a period of {text} is too long; the longest is 71 years")),
        None if unit.is_empty() && unit_at > 0 => Err(format!("{text} has no unit of time; write {text}s for seconds")),
        None => {
            Err(format!("{unit:?} is not a unit of time; use ms, s, min, h, day, week, month or year, as in 5/90s"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(text: &str) -> (u32, Option<u64>) {
        let limit: Limit = text.parse().expect(text);
        (limit.count, limit.period.map(Span::as_micros))
    }

    #[test]
    fn reads_what_people_write() {
        assert_eq!(limit("10/s"), (10, Some(1_000_000)));
        assert_eq!(limit("6,000/min"), (6_000, Some(60_000_000)));
        assert_eq!(limit("6_000 / min"), (6_000, Some(60_000_000)));
        assert_eq!(limit("5/90s"), (5, Some(90_000_000)));
        assert_eq!(limit("1/day"), (1, Some(86_400_000_000)));
        assert_eq!(limit("1,000,000/h"), (1_000_000, Some(3_600_000_000)));
        assert_eq!(limit("20/100ms"), (20, Some(100_000)));
        assert_eq!(limit("12"), (12, None));
    }

    #[test]
    fn decimals_are_exact_rates() {
        let with_burst = |text: &str| (limit(text), text.parse::<Limit>().expect(text).burst);
        assert_eq!(with_burst("0.5/s"), ((1, Some(2_000_000)), 1));
        assert_eq!(with_burst("1.5/min"), ((3, Some(120_000_000)), 2));
        assert_eq!(with_burst("2.0/s"), ((2, Some(1_000_000)), 2));
        assert_eq!(with_burst("0.1/s"), ((1, Some(10_000_000)), 1));
        assert_eq!(with_burst("1,000.25/h"), ((4_001, Some(4 * 3_600_000_000)), 1_001));
    }

    #[test]
    fn days_weeks_months_and_years_are_parts_of_the_calendar() {
        let calendar = |text: &str| text.parse::<Limit>().expect(text).calendar;
        assert_eq!(limit("1000/month"), (1_000, Some(30 * 86_400_000_000)));
        assert_eq!(limit("1/year"), (1, Some(365 * 86_400_000_000)));
        assert_eq!(calendar("1000/month"), Some(CalendarUnit::Month));
        assert_eq!(calendar("5 / 1 week"), Some(CalendarUnit::Week));
        assert_eq!([calendar("5/30day"), calendar("5/2week"), calendar("0.5/day"), calendar("5/h")], [None; 4]);
        let error = |text: &str| text.parse::<Limit>().expect_err(text).to_string();
        assert!(error("5/3month").contains("a calendar window is a single month, not 3; write 90day"));
        assert!(error("0.5/month").contains("a calendar window counts whole requests per month"));
    }

    #[test]
    fn names_what_is_wrong() {
        let error = |text: &str| text.parse::<Limit>().expect_err(text).to_string();
        assert_eq!(error("ten/s"), r#""ten/s": "ten" is not a whole number; write for example 10/s or 6,000/min"#);
        assert_eq!(error("10 per s"), r#""10 per s" is not a whole number; write for example 10/s or 6,000/min"#);
        assert!(error("6,00/min").contains("\"6,00\" is not a whole number"));
        assert!(error("-1/s").contains("not a whole number"));
        assert!(error("1.5").contains("not a whole number"));
        assert!(error("1.5.2/s").contains("not a number"));
        assert!(error("0.0000001/s").contains("more than six decimals"));
        assert!(error("4000000000.5/s").contains("too many digits"));
        assert!(error("6.000/min").contains("write 6 or 6,000"));
        assert!(error("10/M").contains("write min or month"));
        assert!(error("10/fortnight").contains("\"fortnight\" is not a unit of time"));
        assert!(error("5/90").contains("write 90s for seconds"));
        assert!(error("99999999999/s").contains("too large"));
        assert!(error("1/99999999999999999999s").contains("too long"));
        assert!(error("").contains("not a whole number"));
        assert!(error("10/").contains("not a unit of time"));
    }
}
