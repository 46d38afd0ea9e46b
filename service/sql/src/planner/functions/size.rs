//! Sizes of arguments and bounds of results, one number a row.

use arrow::{
    array::{Array, ArrayRef, AsArray, OffsetSizeTrait},
    compute::{CastOptions, cast_with_options},
    datatypes::{DataType, Int64Type, IntervalMonthDayNanoType},
};
use datafusion::{common::ScalarValue, logical_expr::ColumnarValue};

use super::growth::Growth;

/// A number for each row, or one for all.
pub(super) enum Sizes {
    All(u64),
    Each(Vec<u64>),
}

impl Sizes {
    fn at(&self, row: usize) -> u64 {
        match self {
            Sizes::All(n) => *n,
            Sizes::Each(n) => n.get(row).copied().unwrap_or_default(),
        }
    }

    pub(super) fn sum(&self, rows: usize) -> u64 {
        match self {
            Sizes::All(n) => n.saturating_mul(rows as u64),
            Sizes::Each(n) => n.iter().fold(0, |a, b| a.saturating_add(*b)),
        }
    }
}

/// A bound of the bytes that each row's result has.
pub(super) fn bounds(growth: Growth, args: &[ColumnarValue], rows: usize) -> Vec<u64> {
    let sizes: Vec<Sizes> = args.iter().map(size).collect();
    let number = |i: usize| args.get(i).map_or(Sizes::All(0), whole_number);
    let length = |i: usize| args.get(i).map_or(Sizes::All(0), elements);
    let at = |i: usize, row: usize| sizes.get(i).map_or(0, |s| s.at(row));
    let total = |row: usize| sizes.iter().fold(16_u64, |a, s| a.saturating_add(s.at(row)));
    let each = |f: &dyn Fn(usize) -> u64| (0..rows).map(f).collect::<Vec<u64>>();
    match growth {
        Growth::Fixed => each(&|_| 16),
        Growth::Sum => each(&|r| total(r).saturating_mul(4)),
        Growth::Repeat => {
            let times = number(1);
            each(&|r| at(0, r).max(1).saturating_mul(times.at(r)))
        }
        Growth::Pad => {
            let to = number(1);
            let widest = if args.iter().all(is_ascii) { 1 } else { 4 };
            each(&|r| to.at(r).saturating_mul(widest))
        }
        Growth::Range => each(&|r| range_elements(args, r).saturating_mul(16)),
        Growth::Resize => {
            let to = number(1);
            each(&|r| total(r).saturating_add(to.at(r).saturating_mul(at(2, r).max(8))))
        }
        Growth::Replace => {
            let places = length(0);
            each(&|r| total(r).saturating_add(places.at(r).saturating_add(1).saturating_mul(at(2, r))))
        }
        Growth::ReplacePattern => {
            // a replacement of n bytes names at most n / 2 parts of the match
            each(&|r| {
                total(r)
                    .saturating_mul(at(2, r) / 2 + 1)
                    .saturating_add(at(0, r).saturating_add(1).saturating_mul(at(2, r)))
            })
        }
        Growth::MatchPattern => {
            let groups = args.get(1).map_or(Sizes::All(0), |p| map_text(p, |t| t.matches('(').count() as u64 + 1));
            each(&|r| at(0, r).saturating_add(16).saturating_mul(groups.at(r)))
        }
        Growth::ConcatWith => each(&|r| total(r).saturating_add(at(0, r).saturating_mul(args.len() as u64))),
        Growth::JoinList => {
            let many = length(0);
            let between = |r| at(1, r).saturating_add(at(2, r)).saturating_add(16);
            each(&|r| total(r).saturating_mul(4).saturating_add(many.at(r).saturating_mul(between(r))))
        }
        Growth::Zip => {
            let lengths: Vec<Sizes> = args.iter().map(elements).collect();
            each(&|r| {
                let longest = lengths.iter().map(|l| l.at(r)).max().unwrap_or_default();
                total(r).saturating_add(longest.saturating_mul(16).saturating_mul(args.len() as u64))
            })
        }
        Growth::Product => each(&|r| at(0, r).saturating_mul(at(1, r))),
    }
}

/// Bytes of each value.
pub(super) fn size(value: &ColumnarValue) -> Sizes {
    match value {
        ColumnarValue::Scalar(s) => Sizes::All(scalar_bytes(s)),
        ColumnarValue::Array(a) => Sizes::Each(array_bytes(a)),
    }
}

pub(super) fn scalar_bytes(value: &ScalarValue) -> u64 {
    match value {
        ScalarValue::Utf8(Some(t)) | ScalarValue::LargeUtf8(Some(t)) | ScalarValue::Utf8View(Some(t)) => t.len() as u64,
        ScalarValue::Binary(Some(b)) | ScalarValue::LargeBinary(Some(b)) | ScalarValue::BinaryView(Some(b)) => {
            b.len() as u64
        }
        v if v.data_type().is_nested() => match v.to_array() {
            Ok(one) => array_bytes(&one).first().copied().unwrap_or_default(),
            Err(_) => v.size() as u64,
        },
        _ => 8,
    }
}

fn by_offsets<O: OffsetSizeTrait>(offsets: &[O]) -> Vec<u64> {
    offsets.windows(2).map(|w| (w[1].as_usize() - w[0].as_usize()) as u64).collect()
}

fn by_children<O: OffsetSizeTrait>(offsets: &[O], children: &ArrayRef) -> Vec<u64> {
    let mut sums = Vec::with_capacity(children.len() + 1);
    sums.push(0_u64);
    for size in array_bytes(children) {
        sums.push(sums.last().copied().unwrap_or_default().saturating_add(size));
    }
    offsets.windows(2).map(|w| sums[w[1].as_usize()] - sums[w[0].as_usize()] + 8).collect()
}

pub(super) fn array_bytes(array: &ArrayRef) -> Vec<u64> {
    let rows = array.len();
    match array.data_type() {
        DataType::Utf8 => by_offsets(array.as_string::<i32>().value_offsets()),
        DataType::LargeUtf8 => by_offsets(array.as_string::<i64>().value_offsets()),
        DataType::Binary => by_offsets(array.as_binary::<i32>().value_offsets()),
        DataType::LargeBinary => by_offsets(array.as_binary::<i64>().value_offsets()),
        DataType::Utf8View => array.as_string_view().lengths().map(u64::from).collect(),
        DataType::BinaryView => array.as_binary_view().lengths().map(u64::from).collect(),
        DataType::List(_) => by_children(array.as_list::<i32>().value_offsets(), array.as_list::<i32>().values()),
        DataType::LargeList(_) => by_children(array.as_list::<i64>().value_offsets(), array.as_list::<i64>().values()),
        DataType::Map(..) => {
            let entries: ArrayRef = std::sync::Arc::new(array.as_map().entries().clone());
            by_children(array.as_map().value_offsets(), &entries)
        }
        DataType::Struct(_) => {
            let mut sums = vec![0_u64; rows];
            for column in array.as_struct().columns() {
                sums.iter_mut().zip(array_bytes(column)).for_each(|(sum, one)| *sum = sum.saturating_add(one));
            }
            sums
        }
        other => match other.primitive_width() {
            Some(width) => vec![width as u64; rows],
            // the mean is not a bound of one row, but right for all of them
            None => vec![(array.get_buffer_memory_size() / rows.max(1)) as u64 + 1; rows],
        },
    }
}

/// Elements of a list, characters of a text.
fn elements(value: &ColumnarValue) -> Sizes {
    match value {
        ColumnarValue::Scalar(s) => match s.to_array() {
            Ok(one) => Sizes::All(array_elements(&one).first().copied().unwrap_or_default()),
            Err(_) => Sizes::All(s.size() as u64),
        },
        ColumnarValue::Array(a) => Sizes::Each(array_elements(a)),
    }
}

fn array_elements(array: &ArrayRef) -> Vec<u64> {
    match array.data_type() {
        DataType::List(_) => by_offsets(array.as_list::<i32>().value_offsets()),
        DataType::LargeList(_) => by_offsets(array.as_list::<i64>().value_offsets()),
        DataType::FixedSizeList(_, n) => vec![*n as u64; array.len()],
        _ => array_bytes(array),
    }
}

fn whole_number(value: &ColumnarValue) -> Sizes {
    let numbers = |a: &ArrayRef| -> Vec<u64> {
        let options = CastOptions { safe: true, ..CastOptions::default() };
        match cast_with_options(a, &DataType::Int64, &options) {
            Ok(n) => n.as_primitive::<Int64Type>().iter().map(|n| n.unwrap_or_default().max(0) as u64).collect(),
            Err(_) => vec![u64::MAX; a.len()],
        }
    };
    match value {
        ColumnarValue::Array(a) => Sizes::Each(numbers(a)),
        ColumnarValue::Scalar(s) => {
            Sizes::All(s.to_array().ok().and_then(|a| numbers(&a).first().copied()).unwrap_or(u64::MAX))
        }
    }
}

fn texts(value: &ColumnarValue) -> Option<ArrayRef> {
    let array = match value {
        ColumnarValue::Array(a) => a.clone(),
        ColumnarValue::Scalar(s) => s.to_array().ok()?,
    };
    arrow::compute::cast(&array, &DataType::LargeUtf8).ok()
}

fn map_text(value: &ColumnarValue, f: impl Fn(&str) -> u64) -> Sizes {
    let Some(array) = texts(value) else { return Sizes::All(u64::MAX) };
    let all: Vec<u64> = array.as_string::<i64>().iter().map(|t| t.map_or(0, &f)).collect();
    match value {
        ColumnarValue::Scalar(_) => Sizes::All(all.first().copied().unwrap_or_default()),
        ColumnarValue::Array(_) => Sizes::Each(all),
    }
}

fn is_ascii(value: &ColumnarValue) -> bool {
    match value {
        ColumnarValue::Scalar(ScalarValue::Utf8(t) | ScalarValue::LargeUtf8(t) | ScalarValue::Utf8View(t)) => {
            t.as_ref().is_none_or(|t| t.is_ascii())
        }
        ColumnarValue::Array(a) if a.data_type() == &DataType::Utf8 => a.as_string::<i32>().is_ascii(),
        ColumnarValue::Scalar(s) => s.data_type().is_numeric(),
        ColumnarValue::Array(a) => a.data_type().is_numeric(),
    }
}

/// How many steps lie between the first and the second argument. Times count in nanoseconds, a month as its shortest.
fn range_elements(args: &[ColumnarValue], row: usize) -> u64 {
    let (from, to, step) = match args {
        [to] => (None, to, None),
        [from, to] => (Some(from), to, None),
        [from, to, step, ..] => (Some(from), to, Some(step)),
        [] => return 0,
    };
    let to = place(to, row);
    let span = to.saturating_sub(from.map_or(0, |f| place(f, row))).unsigned_abs();
    let step = step.map_or(1, |s| place(s, row)).unsigned_abs();
    span.checked_div(step).map_or(0, |n| u64::try_from(n).unwrap_or(u64::MAX).saturating_add(1))
}

fn place(value: &ColumnarValue, row: usize) -> i128 {
    const DAY: i128 = 86_400_000_000_000;
    let scalar = match value {
        ColumnarValue::Scalar(s) => s.clone(),
        ColumnarValue::Array(a) => match ScalarValue::try_from_array(a, row) {
            Ok(s) => s,
            Err(_) => return i128::MAX / 2,
        },
    };
    let whole = |s: &ScalarValue| match s.cast_to(&DataType::Int64) {
        Ok(ScalarValue::Int64(n)) => i128::from(n.unwrap_or_default()),
        _ => i128::MAX / 2,
    };
    match &scalar {
        ScalarValue::Date32(d) => i128::from(d.unwrap_or_default()) * DAY,
        ScalarValue::TimestampSecond(n, _) => i128::from(n.unwrap_or_default()) * 1_000_000_000,
        ScalarValue::TimestampMillisecond(n, _) => i128::from(n.unwrap_or_default()) * 1_000_000,
        ScalarValue::TimestampMicrosecond(n, _) => i128::from(n.unwrap_or_default()) * 1_000,
        ScalarValue::TimestampNanosecond(n, _) => i128::from(n.unwrap_or_default()),
        ScalarValue::Date64(n) => i128::from(n.unwrap_or_default()) * 1_000_000,
        ScalarValue::IntervalMonthDayNano(i) => i.map_or(0, |i| {
            let (months, days, nanos) = IntervalMonthDayNanoType::to_parts(i);
            let parts = [i128::from(months) * 28 * DAY, i128::from(days) * DAY, i128::from(nanos)];
            // a step that goes both ways may never arrive
            if parts.iter().any(|p| *p > 0) && parts.iter().any(|p| *p < 0) { 1 } else { parts.iter().sum() }
        }),
        ScalarValue::IntervalYearMonth(n) => i128::from(n.unwrap_or_default()) * 28 * DAY,
        ScalarValue::IntervalDayTime(i) => {
            i.map_or(0, |i| i128::from(i.days) * DAY + i128::from(i.milliseconds) * 1_000_000)
        }
        other => whole(other),
    }
}
