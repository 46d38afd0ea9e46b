//! Sizes and durations as people write them: `64 MiB`, `100ms`, `1h30m`. A number without a unit is a size in bytes, never a duration.

use std::{fmt, str::FromStr, time::Duration};

/// A number of bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

const SIZE_UNITS: [(&str, u64); 10] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("KB", 1_000),
    ("B", 1),
];

impl ByteSize {
    pub const fn kib(n: u64) -> ByteSize {
        ByteSize(n << 10)
    }

    pub const fn mib(n: u64) -> ByteSize {
        ByteSize(n << 20)
    }

    pub const fn gib(n: u64) -> ByteSize {
        ByteSize(n << 30)
    }

    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// Saturates where `usize` is narrower than the value.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for ByteSize {
    /// The largest binary unit that loses nothing: `64MiB`, `1536KiB`, `100B`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binary = SIZE_UNITS.iter().filter(|(unit, _)| unit.ends_with("iB"));
        match binary.into_iter().find(|(_, factor)| self.0 != 0 && self.0.is_multiple_of(*factor)) {
            Some((unit, factor)) => write!(f, "{}{unit}", self.0 / factor),
            None => write!(f, "{}B", self.0),
        }
    }
}

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<ByteSize, String> {
        let text = text.trim();
        let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits_end);
        let unit = unit.trim();
        let factor = match unit {
            "" => 1,
            unit => match SIZE_UNITS.iter().find(|(name, _)| *name == unit) {
                Some((_, factor)) => *factor,
                None => return Err(format!("`{text}` is not a size such as 64MiB, 500kB or 1048576")),
            },
        };
        scaled(number, factor)
            .map(ByteSize)
            .ok_or_else(|| format!("`{text}` is not a whole number of bytes such as 64MiB, 500kB or 1048576"))
    }
}

const DURATION_UNITS: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// `100ms`, `5s`, `1.5h`, `1h30m`; always with a unit, because `5` has meant seconds to one reader and milliseconds to the next.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let refused = || format!("`{text}` is not a duration such as 100ms, 5s, 15m or 1h30m");
    let mut rest = text.trim();
    let mut nanos: u64 = 0;
    if rest.is_empty() {
        return Err(refused());
    }
    while !rest.is_empty() {
        let number_end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(|| format!("`{text}` needs a unit, such as {text}s or {text}ms", text = text.trim()))?;
        let (number, tail) = rest.split_at(number_end);
        let tail = tail.trim_start();
        let unit_end = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let factor =
            DURATION_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor).ok_or_else(refused)?;
        nanos = scaled(number, factor).and_then(|part| nanos.checked_add(part)).ok_or_else(refused)?;
        rest = tail.trim_start();
    }
    Ok(Duration::from_nanos(nanos))
}

/// The largest unit, at most hours, that loses nothing: `15m`, `90s`, `1500ms`.
pub fn format_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    DURATION_UNITS
        .iter()
        .filter(|(unit, _)| *unit != "d")
        .find(|(_, factor)| nanos.is_multiple_of(u128::from(*factor)))
        .map_or_else(|| format!("{nanos}ns"), |(unit, factor)| format!("{}{unit}", nanos / u128::from(*factor)))
}

/// `number` with at most one decimal point, times `factor`, when the product is whole and fits.
fn scaled(number: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty()
        || (number.contains('.') && fraction.is_empty())
        || fraction.contains('.')
        || fraction.len() > 12
    {
        return None;
    }
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let product = digits.checked_mul(u128::from(factor))?;
    if product % scale == 0 { u64::try_from(product / scale).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_a_blank_and_written_without_loss() {
        for (text, bytes, written) in [
            ("64MiB", 64 << 20, "64MiB"),
            ("64 MiB", 64 << 20, "64MiB"),
            ("1.5KiB", 1536, "1536B"),
            ("1536KiB", 1536 << 10, "1536KiB"),
            ("500kB", 500_000, "500000B"),
            ("1048576", 1 << 20, "1MiB"),
            ("0", 0, "0B"),
        ] {
            let size: ByteSize = text.parse().expect(text);
            assert_eq!((size.0, size.to_string().as_str()), (bytes, written), "{text}");
            assert_eq!(written.parse::<ByteSize>(), Ok(size));
        }
        for text in ["", "MiB", "64 mib", "-1", "1.2.3MiB", "0.3B", "99999999999TiB", "."] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn durations_need_a_unit_and_are_written_without_loss() {
        for (text, millis, written) in [
            ("100ms", 100, "100ms"),
            ("5s", 5_000, "5s"),
            ("1.5s", 1_500, "1500ms"),
            ("90s", 90_000, "90s"),
            ("15m", 900_000, "15m"),
            ("1h30m", 5_400_000, "90m"),
            ("1 d", 86_400_000, "24h"),
            ("0s", 0, "0s"),
        ] {
            let duration = parse_duration(text).expect(text);
            assert_eq!(
                (duration, format_duration(duration).as_str()),
                (Duration::from_millis(millis), written),
                "{text}"
            );
        }
        for text in ["", "5", "s", "5 x", "-5s", "1.s", "999999999999d", "5s6"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert_eq!(parse_duration("5").expect_err("no unit"), "`5` needs a unit, such as 5s or 5ms");
    }
}
