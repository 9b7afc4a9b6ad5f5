//! Dates and times of day as numbers, on the proleptic Gregorian calendar that PostgreSQL uses.
//!
//! A date is days since 1970-01-01, a timestamp is microseconds since its midnight. The largest and smallest numbers are
//! `infinity` and `-infinity`. Years are astronomical: year 0 is 1 BC.

use chrono::{DateTime, NaiveDateTime, Offset, TimeZone};
use chrono_tz::Tz;

/// Microseconds in a second.
pub const MICROS_PER_SECOND: i64 = 1_000_000;
/// Microseconds in a day.
pub const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;
/// The first year that PostgreSQL's dates and timestamps have (4714 BC).
pub const YEAR_MIN: i64 = -4713;
/// The last year of a timestamp that fits into microseconds.
pub const TIMESTAMP_YEAR_MAX: i64 = 294_246;
/// The last year of a date.
pub const DATE_YEAR_MAX: i64 = 5_874_897;

/// Days of the 400 years after which the calendar repeats.
const DAYS_PER_ERA: i64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_SHIFT: i64 = 719_468;

/// A day of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Civil {
    /// Astronomical: 0 is 1 BC.
    pub year: i64,
    /// From 1.
    pub month: u32,
    /// From 1.
    pub day: u32,
}

impl Civil {
    /// The day with this number. Years are counted from March, so that the leap day is the last of its year.
    pub fn from_days(days: i64) -> Civil {
        let shifted = days + EPOCH_SHIFT;
        let era = shifted.div_euclid(DAYS_PER_ERA);
        let day_of_era = shifted.rem_euclid(DAYS_PER_ERA);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * day_of_year + 2) / 153;
        let day = (day_of_year - (153 * march_month + 2) / 5 + 1) as u32;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 } as u32;
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        Civil { year, month, day }
    }

    /// The number of the day.
    pub fn to_days(self) -> i64 {
        let year = self.year - i64::from(self.month <= 2);
        let era = year.div_euclid(400);
        let year_of_era = year.rem_euclid(400);
        let march_month = i64::from((self.month + 9) % 12);
        let day_of_year = (153 * march_month + 2) / 5 + i64::from(self.day) - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        era * DAYS_PER_ERA + day_of_era - EPOCH_SHIFT
    }

    /// Whether there is such a day.
    pub fn is_valid(self) -> bool {
        (1..=12).contains(&self.month) && self.day >= 1 && self.day <= days_in_month(self.year, self.month)
    }

    /// The day `months` later; the last of its month where that is shorter, as PostgreSQL adds intervals.
    pub fn add_months(self, months: i64) -> Civil {
        let months = self.year * 12 + i64::from(self.month) - 1 + months;
        let (year, month) = (months.div_euclid(12), months.rem_euclid(12) as u32 + 1);
        Civil { year, month, day: self.day.min(days_in_month(year, month)) }
    }

    /// The number of the day in its year, from 1.
    pub fn day_of_year(self) -> i64 {
        self.to_days() - Civil { year: self.year, month: 1, day: 1 }.to_days() + 1
    }

    /// ISO 8601: the year that the week belongs to, and the number of the week, from 1.
    pub fn iso_week(self) -> (i64, i64) {
        let days = self.to_days();
        // The Thursday of the week decides its year.
        let thursday = days - (iso_weekday(days) - 1) + 3;
        let year = Civil::from_days(thursday).year;
        (year, (thursday - Civil { year, month: 1, day: 1 }.to_days()) / 7 + 1)
    }
}

/// The day of the week: 1 is Monday, 7 is Sunday.
pub fn iso_weekday(days: i64) -> i64 {
    (days + 3).rem_euclid(7) + 1
}

/// Whether the year has a leap day.
pub fn is_leap_year(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Days of a month.
pub fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        2 => 28 + u32::from(is_leap_year(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// A timestamp apart: the day, and the microseconds since its midnight.
pub fn split_timestamp(micros: i64) -> (i64, i64) {
    (micros.div_euclid(MICROS_PER_DAY), micros.rem_euclid(MICROS_PER_DAY))
}

/// Seconds that local time is ahead of UTC at an instant, which is in microseconds since 1970 in UTC.
pub fn offset_of_instant(zone: Tz, micros: i64) -> i64 {
    if zone == Tz::UTC {
        return 0;
    }
    zone.offset_from_utc_datetime(&naive(micros)).fix().local_minus_utc().into()
}

/// The instant at which a clock in the zone shows `local`. Of a time that a clock shows twice it is the second; a time
/// that it skips is read with the offset from before, as PostgreSQL does.
pub fn local_to_instant(zone: Tz, local: i64) -> i64 {
    if zone == Tz::UTC {
        return local;
    }
    let before = offset_of_instant(zone, local.saturating_sub(MICROS_PER_DAY));
    let after = offset_of_instant(zone, local.saturating_add(MICROS_PER_DAY));
    let shows = |offset: i64| {
        let instant = local.saturating_sub(offset * MICROS_PER_SECOND);
        (offset_of_instant(zone, instant) == offset).then_some(instant)
    };
    match (shows(before), shows(after)) {
        (Some(first), Some(second)) => first.max(second),
        (Some(instant), None) | (None, Some(instant)) => instant,
        (None, None) => local.saturating_sub(before * MICROS_PER_SECOND),
    }
}

/// What a clock in the zone shows at an instant.
pub fn instant_to_local(zone: Tz, instant: i64) -> i64 {
    instant.saturating_add(offset_of_instant(zone, instant) * MICROS_PER_SECOND)
}

/// The instant for chrono. The few years at the ends that chrono lacks have the offset of the nearest year it has.
fn naive(micros: i64) -> NaiveDateTime {
    const YEAR_LIMIT_MICROS: i64 = 250_000 * 365 * MICROS_PER_DAY;
    let micros = micros.clamp(-YEAR_LIMIT_MICROS, YEAR_LIMIT_MICROS);
    DateTime::from_timestamp_micros(micros).unwrap_or(DateTime::UNIX_EPOCH).naive_utc()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn days_and_dates_agree_with_chrono() {
        for days in (-2_000_000..4_000_000).step_by(997).chain(-800..800) {
            let civil = Civil::from_days(days);
            let expected = chrono::NaiveDate::from_epoch_days(days as i32).unwrap();
            use chrono::Datelike;
            assert_eq!(
                (civil.year, civil.month, civil.day),
                (expected.year().into(), expected.month(), expected.day())
            );
            assert_eq!(civil.to_days(), days);
            let week = expected.iso_week();
            assert_eq!(civil.iso_week(), (week.year().into(), week.week().into()));
            assert_eq!(iso_weekday(days), i64::from(expected.weekday().number_from_monday()));
            assert_eq!(civil.day_of_year(), i64::from(expected.ordinal()));
        }
    }

    #[test]
    fn local_times_around_a_clock_change() {
        let zone: Tz = "America/New_York".parse().unwrap();
        let at = |y, m, d, h: i64, min: i64| {
            Civil { year: y, month: m, day: d }.to_days() * MICROS_PER_DAY + (h * 60 + min) * 60 * MICROS_PER_SECOND
        };
        let hour = 3_600 * MICROS_PER_SECOND;
        // 02:30 is skipped on this day: read as 02:30 EST, 07:30 UTC.
        assert_eq!(local_to_instant(zone, at(2024, 3, 10, 2, 30)), at(2024, 3, 10, 7, 30));
        // 01:30 happens twice: PostgreSQL takes standard time, the second.
        assert_eq!(local_to_instant(zone, at(2024, 11, 3, 1, 30)), at(2024, 11, 3, 6, 30));
        assert_eq!(local_to_instant(zone, at(2024, 7, 1, 12, 0)), at(2024, 7, 1, 12, 0) + 4 * hour);
        assert_eq!(instant_to_local(zone, at(2024, 1, 1, 5, 0)), at(2024, 1, 1, 0, 0));
    }

    #[test]
    fn months_are_added_to_the_end_of_a_month() {
        let day = Civil { year: 2024, month: 1, day: 31 };
        assert_eq!(day.add_months(1), Civil { year: 2024, month: 2, day: 29 });
        assert_eq!(day.add_months(-2), Civil { year: 2023, month: 11, day: 30 });
        assert_eq!(day.add_months(12), Civil { year: 2025, month: 1, day: 31 });
    }
}
