//! Dates and times as RFC 3339 text and as numbers. Years 0001 to 9999; what is finer than a microsecond is cut toward minus infinity.
//!
//! The calendar arithmetic is that of H. Hinnant, "chrono-compatible low-level date algorithms".

use crate::fail::{Fail, Result};

pub(crate) const DAY_US: i64 = 86_400_000_000;
/// Days since 1970 of 0001-01-01 and 9999-12-31.
const DAYS: std::ops::RangeInclusive<i64> = -719_162..=2_932_896;

/// Days since 1970-01-01.
fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let year_of_era = y.rem_euclid(400);
    let day_of_year = (153 * (i64::from(month) + if month > 2 { -3 } else { 9 }) + 2) / 5 + i64::from(day) - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let mp = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * mp + 2) / 5 + 1) as u32;
    let month = (if mp < 10 { mp + 3 } else { mp - 9 }) as u32;
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

fn number(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0_u32, |v, b| b.is_ascii_digit().then(|| v * 10 + u32::from(b - b'0')))
}

/// `2024-01-31` at the start of the text; the rest is handed back.
fn take_date(text: &[u8]) -> Option<(i64, &[u8])> {
    let (date, rest) = text.split_at_checked(10)?;
    let (year, month, day) = (number(&date[..4])?, number(&date[5..7])?, number(&date[8..])?);
    if date[4] != b'-' || date[7] != b'-' || year == 0 || !(1..=12).contains(&month) || day == 0 {
        return None;
    }
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let length = match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    (day <= length).then(|| (days_from_civil(i64::from(year), month, day), rest))
}

/// `10:00:00` with an optional fraction of any length, in microseconds of the day; the rest is handed back.
fn take_time(text: &[u8]) -> Option<(i64, &[u8])> {
    let (time, mut rest) = text.split_at_checked(8)?;
    let (hour, minute, second) = (number(&time[..2])?, number(&time[3..5])?, number(&time[6..])?);
    if time[2] != b':' || time[5] != b':' || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut micros = 0_i64;
    if let [b'.', fraction @ ..] = rest {
        let length = fraction.iter().take_while(|b| b.is_ascii_digit()).count();
        if length == 0 {
            return None;
        }
        let used = length.min(6);
        micros = i64::from(number(&fraction[..used])?) * 10_i64.pow(6 - used as u32);
        rest = &fraction[length..];
    }
    Some((i64::from(hour * 3_600 + minute * 60 + second) * 1_000_000 + micros, rest))
}

/// `Z` or `+01:00` as the whole text, in microseconds east of UTC.
pub(crate) fn zone(text: &[u8]) -> Option<i64> {
    match text {
        b"Z" | b"z" => Some(0),
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let (hours, minutes) = (number(&[*h1, *h2])?, number(&[*m1, *m2])?);
            let east = i64::from(hours * 60 + minutes) * 60_000_000;
            (hours < 24 && minutes < 60).then_some(if *sign == b'-' { -east } else { east })
        }
        _ => None,
    }
}

pub(crate) fn date(text: &str) -> Result<i32> {
    match take_date(text.as_bytes()) {
        Some((days, [])) => Ok(days as i32),
        _ => Err(Fail::mismatch("a date as 2024-01-31", text)),
    }
}

/// A date given as days since 1970.
pub(crate) fn date_from_days(days: i64, text: &str) -> Result<i32> {
    if DAYS.contains(&days) { Ok(days as i32) } else { Err(Fail::range("is outside of years 0001 to 9999", text)) }
}

pub(crate) fn time(text: &str) -> Result<i64> {
    match take_time(text.as_bytes()) {
        Some((micros, [])) => Ok(micros),
        _ => Err(Fail::mismatch("a time as 10:00:00.123456", text)),
    }
}

/// A time given as a count of units since midnight.
pub(crate) fn time_from_units(units: i64, unit_us: i64, text: &str) -> Result<i64> {
    match units.checked_mul(unit_us) {
        Some(micros) if (0..DAY_US).contains(&micros) => Ok(micros),
        _ => Err(Fail::range("is no time of a day", text)),
    }
}

fn moment(text: &str) -> Option<(i64, &[u8])> {
    let (days, rest) = take_date(text.as_bytes())?;
    let [b'T' | b't' | b' ', rest @ ..] = rest else { return None };
    let (micros, rest) = take_time(rest)?;
    Some((days * DAY_US + micros, rest))
}

/// TIMESTAMP: the wall time as written; with a zone it is converted to the wall time at `home` (microseconds east of UTC).
pub(crate) fn timestamp(text: &str, home: i64) -> Result<i64> {
    let wrong = || Fail::mismatch("a timestamp as 2024-01-31T10:00:00.123456", text);
    let (micros, rest) = moment(text).ok_or_else(wrong)?;
    if rest.is_empty() {
        return Ok(micros);
    }
    in_range(micros - zone(rest).ok_or_else(wrong)? + home, text)
}

/// TIMESTAMPTZ: with a zone; without one it is read at `home`, or bad if there is none.
pub(crate) fn timestamp_tz(text: &str, home: Option<i64>) -> Result<i64> {
    let wrong = || Fail::mismatch("a timestamp with zone as 2024-01-31T10:00:00Z", text);
    let (micros, rest) = moment(text).ok_or_else(wrong)?;
    let east = if rest.is_empty() { home } else { zone(rest) };
    in_range(micros - east.ok_or_else(wrong)?, text)
}

/// A timestamp given as a count of units since 1970.
pub(crate) fn timestamp_from_units(units: i64, unit: Unit, text: &str) -> Result<i64> {
    let micros = match unit {
        Unit::Nanos => Some(units.div_euclid(1_000)),
        Unit::Micros => Some(units),
        Unit::Millis => units.checked_mul(1_000),
        Unit::Seconds => units.checked_mul(1_000_000),
    };
    micros.ok_or_else(|| Fail::range("is outside of years 0001 to 9999", text)).and_then(|m| in_range(m, text))
}

fn in_range(micros: i64, text: &str) -> Result<i64> {
    if DAYS.contains(&micros.div_euclid(DAY_US)) {
        Ok(micros)
    } else {
        Err(Fail::range("is outside of years 0001 to 9999", text))
    }
}

/// What a JSON number of a timestamp counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Seconds,
    Millis,
    Micros,
    Nanos,
}

fn two(v: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&[b'0' + (v / 10) as u8, b'0' + (v % 10) as u8]);
}

/// `false` if the year is outside of 0001 to 9999; nothing is written then.
#[must_use]
pub(crate) fn write_date(days: i64, out: &mut Vec<u8>) -> bool {
    if !DAYS.contains(&days) {
        return false;
    }
    let (year, month, day) = civil_from_days(days);
    two(year as u32 / 100, out);
    two(year as u32 % 100, out);
    out.push(b'-');
    two(month, out);
    out.push(b'-');
    two(day, out);
    true
}

/// Microseconds of a day as `10:00:00.123456`, without a fraction if it is zero.
pub(crate) fn write_time(micros: i64, out: &mut Vec<u8>) {
    let (seconds, fraction) = ((micros / 1_000_000) as u32, (micros % 1_000_000) as u32);
    two(seconds / 3_600, out);
    out.push(b':');
    two(seconds / 60 % 60, out);
    out.push(b':');
    two(seconds % 60, out);
    if fraction != 0 {
        out.push(b'.');
        two(fraction / 10_000, out);
        two(fraction / 100 % 100, out);
        two(fraction % 100, out);
    }
}

/// `false` if the year is outside of 0001 to 9999; nothing is written then.
#[must_use]
pub(crate) fn write_timestamp(micros: i64, zoned: bool, out: &mut Vec<u8>) -> bool {
    if !write_date(micros.div_euclid(DAY_US), out) {
        return false;
    }
    out.push(b'T');
    write_time(micros.rem_euclid(DAY_US), out);
    if zoned {
        out.push(b'Z');
    }
    true
}

#[cfg(test)]
mod tests {
    use millstream_types::BadReason;
    use proptest::prelude::*;

    use super::*;

    fn print(micros: i64) -> String {
        let mut out = Vec::new();
        assert!(write_timestamp(micros, true, &mut out));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn known_moments_are_read() {
        assert_eq!(timestamp_tz("1970-01-01T00:00:00Z", None), Ok(0));
        assert_eq!(timestamp_tz("2024-02-29T12:34:56.789+02:00", None), Ok(1_709_202_896_789_000));
        assert_eq!(timestamp_tz("1969-12-31T23:59:59.9999999Z", None), Ok(-1));
        assert_eq!(timestamp("2024-01-31 10:00:00", 0), Ok(1_706_695_200_000_000));
        assert_eq!(timestamp("2024-01-31T10:00:00+01:00", 0), Ok(1_706_691_600_000_000));
        assert_eq!(timestamp("2024-01-31T10:00:00Z", 3_600_000_000), Ok(1_706_698_800_000_000));
        assert_eq!(date("0001-01-01"), Ok(-719_162));
        assert_eq!(date("9999-12-31"), Ok(2_932_896));
        assert_eq!(time("23:59:59.999999999"), Ok(DAY_US - 1));
        assert_eq!(timestamp_from_units(-1, Unit::Nanos, ""), Ok(-1));
        assert_eq!(timestamp_from_units(-1, Unit::Millis, ""), Ok(-1_000));
    }

    #[test]
    fn wrong_moments_are_refused() {
        for text in [
            "",
            "2023-02-29T00:00:00Z",
            "2024-13-01T00:00:00Z",
            "2024-00-01T00:00:00Z",
            "2024-01-31T24:00:00Z",
            "2024-01-31T10:00:60Z",
            "2024-01-31T10:00Z",
            "2024-01-31T10:00:00.Z",
            "2024-01-31T10:00:00+0100",
            "2024-01-31T10:00:00+24:00",
            "2024-01-31",
            "é24-01-31T00:00:00Z",
            "2024-01-31T10:00:00",
            "2024-01-31T10:00:00Zx",
            "0000-01-01T00:00:00Z",
            "12024-01-31T10:00:00Z",
        ] {
            assert_eq!(timestamp_tz(text, None).unwrap_err().reason(), BadReason::TypeMismatch, "{text}");
        }
        assert_eq!(timestamp_tz("0001-01-01T00:00:00+01:00", None).unwrap_err().reason(), BadReason::OutOfRange);
        assert!(timestamp_from_units(i64::MAX, Unit::Seconds, "").is_err());
        assert!(time_from_units(86_400_000, 1_000, "").is_err());
        assert!(date_from_days(2_932_897, "").is_err());
        assert!(!write_date(2_932_897, &mut Vec::new()));
    }

    proptest! {
        #[test]
        fn a_moment_survives_its_text(micros in -719_162 * DAY_US..2_932_897 * DAY_US) {
            let text = print(micros);
            prop_assert_eq!(timestamp_tz(&text, None), Ok(micros), "{}", text);
            prop_assert_eq!(timestamp(text.trim_end_matches('Z'), 0), Ok(micros));
        }

        #[test]
        fn days_and_dates_are_inverse(days in -719_162_i64..=2_932_896) {
            let mut out = Vec::new();
            assert!(write_date(days, &mut out));
            prop_assert_eq!(date(std::str::from_utf8(&out).unwrap()), Ok(days as i32));
        }
    }
}
