//! Where reading begins: the words of `--from`, and the offsets that they mean.

use chrono::{DateTime, NaiveDate, NaiveDateTime};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Beginning,
    End,
    Offset(i64),
    /// The last so many records of each partition.
    Last(i64),
    /// Unix milliseconds.
    Time(i64),
}

pub(crate) fn parse(text: &str) -> Result<Place, String> {
    match text {
        "beginning" | "earliest" => return Ok(Place::Beginning),
        "end" | "latest" => return Ok(Place::End),
        _ => {}
    }
    if let Ok(number) = text.parse::<i64>() {
        return Ok(if number < 0 { Place::Last(number.saturating_neg()) } else { Place::Offset(number) });
    }
    // A time without a zone is UTC, as in the service's answers.
    let naive = |t: NaiveDateTime| Place::Time(t.and_utc().timestamp_millis());
    DateTime::parse_from_rfc3339(text)
        .map(|t| Place::Time(t.timestamp_millis()))
        .or_else(|_| text.parse::<NaiveDateTime>().map(naive))
        .or_else(|_| text.parse::<NaiveDate>().map(|d| naive(d.and_time(chrono::NaiveTime::MIN))))
        .map_err(|_| "write beginning, end, an offset, -N or a time such as 2026-11-30T10:00:00Z".to_owned())
}

/// Start and end (exclusive) of a partition, as far as a reader can see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) start: i64,
    pub(crate) end: i64,
}

/// The first offset to read. `at_time` is what the broker found for [`Place::Time`]. For [`Place::Last`] it is the latest place that can be right: `last` looks.
pub(crate) fn first_offset(place: Place, bounds: Bounds, at_time: Option<i64>) -> Result<i64, String> {
    match place {
        Place::Beginning => Ok(bounds.start),
        Place::End => Ok(bounds.end),
        Place::Offset(offset) if offset < bounds.start || offset > bounds.end => {
            Err(format!("offset {offset} is outside of {}..{}", bounds.start, bounds.end))
        }
        Place::Offset(offset) => Ok(offset),
        Place::Last(n) => Ok(bounds.end.saturating_sub(n).max(bounds.start)),
        Place::Time(_) => Ok(at_time.unwrap_or(bounds.end)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_words_offsets_and_times() {
        assert_eq!(parse("beginning"), Ok(Place::Beginning));
        assert_eq!(parse("end"), Ok(Place::End));
        assert_eq!(parse("17"), Ok(Place::Offset(17)));
        assert_eq!(parse("-3"), Ok(Place::Last(3)));
        assert_eq!(parse("1970-01-01T00:00:01Z"), Ok(Place::Time(1000)));
        assert_eq!(parse("1970-01-01T01:00:01+01:00"), Ok(Place::Time(1000)));
        assert_eq!(parse("1970-01-01T00:00:01.5"), Ok(Place::Time(1500)));
        assert_eq!(parse("1970-01-02"), Ok(Place::Time(86_400_000)));
        assert!(parse("tomorrow").is_err());
    }

    #[test]
    fn an_offset_outside_the_log_is_an_error_and_the_last_ones_are_cut_at_the_start() {
        let bounds = Bounds { start: 10, end: 20 };
        assert_eq!(first_offset(Place::Offset(20), bounds, None), Ok(20));
        assert!(first_offset(Place::Offset(9), bounds, None).is_err());
        assert!(first_offset(Place::Offset(21), bounds, None).unwrap_err().contains("10..20"));
        assert_eq!(first_offset(Place::Last(3), bounds, None), Ok(17));
        assert_eq!(first_offset(Place::Last(30), bounds, None), Ok(10));
        assert_eq!(first_offset(Place::Time(1), bounds, Some(12)), Ok(12));
    }
}
