//! Values of ordered and numeric columns in two plain forms: 128-bit integers (numbers, times, booleans, floats in total order) and bytes.
//!
//! One conversion per chunk; the loops over rows then know two forms instead of twenty types.

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array,
        Int16Array, Int32Array, Int64Array, StringBuilder, Time64MicrosecondArray, TimestampMicrosecondArray,
        cast::AsArray,
    },
    datatypes::{
        DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
        Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
    },
    error::ArrowError,
};

/// Whether values of the type have the integer form.
pub(crate) fn is_int(t: &DataType) -> bool {
    matches!(
        t,
        DataType::Boolean
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Float32
            | DataType::Float64
            | DataType::Decimal128(..)
            | DataType::Date32
            | DataType::Time64(TimeUnit::Microsecond)
            | DataType::Timestamp(TimeUnit::Microsecond, _)
    )
}

pub(crate) fn is_bytes(t: &DataType) -> bool {
    matches!(t, DataType::Utf8 | DataType::Binary)
}

/// Floats in the order of the SQL standard's sort: -NaN, -inf, .., inf, NaN; the map is its own inverse.
fn order(bits: i64) -> i64 {
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

/// Integer form of each value; nulls are 0.
pub(crate) fn ints(array: &dyn Array, out: &mut Vec<i128>) -> Result<(), ArrowError> {
    out.clear();
    match array.data_type() {
        DataType::Boolean => out.extend((0..array.len()).map(|i| i128::from(array.as_boolean().value(i)))),
        DataType::Int16 => out.extend(array.as_primitive::<Int16Type>().values().iter().map(|v| i128::from(*v))),
        DataType::Int32 => out.extend(array.as_primitive::<Int32Type>().values().iter().map(|v| i128::from(*v))),
        DataType::Int64 => out.extend(array.as_primitive::<Int64Type>().values().iter().map(|v| i128::from(*v))),
        DataType::Date32 => out.extend(array.as_primitive::<Date32Type>().values().iter().map(|v| i128::from(*v))),
        DataType::Time64(TimeUnit::Microsecond) => {
            out.extend(array.as_primitive::<Time64MicrosecondType>().values().iter().map(|v| i128::from(*v)));
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            out.extend(array.as_primitive::<TimestampMicrosecondType>().values().iter().map(|v| i128::from(*v)));
        }
        DataType::Decimal128(..) => out.extend(array.as_primitive::<Decimal128Type>().values().iter().copied()),
        DataType::Float32 => out.extend(
            array
                .as_primitive::<Float32Type>()
                .values()
                .iter()
                .map(|v| i128::from(order(f64::from(*v).to_bits() as i64))),
        ),
        DataType::Float64 => out
            .extend(array.as_primitive::<Float64Type>().values().iter().map(|v| i128::from(order(v.to_bits() as i64)))),
        other => return Err(ArrowError::NotYetImplemented(format!("no integer form of {other}"))),
    }
    Ok(())
}

/// Float form of each value; nulls are 0.
pub(crate) fn floats(array: &dyn Array, out: &mut Vec<f64>) -> Result<(), ArrowError> {
    out.clear();
    match array.data_type() {
        DataType::Float32 => out.extend(array.as_primitive::<Float32Type>().values().iter().map(|v| f64::from(*v))),
        DataType::Float64 => out.extend(array.as_primitive::<Float64Type>().values().iter().copied()),
        other => return Err(ArrowError::NotYetImplemented(format!("no float form of {other}"))),
    }
    Ok(())
}

/// The array of a type from integer forms; a value that does not fit the type is an error.
pub(crate) fn from_ints(t: &DataType, values: &[Option<i128>]) -> Result<ArrayRef, ArrowError> {
    let small = |v: &Option<i128>| {
        v.map(|v| i64::try_from(v).map_err(|_| ArrowError::ComputeError(format!("{v} is out of range")))).transpose()
    };
    let i64s = || values.iter().map(small).collect::<Result<Vec<_>, _>>();
    let float = |v: Option<i64>| v.map(|v| f64::from_bits(order(v) as u64));
    Ok(match t {
        DataType::Boolean => Arc::new(values.iter().map(|v| v.map(|v| v != 0)).collect::<BooleanArray>()),
        DataType::Int16 => Arc::new(i64s()?.into_iter().map(|v| v.map(|v| v as i16)).collect::<Int16Array>()),
        DataType::Int32 => Arc::new(i64s()?.into_iter().map(|v| v.map(|v| v as i32)).collect::<Int32Array>()),
        DataType::Int64 => Arc::new(Int64Array::from(i64s()?)),
        DataType::Date32 => Arc::new(i64s()?.into_iter().map(|v| v.map(|v| v as i32)).collect::<Date32Array>()),
        DataType::Time64(TimeUnit::Microsecond) => Arc::new(Time64MicrosecondArray::from(i64s()?)),
        DataType::Timestamp(TimeUnit::Microsecond, tz) => {
            Arc::new(TimestampMicrosecondArray::from(i64s()?).with_timezone_opt(tz.clone()))
        }
        DataType::Decimal128(p, s) => {
            Arc::new(values.iter().copied().collect::<Decimal128Array>().with_precision_and_scale(*p, *s)?)
        }
        DataType::Float32 => {
            Arc::new(i64s()?.into_iter().map(|v| float(v).map(|f| f as f32)).collect::<Float32Array>())
        }
        DataType::Float64 => Arc::new(i64s()?.into_iter().map(float).collect::<Float64Array>()),
        other => return Err(ArrowError::NotYetImplemented(format!("no integer form of {other}"))),
    })
}

/// The bytes of value i of a text or binary array.
pub(crate) fn bytes(array: &dyn Array, i: usize) -> &[u8] {
    match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().value(i).as_bytes(),
        _ => array.as_binary::<i32>().value(i),
    }
}

pub(crate) fn from_bytes(t: &DataType, values: &[Option<&[u8]>]) -> Result<ArrayRef, ArrowError> {
    Ok(match t {
        DataType::Utf8 => {
            let mut text = StringBuilder::with_capacity(values.len(), values.iter().flatten().map(|v| v.len()).sum());
            for v in values {
                let v = v.map(|v| std::str::from_utf8(v)).transpose();
                text.append_option(v.map_err(|e| ArrowError::ComputeError(e.to_string()))?);
            }
            Arc::new(text.finish())
        }
        _ => Arc::new(BinaryArray::from(values.to_vec())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_their_integer_form_and_keep_their_order() {
        let floats = Float64Array::from(vec![f64::NEG_INFINITY, -1.5, -0.0, 0.0, 2.5, f64::INFINITY, f64::NAN]);
        let mut out = Vec::new();
        ints(&floats, &mut out).unwrap();
        assert!(out.is_sorted());
        let back = from_ints(&DataType::Float64, &out.iter().map(|v| Some(*v)).collect::<Vec<_>>()).unwrap();
        assert_eq!(back.as_primitive::<Float64Type>().values()[..6], floats.values()[..6]);
        let dates = Date32Array::from(vec![-5, 0, 7]);
        ints(&dates, &mut out).unwrap();
        let back = from_ints(&DataType::Date32, &out.iter().map(|v| Some(*v)).collect::<Vec<_>>()).unwrap();
        assert_eq!(back.as_ref(), &dates as &dyn Array);
        assert!(from_ints(&DataType::Int64, &[Some(i128::from(i64::MAX) + 1)]).is_err());
    }
}
