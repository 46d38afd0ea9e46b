//! Metadata and header columns, with every format.

use millstream_types::{BadReason::InvalidUtf8, MetadataField, TableSchema};

use crate::support::{bad, batch, decode, format, header, rows, table};

fn with(mut schema: TableSchema, fields: &[(usize, MetadataField)]) -> TableSchema {
    for (i, field) in fields {
        schema.columns[*i].metadata = Some(field.clone());
    }
    schema
}

fn all() -> TableSchema {
    let fields = [
        (1, MetadataField::Topic),
        (2, MetadataField::Partition),
        (3, MetadataField::Offset),
        (4, MetadataField::Timestamp),
        (5, MetadataField::Key),
        (6, MetadataField::Value),
        (7, MetadataField::Header("trace".to_owned())),
        (8, MetadataField::HeadersMap),
    ];
    let text = "v varchar, t varchar, p int, o bigint, ts timestamptz, k bytea, raw varchar, h varchar, hs map(varchar, bytea)";
    with(table(text), &fields)
}

#[test]
fn metadata_columns_work_with_every_format() {
    for value_format in ["json", "string"] {
        let f = format(all(), &[("value.format", value_format)]);
        assert!(f.wants_headers());
        let value: &[u8] = if value_format == "json" { br#"{"v":"x","t":"not this"}"# } else { b"x" };
        let mut b = batch(&[(Some(&[1]), Some(value)), (None, Some(value))]);
        b.headers = vec![vec![header("trace", Some(b"old")), header("a", None), header("trace", Some(b"new"))], vec![]];
        b.timestamps[1] = -1;
        let d = decode(&f, &b);
        let raw = String::from_utf8_lossy(value);
        assert_eq!(
            rows(&d),
            format!(
                "+ x,topic,3,100,2023-11-14T22:13:20Z,01,{raw},new,{{a: NULL, trace: 6e6577}} | + x,topic,3,102,NULL,NULL,{raw},NULL,{{}}"
            ),
        );
    }
}

#[test]
fn a_delete_has_no_metadata_and_absent_headers_are_null() {
    let schema = with(
        table("id bigint pk, o bigint, h bytea"),
        &[(1, MetadataField::Offset), (2, MetadataField::Header("x".to_owned()))],
    );
    let d = decode(&format(schema, &[]), &batch(&[(Some(b"1"), Some(br#"{"id":1}"#)), (Some(b"1"), None)]));
    assert_eq!(rows(&d), "+ 1,100,NULL | - 1,NULL,NULL");
}

#[test]
fn a_header_that_is_no_text_is_bad_with_its_column() {
    let schema = with(table("id bigint, h varchar"), &[(1, MetadataField::Header("x".to_owned()))]);
    let mut b = batch(&[(None, Some(br#"{"id":1}"#)), (None, Some(br#"{"id":2}"#))]);
    b.headers = vec![vec![header("x", Some(b"\xff"))], vec![header("x", Some(b"ok"))]];
    let d = decode(&format(schema, &[]), &b);
    assert_eq!((rows(&d).as_str(), bad(&d)), ("+ 2,ok", vec![(100, InvalidUtf8, "h")]));
    assert_eq!(d.bad[0].stage, "header");
}
