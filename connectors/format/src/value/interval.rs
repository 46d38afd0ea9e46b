//! Intervals as ISO 8601 durations: `P1Y2M3W4DT5H6M7.5S`, each part with an optional sign.

use std::io::Write;

use arrow::datatypes::IntervalMonthDayNano;

use crate::fail::{Fail, Result};

const SECOND_NS: i64 = 1_000_000_000;

pub(crate) fn interval(text: &str) -> Result<IntervalMonthDayNano> {
    parse(text).ok_or_else(|| Fail::mismatch("an interval as P1M2DT3.5S", text))
}

fn parse(text: &str) -> Option<IntervalMonthDayNano> {
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |t| (true, t));
    let mut rest = text.strip_prefix('P')?;
    let (mut months, mut days, mut nanos) = (0_i64, 0_i64, 0_i64);
    let (mut in_time, mut any) = (false, false);
    // Units must come in this order, each at most once.
    let mut order = 0;
    while !rest.is_empty() {
        if !in_time && rest.starts_with('T') {
            (in_time, rest, order) = (true, &rest[1..], 4);
            if rest.is_empty() {
                return None;
            }
            continue;
        }
        let length = rest.find(|c: char| c.is_ascii_uppercase())?;
        let (number, unit) = (&rest[..length], rest.as_bytes()[length]);
        rest = &rest[length + 1..];
        let place = match (in_time, unit) {
            (false, b'Y') => 1,
            (false, b'M') => 2,
            (false, b'W') => 3,
            (false, b'D') => 4,
            (true, b'H') => 5,
            (true, b'M') => 6,
            (true, b'S') => 7,
            _ => return None,
        };
        if place <= order {
            return None;
        }
        order = place;
        any = true;
        let whole = |n: &str| n.parse::<i64>().ok();
        match place {
            1 => months = months.checked_add(whole(number)?.checked_mul(12)?)?,
            2 => months = months.checked_add(whole(number)?)?,
            3 => days = days.checked_add(whole(number)?.checked_mul(7)?)?,
            4 => days = days.checked_add(whole(number)?)?,
            5 => nanos = nanos.checked_add(whole(number)?.checked_mul(3_600 * SECOND_NS)?)?,
            6 => nanos = nanos.checked_add(whole(number)?.checked_mul(60 * SECOND_NS)?)?,
            _ => nanos = nanos.checked_add(seconds(number)?)?,
        }
    }
    let sign = if negative { -1 } else { 1 };
    let small = |v: i64| i32::try_from(v * sign).ok();
    any.then_some(IntervalMonthDayNano {
        months: small(months)?,
        days: small(days)?,
        nanoseconds: nanos.checked_mul(sign)?,
    })
}

/// Seconds with at most nine digits of a fraction, in nanoseconds.
fn seconds(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 9
        || !fraction.bytes().all(|b| b.is_ascii_digit())
        || (fraction.is_empty() && text.ends_with('.'))
    {
        return None;
    }
    let part =
        fraction.bytes().fold(0_i64, |v, b| v * 10 + i64::from(b - b'0')) * 10_i64.pow(9 - fraction.len() as u32);
    let nanos = whole.parse::<i64>().ok()?.checked_mul(SECOND_NS)?;
    if whole.starts_with('-') { nanos.checked_sub(part) } else { nanos.checked_add(part) }
}

pub(crate) fn write_interval(v: IntervalMonthDayNano, out: &mut Vec<u8>) {
    let start = out.len();
    let mut part = |text: std::fmt::Arguments<'_>| out.write_fmt(text).expect("a vector takes every byte");
    part(format_args!("P"));
    if v.months != 0 {
        part(format_args!("{}M", v.months));
    }
    if v.days != 0 {
        part(format_args!("{}D", v.days));
    }
    if v.nanoseconds != 0 || (v.months == 0 && v.days == 0) {
        let sign = if v.nanoseconds < 0 { "-" } else { "" };
        let nanos = v.nanoseconds.unsigned_abs();
        let (whole, fraction) = (nanos / SECOND_NS as u64, nanos % SECOND_NS as u64);
        part(format_args!("T{sign}{whole}"));
        if fraction != 0 {
            part(format_args!(".{fraction:09}"));
            let zeros = out.iter().rev().take_while(|b| **b == b'0').count();
            out.truncate(out.len() - zeros);
        }
        out.push(b'S');
    }
    debug_assert!(out.len() > start + 2);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn iso_durations_are_read_in_order_only() {
        let v = interval("P1Y2M1W4DT5H6M7.5S").unwrap();
        assert_eq!((v.months, v.days, v.nanoseconds), (14, 11, 18_367_500_000_000));
        let v = interval("-P1MT0.000000001S").unwrap();
        assert_eq!((v.months, v.nanoseconds), (-1, -1));
        for bad in [
            "",
            "P",
            "PT",
            "1D",
            "P1",
            "P1H",
            "PT1D",
            "P1D1M",
            "P1D1D",
            "PT1S1S",
            "PT1.S",
            "P1.5D",
            "PT1M1H",
            "P1DT",
            "P99999999999M",
            "PxD",
        ] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn an_interval_survives_its_text(months: i32, days: i32, nanoseconds in i64::MIN + 1..i64::MAX) {
            let v = IntervalMonthDayNano { months, days, nanoseconds };
            let mut out = Vec::new();
            write_interval(v, &mut out);
            prop_assert_eq!(interval(std::str::from_utf8(&out).unwrap()), Ok(v));
        }
    }
}
