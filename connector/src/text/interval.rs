//! Intervals from text: `1 year 2 mons -3 days 04:05:06.7` and ISO 8601's `P1Y2M3DT4H5M6.7S`.

use arrow::compute::kernels::cast_utils::parse_interval_month_day_nano;
use arrow::datatypes::IntervalMonthDayNano;

use super::{MALFORMED, OUT_OF_RANGE, Reason};

/// Digits after the point of a second.
const SECOND_SCALE: i8 = 9;

/// Reads an interval.
pub fn parse_interval(text: &str) -> Result<IntervalMonthDayNano, Reason> {
    let text = text.trim();
    match text.strip_prefix(['P', 'p']) {
        Some(parts) => parse_iso(parts),
        None if text.is_empty() => Err(MALFORMED),
        None => parse_interval_month_day_nano(text).map_err(|_| MALFORMED),
    }
}

/// Reads what follows the `P`.
fn parse_iso(parts: &str) -> Result<IntervalMonthDayNano, Reason> {
    let (mut months, mut days, mut nanos) = (0i32, 0i32, 0i64);
    let (date, time) = parts.split_once(['T', 't']).map_or((parts, None), |(date, time)| (date, Some(time)));
    if parts.is_empty() || time == Some("") {
        return Err(MALFORMED);
    }
    for (value, unit) in units(date)? {
        let value: i32 = value.parse().map_err(|_| MALFORMED)?;
        let (target, factor) = match unit {
            'Y' => (&mut months, 12),
            'M' => (&mut months, 1),
            'W' => (&mut days, 7),
            'D' => (&mut days, 1),
            _ => return Err(MALFORMED),
        };
        *target = value.checked_mul(factor).and_then(|v| target.checked_add(v)).ok_or(OUT_OF_RANGE)?;
    }
    for (value, unit) in units(time.unwrap_or_default())? {
        let seconds = match unit {
            'H' => 3_600,
            'M' => 60,
            'S' => 1,
            _ => return Err(MALFORMED),
        };
        let value = super::parse_decimal128(value, 28, SECOND_SCALE)?;
        let value = value.checked_mul(seconds).and_then(|v| i64::try_from(v).ok()).ok_or(OUT_OF_RANGE)?;
        nanos = nanos.checked_add(value).ok_or(OUT_OF_RANGE)?;
    }
    Ok(IntervalMonthDayNano::new(months, days, nanos))
}

/// Cuts `1Y2M` into (`1`, `Y`) and (`2`, `M`).
fn units(text: &str) -> Result<Vec<(&str, char)>, Reason> {
    let mut out = vec![];
    let mut start = 0;
    for (i, c) in text.char_indices().filter(|(_, c)| c.is_ascii_alphabetic()) {
        out.push((&text[start..i], c.to_ascii_uppercase()));
        start = i + 1;
    }
    if start == text.len() { Ok(out) } else { Err(MALFORMED) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats() {
        let cases = [
            ("P1Y2M3DT4H5M6.7S", (14, 3, 14_706_700_000_000)),
            ("P-1Y-2W", (-12, -14, 0)),
            ("pt0.5s", (0, 0, 500_000_000)),
            ("1 year 2 mons 3 days 04:05:06.7", (14, 3, 14_706_700_000_000)),
            ("-1 day", (0, -1, 0)),
            ("2 hours", (0, 0, 7_200_000_000_000)),
        ];
        for (text, (months, days, nanos)) in cases {
            assert_eq!(parse_interval(text), Ok(IntervalMonthDayNano::new(months, days, nanos)), "{text}");
        }
        for text in ["", "P", "PT", "P1", "P1X", "1 fortnight ago", "x", "P99999999999Y"] {
            assert!(parse_interval(text).is_err(), "{text}");
        }
    }
}
