//! Numbers as text, exact: integers and decimals never pass through a double.

use arrow::datatypes::i256;

use crate::fail::{Fail, Result};

/// Digits of the longest decimal.
const MAX_DIGITS: usize = 76;

/// A number taken apart: `digits * 10^exponent`, digits without leading and trailing zeros, at most 76 of them.
#[derive(Debug)]
struct Parts {
    negative: bool,
    digits: [u8; MAX_DIGITS],
    length: usize,
    exponent: i64,
}

enum Odd {
    NoNumber,
    TooLong,
}

impl Parts {
    /// Reads `-12.50e3`; more lenient than JSON in leading zeros and a leading plus, because the text may come from a string.
    fn parse(text: &str) -> Result<Parts, Odd> {
        let (negative, rest) = match text.as_bytes() {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        let mut parts = Parts { negative, digits: [0; MAX_DIGITS], length: 0, exponent: 0 };
        let (mut any, mut point, mut dropped_zeros) = (false, false, 0_usize);
        let mut rest = rest.iter();
        while let Some(b) = rest.next() {
            match b {
                b'0'..=b'9' => {
                    any = true;
                    parts.exponent -= i64::from(point);
                    match (b - b'0', parts.length) {
                        (0, 0) => {}
                        (0, _) => dropped_zeros += 1,
                        (digit, _) => {
                            // Zeros are kept only once a digit follows them, so `1.500000` is short.
                            if parts.length + dropped_zeros + 1 > MAX_DIGITS {
                                return if well_formed(rest.as_slice(), point) {
                                    Err(Odd::TooLong)
                                } else {
                                    Err(Odd::NoNumber)
                                };
                            }
                            parts.length += dropped_zeros;
                            dropped_zeros = 0;
                            parts.digits[parts.length] = digit;
                            parts.length += 1;
                        }
                    }
                }
                b'.' if !point => point = true,
                b'e' | b'E' if any => {
                    let exponent = exponent(rest.as_slice()).ok_or(Odd::NoNumber)?;
                    parts.exponent = parts.exponent.saturating_add(exponent);
                    break;
                }
                _ => return Err(Odd::NoNumber),
            }
        }
        parts.exponent = parts.exponent.saturating_add(dropped_zeros as i64);
        if parts.length == 0 {
            parts.exponent = 0;
        }
        if any { Ok(parts) } else { Err(Odd::NoNumber) }
    }

    /// `self * 10^scale` as digits with zeros to append, or what is wrong.
    fn at_scale(&self, scale: i8) -> Result<(&[u8], usize), &'static str> {
        let zeros = self.exponent.saturating_add(i64::from(scale));
        let digits = &self.digits[..self.length];
        match usize::try_from(zeros) {
            _ if digits.is_empty() => Ok((digits, 0)),
            Err(_) => Err("needs rounding"),
            Ok(zeros) if zeros + digits.len() > MAX_DIGITS => Err("is out of range"),
            Ok(zeros) => Ok((digits, zeros)),
        }
    }
}

/// The rest of a number that is too long.
fn well_formed(rest: &[u8], point: bool) -> bool {
    let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    match &rest[digits..] {
        [] => true,
        [b'.', more @ ..] if !point => well_formed(more, true),
        [b'e' | b'E', exp @ ..] => exponent(exp).is_some(),
        _ => false,
    }
}

/// Saturates far beyond anything that fits a column.
fn exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits.iter().fold(0_i64, |v, d| (v * 10 + i64::from(d - b'0')).min(1 << 40));
    Some(if negative { -value } else { value })
}

fn parts(text: &str, what: &str) -> Result<Parts> {
    Parts::parse(text).map_err(|odd| match odd {
        Odd::NoNumber => Fail::mismatch(what, text),
        Odd::TooLong => Fail::range("is out of range", text),
    })
}

/// An integer: `12`, `1.0`, `1e3`. A fraction is a type mismatch.
pub(crate) fn integer(text: &str) -> Result<i64> {
    if let Ok(v) = text.parse() {
        return Ok(v);
    }
    let parts = parts(text, "an integer")?;
    let (digits, zeros) = parts.at_scale(0).map_err(|what| match what {
        "needs rounding" => Fail::mismatch("an integer", text),
        what => Fail::range(what, text),
    })?;
    let range = || Fail::range("is out of range", text);
    let mut value = 0_i64;
    for digit in digits.iter().copied().chain(std::iter::repeat_n(0, zeros)) {
        value = value.checked_mul(10).and_then(|v| v.checked_sub(i64::from(digit))).ok_or_else(range)?;
    }
    if parts.negative { Ok(value) } else { value.checked_neg().ok_or_else(range) }
}

/// An unscaled decimal of at most 38 digits. A value that needs rounding is bad, not rounded.
pub(crate) fn decimal128(text: &str, precision: u8, scale: i8) -> Result<i128> {
    if let Some(v) = short_decimal(text, precision, scale) {
        return Ok(v);
    }
    let parts = parts(text, "a decimal")?;
    let (digits, zeros) = parts.at_scale(scale).map_err(|what| Fail::range(&of(what, precision, scale), text))?;
    if digits.len() + zeros > usize::from(precision) {
        return Err(Fail::range(&of("is out of range", precision, scale), text));
    }
    let value = digits.iter().fold(0_i128, |v, d| v * 10 + i128::from(*d)) * 10_i128.pow(zeros as u32);
    Ok(if parts.negative { -value } else { value })
}

/// An unscaled decimal of at most 76 digits.
pub(crate) fn decimal256(text: &str, precision: u8, scale: i8) -> Result<i256> {
    let parts = parts(text, "a decimal")?;
    let (digits, zeros) = parts.at_scale(scale).map_err(|what| Fail::range(&of(what, precision, scale), text))?;
    if digits.len() + zeros > usize::from(precision) {
        return Err(Fail::range(&of("is out of range", precision, scale), text));
    }
    let ten = i256::from_i128(10);
    let all = digits.iter().copied().chain(std::iter::repeat_n(0, zeros));
    let value = all.fold(i256::ZERO, |v, d| v.wrapping_mul(ten).wrapping_add(i256::from_i128(i128::from(d))));
    Ok(if parts.negative { value.wrapping_neg() } else { value })
}

#[cold]
fn of(what: &str, precision: u8, scale: i8) -> String {
    format!("{what} of DECIMAL({precision},{scale})")
}

/// The common form, `-123.45` with at most 18 digits and no more than `scale` of them behind the point.
#[inline]
fn short_decimal(text: &str, precision: u8, scale: i8) -> Option<i128> {
    let bytes = text.as_bytes();
    let negative = bytes.first() == Some(&b'-');
    let (mut value, mut digits, mut behind) = (0_i64, 0_u8, None::<u8>);
    for b in &bytes[usize::from(negative)..] {
        match b {
            b'0'..=b'9' => {
                digits += 1;
                if digits > 18 {
                    return None;
                }
                value = value * 10 + i64::from(b - b'0');
                if let Some(n) = &mut behind {
                    *n += 1;
                }
            }
            b'.' if behind.is_none() && digits > 0 => behind = Some(0),
            _ => return None,
        }
    }
    let behind = behind.unwrap_or(0);
    let missing = (scale as u8).checked_sub(behind)?;
    if digits == 0 || digits + missing > precision.min(18) {
        return None;
    }
    let value = value * 10_i64.pow(u32::from(missing));
    Some(i128::from(if negative { -value } else { value }))
}

/// A finite double; one that overflows is out of range.
pub(crate) fn double(text: &str) -> Result<f64> {
    match text.parse::<f64>() {
        Ok(v) if v.is_finite() => Ok(v),
        Ok(_) => Err(Fail::range("is out of range of DOUBLE", text)),
        Err(_) => Err(Fail::mismatch("a number", text)),
    }
}

/// A finite single; one that overflows is out of range.
pub(crate) fn real(text: &str) -> Result<f32> {
    match text.parse::<f32>() {
        Ok(v) if v.is_finite() => Ok(v),
        Ok(_) => Err(Fail::range("is out of range of REAL", text)),
        Err(_) => Err(Fail::mismatch("a number", text)),
    }
}

/// Writes an unscaled decimal, given as its digits with sign, in plain notation.
pub(crate) fn write_decimal(digits: &str, scale: i8, out: &mut Vec<u8>) {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |d| ("-", d));
    out.extend_from_slice(sign.as_bytes());
    let scale = scale as usize;
    let whole = digits.len().saturating_sub(scale);
    out.extend_from_slice(if whole == 0 { b"0" } else { &digits.as_bytes()[..whole] });
    if scale > 0 {
        out.push(b'.');
        out.extend(std::iter::repeat_n(b'0', scale.saturating_sub(digits.len())));
        out.extend_from_slice(&digits.as_bytes()[whole..]);
    }
}

#[cfg(test)]
mod tests {
    use millstream_types::BadReason;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn integers_are_exact_in_every_spelling() {
        for (text, value) in [
            ("0", 0),
            ("-0", 0),
            ("1.0", 1),
            ("1e3", 1_000),
            ("1500e-2", 15),
            ("9223372036854775807", i64::MAX),
            ("+7", 7),
            ("-9223372036854775808", i64::MIN),
            ("-9223372036854775808.000", i64::MIN),
            ("0e99999999999999999999", 0),
        ] {
            assert_eq!(integer(text), Ok(value), "{text}");
        }
        for (text, reason) in [
            ("9223372036854775808", BadReason::OutOfRange),
            ("-9223372036854775809", BadReason::OutOfRange),
            ("1e99999999999999999999", BadReason::OutOfRange),
            ("1.5", BadReason::TypeMismatch),
            ("1e-1", BadReason::TypeMismatch),
            ("", BadReason::TypeMismatch),
            (".", BadReason::TypeMismatch),
            ("1x", BadReason::TypeMismatch),
            ("1e", BadReason::TypeMismatch),
            ("e5", BadReason::TypeMismatch),
        ] {
            assert_eq!(integer(text).unwrap_err().reason(), reason, "{text}");
        }
        let long = "9".repeat(1 << 20);
        assert_eq!(integer(&long).unwrap_err().reason(), BadReason::OutOfRange);
        assert_eq!(integer(&format!("{long}x")).unwrap_err().reason(), BadReason::TypeMismatch);
    }

    #[test]
    fn decimals_are_never_rounded() {
        for (text, value) in
            [("12.34", 1_234), ("-0.5", -50), ("1e2", 10_000), ("1.500", 150), (".5", 50), ("5.", 500), ("0.00", 0)]
        {
            assert_eq!(decimal128(text, 12, 2), Ok(value), "{text}");
            assert_eq!(decimal256(text, 12, 2).map(|v| v.to_string()), Ok(value.to_string()), "{text}");
        }
        for text in ["12.345", "1e-3", "10000000000", "99999999999.99", "1e999999999999"] {
            assert_eq!(decimal128(text, 12, 2).unwrap_err().reason(), BadReason::OutOfRange, "{text}");
            assert_eq!(decimal256(text, 12, 2).unwrap_err().reason(), BadReason::OutOfRange, "{text}");
        }
        let max = "9".repeat(38);
        assert_eq!(decimal128(&max, 38, 0).unwrap().to_string(), max);
        let max = format!("-{}", "9".repeat(76));
        assert_eq!(decimal256(&max, 76, 0).unwrap().to_string(), max);
        assert!(decimal256(&format!("{max}0"), 76, 0).is_err());
    }

    #[test]
    fn doubles_that_overflow_are_out_of_range() {
        assert_eq!(double("1e308"), Ok(1e308));
        assert_eq!(double("1e309").unwrap_err().reason(), BadReason::OutOfRange);
        assert_eq!(real("1e39").unwrap_err().reason(), BadReason::OutOfRange);
    }

    proptest! {
        #[test]
        fn a_decimal_survives_its_text(value in -(10_i128.pow(38) - 1)..10_i128.pow(38), scale in 0_i8..=38) {
            let mut out = Vec::new();
            write_decimal(&value.to_string(), scale, &mut out);
            let text = String::from_utf8(out).unwrap();
            prop_assert_eq!(decimal128(&text, 38, scale), Ok(value), "{}", text);
        }

        #[test]
        fn short_and_long_decimals_agree(text in "-?[0-9]{0,20}[.]?[0-9]{0,6}", scale in 0_i8..6) {
            if let Some(short) = short_decimal(&text, 20, scale) {
                prop_assert_eq!(decimal256(&text, 20, scale).unwrap().to_string(), short.to_string());
            }
        }
    }
}
