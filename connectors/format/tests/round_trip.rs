//! What is written is read back as the same rows: every type, every option, keys and tombstones.

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Decimal256Array, Float32Array,
        Float64Array, Int16Array, Int32Array, Int64Array, IntervalMonthDayNanoArray, RecordBatch, StringArray,
        Time64MicrosecondArray, TimestampMicrosecondArray,
    },
    datatypes::{IntervalMonthDayNano, i256},
};
use millstream_format::{Format, JsonEncoder, JsonOptions, TableFormat, encoder};
use millstream_types::{BinaryArena, Encoder, TableSchema};
use proptest::prelude::*;

use crate::support::{Record, batch, decode, format, options, rows, table, values};

const DAY_US: i64 = 86_400_000_000;
const TYPES: &str = "b boolean, s smallint, i int, l bigint, r real, d double, n decimal(38,7), w decimal(76,20), t varchar, x bytea, da date, \
     ti time, ts timestamp, tz timestamptz, iv interval";

#[derive(Debug, Clone)]
struct Row {
    b: Option<bool>,
    s: Option<i16>,
    i: Option<i32>,
    l: Option<i64>,
    r: Option<f32>,
    d: Option<f64>,
    n: Option<i128>,
    w: Option<i128>,
    t: Option<String>,
    x: Option<Vec<u8>>,
    da: Option<i32>,
    ti: Option<i64>,
    ts: Option<i64>,
    tz: Option<i64>,
    iv: Option<(i32, i32, i64)>,
}

fn any_row() -> impl Strategy<Value = Row> {
    let moments = -719_162 * DAY_US..2_932_896 * DAY_US;
    let limit = 10_i128.pow(38);
    let first = (
        any::<Option<bool>>(),
        any::<Option<i16>>(),
        any::<Option<i32>>(),
        any::<Option<i64>>(),
        any::<Option<f32>>(),
        any::<Option<f64>>(),
    );
    let numbers = (prop::option::of(-(limit - 1)..limit), any::<Option<i128>>());
    let texts = (any::<Option<String>>(), any::<Option<Vec<u8>>>());
    let times = (
        prop::option::of(-719_162..=2_932_896),
        prop::option::of(0..DAY_US),
        prop::option::of(moments.clone()),
        prop::option::of(moments),
        prop::option::of((any::<i32>(), any::<i32>(), i64::MIN + 1..=i64::MAX)),
    );
    (first, numbers, texts, times).prop_map(|((b, s, i, l, r, d), (n, w), (t, x), (da, ti, ts, tz, iv))| Row {
        b,
        s,
        i,
        l,
        r,
        d,
        n,
        w,
        t,
        x,
        da,
        ti,
        ts,
        tz,
        iv,
    })
}

fn record_batch(schema: &TableSchema, all: &[Row]) -> RecordBatch {
    fn of<T, A: FromIterator<Option<T>> + Array + 'static>(rows: &[Row], get: impl Fn(&Row) -> Option<T>) -> ArrayRef {
        Arc::new(rows.iter().map(get).collect::<A>())
    }
    let interval = |(months, days, nanoseconds)| IntervalMonthDayNano { months, days, nanoseconds };
    let decimal = all.iter().map(|r| r.n).collect::<Decimal128Array>().with_precision_and_scale(38, 7).unwrap();
    let wide = all
        .iter()
        .map(|r| r.w.map(i256::from_i128))
        .collect::<Decimal256Array>()
        .with_precision_and_scale(76, 20)
        .unwrap();
    let columns: Vec<ArrayRef> = vec![
        of::<_, BooleanArray>(all, |r| r.b),
        of::<_, Int16Array>(all, |r| r.s),
        of::<_, Int32Array>(all, |r| r.i),
        of::<_, Int64Array>(all, |r| r.l),
        of::<_, Float32Array>(all, |r| r.r),
        of::<_, Float64Array>(all, |r| r.d),
        Arc::new(decimal),
        Arc::new(wide),
        of::<_, StringArray>(all, |r| r.t.clone()),
        of::<_, BinaryArray>(all, |r| r.x.clone()),
        of::<_, Date32Array>(all, |r| r.da),
        of::<_, Time64MicrosecondArray>(all, |r| r.ti),
        of::<_, TimestampMicrosecondArray>(all, |r| r.ts),
        Arc::new(all.iter().map(|r| r.tz).collect::<TimestampMicrosecondArray>().with_timezone("UTC")),
        of::<_, IntervalMonthDayNanoArray>(all, |r| r.iv.map(interval)),
    ];
    RecordBatch::try_new(schema.arrow(), columns).unwrap()
}

/// Encodes with the table's own encoders and decodes again.
fn there_and_back(f: &TableFormat, rows: &RecordBatch) -> RecordBatch {
    let encoders = f.encoders().unwrap();
    let mut arena = BinaryArena::default();
    encoders.value.1.encode(&rows.project(&encoders.value.0).unwrap(), &mut arena).unwrap();
    let mut keys = BinaryArena::default();
    match &encoders.key {
        Some((places, key)) => key.encode(&rows.project(places).unwrap(), &mut keys).unwrap(),
        None => (0..rows.num_rows()).for_each(|_| keys.push(None)),
    }
    let records: Vec<Record<'_>> = keys.iter().zip(arena.iter()).collect();
    let d = decode(f, &batch(&records));
    assert_eq!(d.bad, []);
    d.rows
}

/// NaN equals NaN, and zeros keep their sign.
fn bits(rows: &RecordBatch) -> String {
    format!("{rows:?}")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_rows_of_every_type_survive_json(all in prop::collection::vec(any_row(), 1..20), other in any::<bool>()) {
        let pairs: &[(&str, &str)] = if other {
            &[("json.int64", "string"), ("json.decimal", "number"), ("json.bytes", "hex"), ("json.date", "days"), ("json.time", "micros"),
              ("json.timestamp", "micros")]
        } else {
            &[]
        };
        let schema = table(TYPES);
        let f = format(schema.clone(), pairs);
        let rows = record_batch(&schema, &all);
        let back = there_and_back(&f, &rows);
        prop_assert_eq!(bits(&back), bits(&rows));
    }

    #[test]
    fn what_is_written_is_json_for_others_too(all in prop::collection::vec(any_row(), 1..5)) {
        let schema = table(TYPES);
        let mut out = BinaryArena::default();
        JsonEncoder::new(&schema.columns, JsonOptions::default()).encode(&record_batch(&schema, &all), &mut out).unwrap();
        for (i, line) in out.iter().enumerate() {
            let value: serde_json::Value = serde_json::from_slice(line.unwrap()).unwrap();
            prop_assert_eq!(value["l"].as_i64(), all[i].l);
            prop_assert_eq!(value["t"].as_str(), all[i].t.as_deref());
        }
    }
}

#[test]
fn nested_columns_survive_json() {
    let f = format(
        table(
            "id bigint, l varchar[], s struct(a decimal(20,3), \"b \"\"c\" bigint[]), m map(varchar, struct(x int)), k map(bigint, timestamptz), j jsonb",
        ),
        &[],
    );
    let d = values(
        &f,
        &[
            r#"{"id":1,"l":["a",null,"\u0001\""],"s":{"a":1.5,"b \"c":[1,null]},"m":{"k\n":{"x":1},"":null},"k":[{"key":1,"value":"2024-01-31T10:00:00Z"}],"j":{"a":[1.10]}}"#,
            r#"{"id":2,"l":[],"s":{},"m":{},"k":{},"j":null}"#,
            "{}",
        ],
    );
    assert_eq!(d.bad, []);
    let back = there_and_back(&f, &d.rows);
    assert_eq!(back, d.rows);
    // A slice starts in the middle of its buffers.
    let slice = d.rows.slice(1, 2);
    assert_eq!(there_and_back(&f, &slice), slice);
}

fn encoded(schema: &str, pairs: &[(&str, &str)], value: &str) -> Result<String, String> {
    let schema = table(schema);
    let f = format(schema.clone(), pairs);
    let d = values(&f, &[value]);
    assert_eq!(d.bad, []);
    let (json, _) = JsonOptions::from_options(&options(pairs)).unwrap();
    let mut out = BinaryArena::default();
    JsonEncoder::new(&schema.columns, json).encode(&d.rows, &mut out).map_err(|e| e.to_string())?;
    Ok(String::from_utf8(out.get(0).unwrap().to_vec()).unwrap())
}

#[test]
fn values_are_written_as_the_options_say() {
    let schema = "l bigint, n decimal(12,4), d double, x bytea, da date, ti time, ts timestamp, tz timestamptz";
    let value = r#"{"l":-7,"n":"-0.0500","d":"NaN","x":"//8=","da":"2024-01-31","ti":"01:02:03.004","ts":"2024-01-31T10:00:00.5","tz":"2024-01-31T10:00:00+01:00"}"#;
    assert_eq!(
        encoded(schema, &[], value).unwrap(),
        r#"{"l":-7,"n":"-0.0500","d":"NaN","x":"//8=","da":"2024-01-31","ti":"01:02:03.004000","ts":"2024-01-31T10:00:00.500000","tz":"2024-01-31T09:00:00Z"}"#
    );
    let pairs = [
        ("json.int64", "string"),
        ("json.decimal", "number"),
        ("json.nan", "null"),
        ("json.timestamp", "millis"),
        ("json.date", "days"),
        ("json.time", "millis"),
    ];
    assert_eq!(
        encoded(schema, &pairs, value).unwrap(),
        r#"{"l":"-7","n":-0.0500,"d":null,"x":"//8=","da":19753,"ti":3723004,"ts":1706695200500,"tz":1706691600000}"#
    );
    assert_eq!(encoded("x bytea", &[("json.bytes", "hex")], r#"{"x":"fF00"}"#).unwrap(), r#"{"x":"ff00"}"#);
    assert!(
        encoded("d double", &[("json.nan", "fail")], r#"{"d":"Infinity"}"#)
            .unwrap_err()
            .contains("column d, row 0: Infinity")
    );
}

#[test]
fn an_upsert_table_reads_back_its_keys_and_tombstones() {
    for pairs in [&[][..], &[("key.format", "json")], &[("key.format", "string")]] {
        let f = format(table("id varchar pk, v bigint"), pairs);
        let d = crate::support::pairs(
            &f,
            &[("a", r#"{"id":"a","v":1}"#)]
                .map(|(k, v)| if pairs == [("key.format", "json")] { ("\"a\"", v) } else { (k, v) }),
        );
        assert_eq!(rows(&d), "+ a,1", "{pairs:?}");
        let (places, key) = f.encoders().unwrap().key.unwrap();
        let mut keys = BinaryArena::default();
        key.encode(&d.rows.project(&places).unwrap(), &mut keys).unwrap();
        let d = decode(&f, &batch(&[(keys.get(0), None)]));
        assert_eq!(rows(&d), "- a,NULL", "{pairs:?}");
    }
}

#[test]
fn single_columns_are_written_as_payloads() {
    let column = |t: &str| table(&format!("c {t}")).columns;
    let text = |t: &str, json: &str| {
        let d = values(&format(table(&format!("c {t}")), &[]), &[&format!(r#"{{"c":{json}}}"#)]);
        let mut out = BinaryArena::default();
        encoder(Format::String, &column(t), &JsonOptions::default()).unwrap().encode(&d.rows, &mut out).unwrap();
        out.get(0).map(|b| String::from_utf8(b.to_vec()).unwrap())
    };
    assert_eq!(text("varchar", "\"a\\\"b\""), Some("a\"b".to_owned()));
    assert_eq!(text("decimal(5,2)", "1.5"), Some("1.50".to_owned()));
    assert_eq!(text("timestamptz", "\"2024-01-31T10:00:00Z\""), Some("2024-01-31T10:00:00Z".to_owned()));
    assert_eq!(text("bigint", "null"), None);
    assert!(encoder(Format::Bytes, &column("varchar"), &JsonOptions::default()).is_err());
    let other = JsonEncoder::new(&column("bigint"), JsonOptions::default());
    let d = values(&format(table("c varchar"), &[]), &["{}"]);
    assert!(other.encode(&d.rows, &mut BinaryArena::default()).unwrap_err().to_string().contains("other columns"));
}
