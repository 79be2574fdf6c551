//! Calendar windows: the days, weeks, months and years of a time zone, which are not all equally long.
//!
//! A window starts at the first moment at which the zone's clocks show midnight of its first day, or later where they
//! skip midnight. So windows follow each other without gaps and overlaps, however clocks are changed; a day may have
//! 23 or 25 hours. Everything before 1970 belongs to the first window.

use std::cell::Cell;
use std::fmt;

use jiff::civil::Date;
use jiff::tz::{AmbiguousOffset, TimeZone};

use crate::time::{Span, Timestamp};
use crate::zone::Zone;

/// A part of the calendar that a limit may be for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
// Exhaustive on purpose: whoever writes or shows one needs a word for each.
pub enum CalendarUnit {
    /// From midnight to midnight.
    Day,
    /// Seven days, from Monday by default.
    Week,
    /// From the first by default.
    Month,
    /// From the first of January by default.
    Year,
}

impl CalendarUnit {
    /// The name in a limit: `month`.
    pub const fn name(self) -> &'static str {
        match self {
            CalendarUnit::Day => "day",
            CalendarUnit::Week => "week",
            CalendarUnit::Month => "month",
            CalendarUnit::Year => "year",
        }
    }

    /// Its usual length: 1, 7, 30 or 365 days. For estimates and for showing; windows have their own lengths.
    pub const fn usual_length(self) -> Span {
        Span::from_secs(86_400 * self.days())
    }

    const fn days(self) -> u64 {
        match self {
            CalendarUnit::Day => 1,
            CalendarUnit::Week => 7,
            CalendarUnit::Month => 30,
            CalendarUnit::Year => 365,
        }
    }

    /// No window is longer.
    pub(crate) const fn longest(self) -> Span {
        Span::from_secs(86_400 * (self.days() + 2))
    }

    /// The last day from which it may be counted.
    const fn last_anchor(self) -> u8 {
        match self {
            CalendarUnit::Day => 1,
            CalendarUnit::Week => 7,
            CalendarUnit::Month | CalendarUnit::Year => 31,
        }
    }
}

impl fmt::Display for CalendarUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which windows a limit per day, week, month or year counts in.
///
/// ```
/// use tollkeeper_core::{Calendar, CalendarUnit, Timestamp};
///
/// let billing = Calendar::new(CalendarUnit::Month).timezone("Europe/Berlin")?.anchor_day(31)?;
/// // 2023-11-14 22:13:20 UTC: the window began on the last day of October, and ends on the last of November.
/// let window = billing.window(Timestamp::from_micros(1_700_000_000_000_000));
/// assert_eq!(window.start.as_micros(), 1_698_706_800_000_000);
/// assert_eq!(window.end.as_micros(), 1_701_298_800_000_000);
/// # Ok::<(), tollkeeper_core::CalendarError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Calendar {
    unit: CalendarUnit,
    anchor_day: u8,
    zone: Zone,
}

/// What differs from UTC and the first day, as in a one-line limit: ` timezone Europe/Berlin anchor_day 15`.
impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.zone != Zone::UTC {
            write!(f, " timezone {}", self.zone.name())?;
        }
        if self.anchor_day != 1 {
            write!(f, " anchor_day {}", self.anchor_day)?;
        }
        Ok(())
    }
}

/// Why windows cannot be those of a calendar.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct CalendarError {
    /// The field of a rule: `timezone` or `anchor_day`.
    pub field: &'static str,
    /// What is wrong with it and what to do.
    pub problem: String,
}

/// From `start` up to `end`, which is the start of the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalendarWindow {
    /// Its first moment.
    pub start: Timestamp,
    /// The first moment after it.
    pub end: Timestamp,
}

impl CalendarWindow {
    fn contains(&self, at: Timestamp) -> bool {
        self.start <= at && at < self.end
    }
}

impl Calendar {
    /// In UTC, from the first day.
    pub const fn new(unit: CalendarUnit) -> Calendar {
        Calendar { unit, anchor_day: 1, zone: Zone::UTC }
    }

    /// In a zone of the IANA database, such as `Europe/Berlin`.
    pub fn timezone(self, name: &str) -> Result<Calendar, CalendarError> {
        let zone = Zone::named(name).map_err(|problem| CalendarError { field: "timezone", problem })?;
        Ok(Calendar { zone, ..self })
    }

    /// From this day on: of the week (1 is Monday), of the month (its last day where it is shorter), or of January.
    pub fn anchor_day(self, day: u32) -> Result<Calendar, CalendarError> {
        let last = self.unit.last_anchor();
        match u8::try_from(day) {
            Ok(anchor_day) if (1..=last).contains(&anchor_day) => Ok(Calendar { anchor_day, ..self }),
            _ if self.unit == CalendarUnit::Day => {
                let problem = "a day starts at midnight; remove it, or limit per week, month or year".to_string();
                Err(CalendarError { field: "anchor_day", problem })
            }
            _ => {
                let of = if self.unit == CalendarUnit::Week { "1 is Monday" } else { "a day of the month" };
                let problem = format!("{day} is not between 1 and {last} ({of})");
                Err(CalendarError { field: "anchor_day", problem })
            }
        }
    }

    /// Days, weeks, months or years.
    pub const fn unit(&self) -> CalendarUnit {
        self.unit
    }

    /// The day that each window starts with; 1 by default.
    pub const fn first_day(&self) -> u8 {
        self.anchor_day
    }

    /// Whether its windows are days of 24 hours, as without a calendar.
    pub(crate) fn is_utc_day(&self) -> bool {
        self.unit == CalendarUnit::Day && self.zone == Zone::UTC
    }

    /// The name of its time zone.
    pub fn zone_name(&self) -> &'static str {
        self.zone.name()
    }

    /// The window that contains this moment.
    pub fn window(&self, at: Timestamp) -> CalendarWindow {
        remembered(self, at).unwrap_or_else(|| {
            let window = self.find(at).unwrap_or_else(|| self.usual(at));
            remember(self, window);
            window
        })
    }

    /// The starts of some windows in a row: the one before this moment (unless that is the first of all), its own,
    /// and the next three. For a store that knows the time better than its caller, but no calendar.
    pub fn starts_around(&self, at: Timestamp) -> Vec<Timestamp> {
        let own = self.window(at);
        let mut starts = Vec::with_capacity(5);
        if let Some(before) = own.start.as_micros().checked_sub(1) {
            starts.push(self.window(Timestamp::from_micros(before)).start);
        }
        starts.push(own.start);
        let mut next = own.end;
        for _ in 0..3 {
            starts.push(next);
            next = self.window(next).end;
        }
        starts
    }

    fn find(&self, at: Timestamp) -> Option<CalendarWindow> {
        let micros = i64::try_from(at.as_micros()).ok()?;
        let zone = self.zone.rules();
        let shown = zone.to_datetime(jiff::Timestamp::from_microsecond(micros).ok()?).date();
        // Usually the window of the date that clocks show. Where clocks were set back over midnight, that date comes
        // twice, and its window may be over.
        let mut first = self.first_day_of(shown)?;
        let mut start = midnight(zone, first)?;
        while start > micros {
            first = self.step(first, -1)?;
            start = midnight(zone, first)?;
        }
        loop {
            let next = self.step(first, 1)?;
            let end = midnight(zone, next)?;
            if end > micros {
                return Some(CalendarWindow { start: moment(start), end: moment(end) });
            }
            (first, start) = (next, end);
        }
    }

    /// What [`Calendar::find`] cannot answer lies after the year 9999.
    fn usual(&self, at: Timestamp) -> CalendarWindow {
        let length = self.unit.usual_length();
        let start = at.window_start(length);
        CalendarWindow { start, end: start + length }
    }

    /// The first day of the window to which this day belongs.
    fn first_day_of(&self, date: Date) -> Option<Date> {
        let this = match self.unit {
            CalendarUnit::Day => return Some(date),
            CalendarUnit::Week => {
                let weekday = i64::from(date.weekday().to_monday_one_offset());
                return add_days(date, -(weekday - i64::from(self.anchor_day)).rem_euclid(7));
            }
            CalendarUnit::Month => self.anchored(date.year(), date.month())?,
            CalendarUnit::Year => self.anchored(date.year(), 1)?,
        };
        if this <= date { Some(this) } else { self.step(this, -1) }
    }

    /// The first day of the next window, or of the one before.
    fn step(&self, first: Date, by: i64) -> Option<Date> {
        match self.unit {
            CalendarUnit::Day => add_days(first, by),
            CalendarUnit::Week => add_days(first, 7 * by),
            CalendarUnit::Month => {
                let months = i64::from(first.year()) * 12 + i64::from(first.month()) - 1 + by;
                let year = i16::try_from(months.div_euclid(12)).ok()?;
                self.anchored(year, months.rem_euclid(12) as i8 + 1)
            }
            CalendarUnit::Year => self.anchored(i16::try_from(i64::from(first.year()) + by).ok()?, 1),
        }
    }

    /// The anchor day of a month, or the last day of a shorter one.
    fn anchored(&self, year: i16, month: i8) -> Option<Date> {
        let last = Date::new(year, month, 1).ok()?.days_in_month();
        Date::new(year, month, (self.anchor_day as i8).min(last)).ok()
    }
}

fn add_days(date: Date, days: i64) -> Option<Date> {
    date.checked_add(jiff::SignedDuration::from_hours(24 * days)).ok()
}

/// In microseconds, the first moment at which the zone's clocks show midnight of this day or later.
fn midnight(zone: &TimeZone, date: Date) -> Option<i64> {
    let shown = zone.to_ambiguous_timestamp(date.at(0, 0, 0, 0));
    let is_skipped = matches!(shown.offset(), AmbiguousOffset::Gap { .. });
    // Where it is shown twice, the first time.
    let shown = shown.compatible().ok()?;
    if !is_skipped {
        return Some(shown.as_microsecond());
    }
    // Clocks jumped over midnight at the last change up to then.
    let after = shown.checked_add(jiff::SignedDuration::from_secs(1)).ok()?;
    Some(zone.preceding(after).next()?.timestamp().as_microsecond())
}

fn moment(micros: i64) -> Timestamp {
    Timestamp::default() + Span::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// The windows that this thread asked for last: requests of one window come one after the other.
type Recent = [Option<(Calendar, CalendarWindow)>; 8];
thread_local! {
    static RECENT: Cell<Recent> = const { Cell::new([None; 8]) };
}

fn place(calendar: &Calendar) -> usize {
    (usize::from(calendar.anchor_day) + calendar.unit as usize) % 8
}

fn remembered(calendar: &Calendar, at: Timestamp) -> Option<CalendarWindow> {
    let (known, window) = RECENT.get()[place(calendar)]?;
    (known == *calendar && window.contains(at)).then_some(window)
}

fn remember(calendar: &Calendar, window: CalendarWindow) {
    let mut recent = RECENT.get();
    recent[place(calendar)] = Some((*calendar, window));
    RECENT.set(recent);
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    fn calendar(unit: CalendarUnit, zone: &str, anchor: u32) -> Calendar {
        Calendar::new(unit).timezone(zone).and_then(|calendar| calendar.anchor_day(anchor)).expect("a calendar")
    }

    /// The window in which these clocks show this date and hour, as dates and hours on these clocks.
    fn shown(calendar: Calendar, (year, month, day, hour): (i16, i8, i8, i8)) -> (String, String) {
        let zone = calendar.zone.rules();
        let at = date(year, month, day).at(hour, 0, 0, 0).to_zoned(zone.clone()).expect("a time").timestamp();
        let window = calendar.window(moment(at.as_microsecond()));
        let text = |at: Timestamp| {
            let at = jiff::Timestamp::from_microsecond(at.as_micros() as i64).expect("a time");
            zone.to_datetime(at).to_string()
        };
        (text(window.start), text(window.end))
    }

    #[track_caller]
    fn check(calendar: Calendar, at: (i16, i8, i8, i8), start: &str, end: &str) {
        assert_eq!(shown(calendar, at), (start.to_string(), end.to_string()));
    }

    /// `1000/month` was thirty days from the epoch: 1 November and 15 November passed, and 1 December was denied until
    /// the third.
    #[test]
    fn months_are_those_of_the_calendar() {
        let month = calendar(CalendarUnit::Month, "UTC", 1);
        check(month, (2026, 11, 1, 0), "2026-11-01T00:00:00", "2026-12-01T00:00:00");
        check(month, (2026, 11, 30, 23), "2026-11-01T00:00:00", "2026-12-01T00:00:00");
        check(month, (2026, 12, 1, 0), "2026-12-01T00:00:00", "2027-01-01T00:00:00");
        check(month, (2028, 2, 29, 5), "2028-02-01T00:00:00", "2028-03-01T00:00:00");
    }

    #[test]
    fn an_anchor_past_the_end_of_a_month_is_its_last_day() {
        let last = calendar(CalendarUnit::Month, "UTC", 31);
        check(last, (2026, 1, 31, 0), "2026-01-31T00:00:00", "2026-02-28T00:00:00");
        check(last, (2026, 3, 30, 12), "2026-02-28T00:00:00", "2026-03-31T00:00:00");
        check(last, (2028, 2, 29, 12), "2028-02-29T00:00:00", "2028-03-31T00:00:00");
        let middle = calendar(CalendarUnit::Month, "UTC", 15);
        check(middle, (2026, 1, 14, 12), "2025-12-15T00:00:00", "2026-01-15T00:00:00");
    }

    #[test]
    fn weeks_start_on_monday_or_on_the_anchor() {
        check(calendar(CalendarUnit::Week, "UTC", 1), (2026, 11, 15, 23), "2026-11-09T00:00:00", "2026-11-16T00:00:00");
        check(calendar(CalendarUnit::Week, "UTC", 1), (2026, 11, 16, 0), "2026-11-16T00:00:00", "2026-11-23T00:00:00");
        check(calendar(CalendarUnit::Week, "UTC", 7), (2026, 11, 16, 0), "2026-11-15T00:00:00", "2026-11-22T00:00:00");
    }

    #[test]
    fn years_start_in_january() {
        check(calendar(CalendarUnit::Year, "UTC", 1), (2028, 12, 31, 23), "2028-01-01T00:00:00", "2029-01-01T00:00:00");
        check(calendar(CalendarUnit::Year, "UTC", 20), (2026, 1, 19, 0), "2025-01-20T00:00:00", "2026-01-20T00:00:00");
    }

    #[test]
    fn days_have_23_24_or_25_hours() {
        let hours = |calendar: Calendar, micros: u64| {
            let window = calendar.window(Timestamp::from_micros(micros));
            window.end.since(window.start).as_micros() / 3_600_000_000
        };
        let berlin = calendar(CalendarUnit::Day, "Europe/Berlin", 1);
        // 2026-03-29 and 2026-10-25, at noon UTC.
        assert_eq!([1_774_785_600, 1_792_929_600, 1_780_000_000].map(|at| hours(berlin, at * 1_000_000)), [23, 25, 24]);
    }

    /// In Egypt and Cuba clocks skip midnight, and in Samoa a whole day was skipped.
    #[test]
    fn a_day_without_midnight_starts_when_clocks_show_it_first() {
        let cairo = calendar(CalendarUnit::Day, "Africa/Cairo", 1);
        check(cairo, (2026, 4, 24, 12), "2026-04-24T01:00:00", "2026-04-25T00:00:00");
        let samoa = calendar(CalendarUnit::Day, "Pacific/Apia", 1);
        check(samoa, (2011, 12, 29, 12), "2011-12-29T00:00:00", "2011-12-31T00:00:00");
        check(samoa, (2011, 12, 31, 12), "2011-12-31T00:00:00", "2012-01-01T00:00:00");
    }

    #[test]
    fn everything_before_1970_is_the_first_window() {
        let berlin = calendar(CalendarUnit::Month, "Europe/Berlin", 1);
        let first = berlin.window(Timestamp::default());
        assert_eq!((first.start.as_micros(), first.end.as_micros()), (0, 30 * 86_400_000_000 + 23 * 3_600_000_000));
        assert_eq!(berlin.starts_around(Timestamp::default()).len(), 4);
        assert_eq!(berlin.starts_around(first.end).len(), 5);
    }

    #[test]
    fn errors_name_the_field() {
        let error = |unit, day| Calendar::new(unit).anchor_day(day).expect_err("refused").to_string();
        assert_eq!(error(CalendarUnit::Week, 8), "8 is not between 1 and 7 (1 is Monday)");
        assert_eq!(error(CalendarUnit::Month, 0), "0 is not between 1 and 31 (a day of the month)");
        assert!(error(CalendarUnit::Day, 2).contains("a day starts at midnight"));
        let zone = Calendar::new(CalendarUnit::Month).timezone("Mars").expect_err("refused");
        assert_eq!(zone.field, "timezone");
    }
}
