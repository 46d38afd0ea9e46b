//! JSON values into columns: types, what is missing, extra, null or repeated; raw text and bytes. Section G of the pitfalls.

use millstream_types::BadReason::{self, *};

use crate::support::{bad, format, options, rows, table, values};

#[test]
fn a_flat_record_becomes_a_row_of_its_types() {
    let f = format(
        table(
            "b boolean, s smallint, i int, l bigint, r real, d double, n decimal(12,2), w decimal(60,5), t varchar, x bytea, \
             da date, ti time, ts timestamp, tz timestamptz, iv interval, j jsonb",
        ),
        &[],
    );
    let d = values(
        &f,
        &[
            r#"{"b":true,"s":-5,"i":7,"l":9223372036854775807,"r":1.5,"d":1e-3,"n":"12.3","w":123456789012345678901234567890123456789012345.12345,
                "t":"a\u00e9","x":"AQI=","da":"2024-01-31","ti":"10:00:00.5","ts":"2024-01-31T10:00:00","tz":"2024-01-31T10:00:00+01:00",
                "iv":"P1M2DT3.5S","j":{"a": [1.10]}}"#,
            r#"{"b":null,"s":null,"i":null,"l":null,"r":null,"d":null,"n":null,"w":null,"t":null,"x":null,"da":null,"ti":null,"ts":null,"tz":null,"iv":null,"j":null}"#,
            "{}",
        ],
    );
    assert_eq!(d.bad, []);
    let nulls = ["NULL"; 16].join(",");
    let first = "true,-5,7,9223372036854775807,1.5,0.001,12.30,123456789012345678901234567890123456789012345.12345,aé,0102,2024-01-31,10:00:00.500,\
         2024-01-31T10:00:00,2024-01-31T09:00:00Z,1 mons 2 days 3.500000000 secs,{\"a\": [1.10]}";
    assert_eq!(rows(&d).replace("10:00:00.500000", "10:00:00.500"), format!("+ {first} | + {nulls} | + {nulls}"));
}

#[test]
fn wrong_values_are_bad_with_their_column_and_reason() {
    for (sql_type, value, reason) in [
        ("boolean", "1", TypeMismatch),
        ("boolean", "\"true\"", TypeMismatch),
        ("smallint", "32768", OutOfRange),
        ("int", "-2147483649", OutOfRange),
        ("bigint", "9223372036854775808", OutOfRange),
        ("bigint", "1.5", TypeMismatch),
        ("bigint", "\"x\"", TypeMismatch),
        ("bigint", "true", TypeMismatch),
        ("bigint", "[1]", TypeMismatch),
        ("real", "1e39", OutOfRange),
        ("double", "1e309", OutOfRange),
        ("double", "\"1.5\"", TypeMismatch),
        ("decimal(5,2)", "1000.00", OutOfRange),
        ("decimal(5,2)", "1.005", OutOfRange),
        ("decimal(5,2)", "\"one\"", TypeMismatch),
        ("varchar", "1", TypeMismatch),
        ("varchar", "{}", TypeMismatch),
        ("varchar", "\"\\ud800\"", InvalidUtf8),
        ("bytea", "\"!!\"", TypeMismatch),
        ("date", "\"2024-02-30\"", TypeMismatch),
        ("date", "19000", TypeMismatch),
        ("time", "\"25:00:00\"", TypeMismatch),
        ("timestamp", "1700000000000", TypeMismatch),
        ("timestamptz", "\"2024-01-31T10:00:00\"", TypeMismatch),
        ("interval", "\"1 day\"", TypeMismatch),
        ("bigint[]", "{}", TypeMismatch),
        ("struct(a bigint)", "[]", TypeMismatch),
        ("map(varchar, bigint)", "1", TypeMismatch),
    ] {
        let f = format(table(&format!("id bigint, v {sql_type}")), &[]);
        let d = values(&f, &[r#"{"id":1}"#, &format!(r#"{{"id":2,"v":{value}}}"#), r#"{"id":3}"#]);
        assert_eq!(bad(&d), [(102, reason, "v")], "{sql_type} {value}");
        assert_eq!(rows(&d), "+ 1,NULL | + 3,NULL", "{sql_type} {value}");
        assert_eq!(d.offsets, [100, 104]);
    }
}

#[test]
fn huge_integers_harm_only_their_column() {
    let f = format(table("id bigint, n decimal(40,0), j jsonb"), &[]);
    let huge = "123456789012345678901234567890123456789";
    let d =
        values(&f, &[&format!(r#"{{"id":1,"unused":{huge},"n":{huge},"j":{huge}}}"#), &format!(r#"{{"id":{huge}}}"#)]);
    assert_eq!(rows(&d), format!("+ 1,{huge},{huge}"));
    assert_eq!(bad(&d), [(102, OutOfRange, "id")]);
}

#[test]
fn integers_are_read_in_every_exact_spelling() {
    let f = format(table("l bigint, i int"), &[]);
    let d = values(&f, &[r#"{"l":1.0,"i":1e3}"#, r#"{"l":"-9223372036854775808","i":"7"}"#, r#"{"l":-0,"i":0}"#]);
    assert_eq!(rows(&d), "+ 1,1000 | + -9223372036854775808,7 | + 0,0");
}

#[test]
fn missing_null_and_extra_fields_follow_the_rules() {
    let mut schema = table("id bigint not null, a varchar not null, b int, c varchar not null");
    schema.columns[3].default = Some("'none'".to_owned());
    schema.columns[2].default = Some("5".to_owned());
    let f = format(schema, &[]);
    let d = values(
        &f,
        &[
            r#"{"id":1,"a":"x","extra":{"deep":[1,2,{"x":null}]},"b":null}"#,
            r#"{"id":2,"c":"y"}"#,
            r#"{"id":3,"a":null}"#,
            r#"{"id":null,"a":"x"}"#,
            r#"{"id":4,"a":"x","c":null}"#,
            r#"{"id":5,"a":"x"}"#,
        ],
    );
    assert_eq!(rows(&d), "+ 1,x,NULL,none | + 5,x,5,none");
    assert_eq!(bad(&d), [(102, MissingField, "a"), (104, NotNull, "a"), (106, NotNull, "id"), (108, NotNull, "c")]);
}

#[test]
fn of_a_repeated_name_the_last_wins() {
    let f = format(table("id bigint, s struct(a bigint), m map(varchar, int)"), &[]);
    let d = values(&f, &[r#"{"id":1,"id":2,"s":{"a":1,"a":2},"m":{"k":1,"z":5,"k":2},"id":3}"#, r#"{"i\u0064":4}"#]);
    assert_eq!(rows(&d), "+ 3,{a: 2},{z: 5, k: 2} | + 4,NULL,NULL");
    // A wrong value that is replaced does no harm.
    let d = values(&f, &[r#"{"id":"x","s":{},"id":5}"#, r#"{"id":1,"id":"x"}"#, r#"{"id":"x","id":6"#]);
    assert_eq!(rows(&d), "+ 5,{a: NULL},NULL");
    assert_eq!(bad(&d), [(102, TypeMismatch, "id"), (104, Malformed, "")]);
}

#[test]
fn field_names_match_exactly_in_any_order() {
    let f = format(table("a bigint, b bigint, c bigint"), &[]);
    let d = values(
        &f,
        &[r#"{"a":1,"b":2,"c":3}"#, r#"{"c":3,"x":0,"a":1,"b":2}"#, r#"{"A":9,"b":2}"#, r#"{"a":1,"b":2,"c":3}"#],
    );
    assert_eq!(rows(&d), "+ 1,2,3 | + 1,2,3 | + NULL,2,NULL | + 1,2,3");
}

#[test]
fn nested_values_are_exact_and_errors_name_their_path() {
    let f =
        format(table("id bigint, o struct(l bigint[], n decimal(20,5)), m map(bigint, varchar), x bigint[][]"), &[]);
    let d = values(
        &f,
        &[
            r#"{"id":1,"o":{"l":[9223372036854775807,null],"n":"123456789012345.67891","other":1},"m":{"5":"five"},"x":[[1],[],null]}"#,
            r#"{"id":2,"o":{"l":[1,"x"]}}"#,
            r#"{"id":3,"m":[{"key":7,"value":"seven"},{"value":null,"key":"8"}]}"#,
            r#"{"id":4,"x":[[1],[2.5]]}"#,
            r#"{"id":5,"m":[{"value":"x"}]}"#,
            r#"{"id":6,"o":{},"m":{},"x":[]}"#,
        ],
    );
    assert_eq!(
        rows(&d),
        "+ 1,{l: [9223372036854775807, NULL], n: 123456789012345.67891},{5: five},[[1], [], NULL] | \
         + 3,NULL,{7: seven, 8: NULL},NULL | + 6,{l: NULL, n: NULL},{},[]"
    );
    assert_eq!(bad(&d), [(102, TypeMismatch, "o.l[1]"), (106, TypeMismatch, "x[1][0]"), (108, TypeMismatch, "m[0]")]);
}

#[test]
fn numbers_stand_for_times_only_if_asked() {
    let asked = [("json.timestamp", "millis"), ("json.date", "days"), ("json.time", "micros"), ("timezone", "+02:00")];
    let f = format(table("ts timestamp, tz timestamptz, d date, t time"), &asked);
    let d = values(
        &f,
        &[
            r#"{"ts":1706695200000,"tz":-1,"d":-1,"t":1}"#,
            r#"{"ts":"2024-01-31T10:00:00Z","tz":"2024-01-31T10:00:00","d":"2024-01-31","t":"00:00:01"}"#,
            r#"{"tz":9223372036854775807}"#,
        ],
    );
    let text = rows(&d);
    assert!(text.starts_with("+ 2024-01-31T10:00:00,1969-12-31T23:59:59.999Z,1969-12-31,00:00:00.000001 | + 2024-01-31T12:00:00,2024-01-31T08:00:00Z"));
    assert_eq!(bad(&d), [(104, OutOfRange, "tz")]);
}

#[test]
fn extra_fields_are_collected() {
    let f = format(table("id bigint, rest jsonb"), &[("extra_fields_column", "rest")]);
    let d = values(
        &f,
        &[r#"{"x":1.10,"id":1,"y":{"z":[]}}"#, r#"{"id":2}"#, r#"{"q":1,"id":"bad"}"#, r#"{"id":3,"w":"\n"}"#],
    );
    assert_eq!(rows(&d), r#"+ 1,{"x":1.10,"y":{"z":[]}} | + 2,NULL | + 3,{"w":"\n"}"#);
    assert_eq!(bad(&d), [(104, TypeMismatch, "id")]);
}

#[test]
fn a_null_value_is_a_row_or_is_skipped() {
    let records = [(None, None), (None, Some(&br#"{"id":1}"#[..]))];
    let batch = crate::support::batch(&records);
    let d = crate::support::decode(&format(table("id bigint"), &[]), &batch);
    assert_eq!(rows(&d), "+ NULL | + 1");
    let d = crate::support::decode(&format(table("id bigint"), &[("null_value", "skip")]), &batch);
    assert_eq!((rows(&d).as_str(), d.ignored), ("+ 1", 1));
    let d = crate::support::decode(&format(table("id bigint not null"), &[]), &batch);
    assert_eq!(bad(&d), [(100, NotNull, "id")]);
}

#[test]
fn text_and_bytes_are_whole_payloads() {
    let d = values(&format(table("line varchar"), &[("value.format", "string")]), &["a b", "", "{\"x\":1}"]);
    assert_eq!(rows(&d), "+ a b | +  | + {\"x\":1}");
    let d = values(&format(table("n decimal(5,2)"), &[("value.format", "string")]), &["1.5", "x"]);
    assert_eq!((rows(&d).as_str(), bad(&d)), ("+ 1.50", vec![(102, TypeMismatch, "n")]));
    let f = format(table("raw bytea"), &[("value.format", "bytes")]);
    let d = crate::support::decode(&f, &crate::support::batch(&[(None, Some(&[0, 255])), (None, None)]));
    assert_eq!(rows(&d), "+ 00ff | + NULL");
    let f = format(table("t varchar"), &[("value.format", "string")]);
    let d = crate::support::decode(&f, &crate::support::batch(&[(None, Some(&[0xff])), (None, Some(b"ok"))]));
    assert_eq!((rows(&d).as_str(), bad(&d)), ("+ ok", vec![(100, InvalidUtf8, "t")]));
}

#[test]
fn definitions_that_cannot_work_are_refused() {
    use millstream_format::TableFormat;
    let refused = |schema: &str, pairs: &[(&str, &str)]| {
        TableFormat::from_options(std::sync::Arc::new(table(schema)), &options(pairs)).unwrap_err().to_string()
    };
    assert_eq!(
        refused("a int", &[("value.formt", "json")]),
        "unknown option 'value.formt', did you mean 'value.format'?"
    );
    assert!(refused("a int", &[("value.format", "avro")]).contains("expected json, string, bytes"));
    assert!(refused("a int, b int", &[("value.format", "string")]).contains("exactly one column"));
    assert!(refused("a int", &[("value.format", "bytes")]).contains("BYTEA"));
    assert!(refused("a int", &[("key.fields", "b")]).contains("not a column"));
    assert!(refused("a int", &[("key.format", "json")]).contains("key.fields"));
    assert!(refused("a int, r varchar", &[("extra_fields_column", "r")]).contains("JSONB"));
    let f = format(table("a int"), &[("value.format", "json"), ("topic", "t"), ("json.nan", "null")]);
    assert_eq!(f.consumed_options().iter().map(String::as_str).collect::<Vec<_>>(), ["json.nan", "value.format"]);
}

#[test]
fn limits_are_reported() {
    let f = format(table("id bigint"), &[("value.max.bytes", "50")]);
    let deep = format!("{{\"x\":{}}}", "[".repeat(40));
    let d = values(&f, &[r#"{"id":1}"#, &format!(r#"{{"id":2,"x":"{}"}}"#, "y".repeat(60)), &deep, r#"{"id":3}"#]);
    assert_eq!(rows(&d), "+ 1 | + 3");
    assert_eq!(bad(&d), [(102, BadReason::TooLarge, ""), (104, BadReason::Malformed, "")]);
}
