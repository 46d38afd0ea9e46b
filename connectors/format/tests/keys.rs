//! Keys, tombstones and what happens without them. Section F of the pitfalls.

use millstream_types::BadReason::*;

use crate::support::{bad, format, pairs, rows, table};

#[test]
fn an_upsert_table_reads_its_key_from_the_value_and_tombstones_from_any_sensible_key() {
    let f = format(table("id bigint pk, v varchar"), &[]);
    let d = pairs(
        &f,
        &[
            ("whatever", r#"{"id":1,"v":"a"}"#),
            ("~", r#"{"id":2,"v":"b"}"#),
            (r#"{"id":1}"#, "~"),
            ("2", "~"),
            (r#""3""#, "~"),
            ("whatever", "~"),
            ("~", "~"),
            (r#"{"other":1}"#, "~"),
            (r#"{"id":4,"#, "~"),
            ("null", "~"),
            ("5", r#"{"v":"key only in the key"}"#),
            ("x", r#"{"v":"key nowhere"}"#),
            ("6", r#"{"id":null}"#),
        ],
    );
    assert_eq!(rows(&d), "+ 1,a | + 2,b | - 1,NULL | - 2,NULL | - 3,NULL | + 5,key only in the key");
    let t = TombstoneWithoutKey;
    assert_eq!(
        bad(&d),
        [
            (110, t, ""),
            (112, t, ""),
            (114, t, ""),
            (116, t, ""),
            (118, t, ""),
            (122, NullKey, "id"),
            (124, NullKey, "id")
        ]
    );
}

#[test]
fn a_text_key_may_be_plain_or_quoted() {
    let f = format(table("id varchar pk, v int"), &[]);
    let d = pairs(
        &f,
        &[("abc", "~"), (r#""abc""#, "~"), ("12", "~"), (r#"{"id":"x"}"#, "~"), ("a b", r#"{"v":1}"#), ("{", "~")],
    );
    assert_eq!(rows(&d), "- abc,NULL | - abc,NULL | - 12,NULL | - x,NULL | + a b,1");
    assert_eq!(bad(&d), [(110, TombstoneWithoutKey, "")]);
}

#[test]
fn a_key_of_two_columns_needs_an_object() {
    let f = format(table("a bigint pk, b varchar pk, v int"), &[]);
    let d = pairs(
        &f,
        &[
            ("k", r#"{"a":1,"b":"x","v":1}"#),
            (r#"{"b":"x","a":1,"more":[]}"#, "~"),
            (r#"{"a":1}"#, "~"),
            ("1", "~"),
            (r#"{"b":"y"}"#, r#"{"a":2,"v":2}"#),
            (r#"{"a":1,"b":null}"#, "~"),
        ],
    );
    assert_eq!(rows(&d), "+ 1,x,1 | - 1,x,NULL | + 2,y,2");
    assert_eq!(bad(&d), [(104, TombstoneWithoutKey, ""), (106, TombstoneWithoutKey, ""), (110, NullKey, "b")]);
}

#[test]
fn key_fields_are_read_from_the_key_only() {
    let f = format(table("id bigint pk, v varchar"), &[("key.format", "json"), ("key.fields", "id")]);
    let d = pairs(
        &f,
        &[
            (r#"{"id":1}"#, r#"{"id":99,"v":"a"}"#),
            ("2", r#"{"v":"b"}"#),
            ("~", r#"{"id":3}"#),
            ("~", "~"),
            (r#"{"id":1}"#, "~"),
            (r#"{"id":"x"}"#, "~"),
            (r#"{}"#, r#"{}"#),
            ("2 2", "~"),
        ],
    );
    assert_eq!(rows(&d), "+ 1,a | + 2,b | - 1,NULL");
    assert_eq!(
        bad(&d),
        [
            (104, NullKey, "id"),
            (106, NullKey, "id"),
            (110, TypeMismatch, "id"),
            (112, NullKey, "id"),
            (114, Malformed, "")
        ]
    );
    assert!(d.bad[..3].iter().all(|b| b.stage == "key"));
}

#[test]
fn a_string_key_is_its_column() {
    let f = format(table("id bigint pk, v varchar"), &[("key.format", "string")]);
    let d = pairs(&f, &[("7", r#"{"v":"a"}"#), ("7", "~"), ("x", "~")]);
    assert_eq!((rows(&d).as_str(), bad(&d)), ("+ 7,a | - 7,NULL", vec![(104, TypeMismatch, "id")]));
    let f = format(table("id bytea pk, v varchar"), &[("key.format", "bytes"), ("key.fields", "id")]);
    let d = pairs(&f, &[("ab", r#"{"v":"a"}"#), ("ab", "~")]);
    assert_eq!(rows(&d), "+ 6162,a | - 6162,NULL");
}

#[test]
fn without_a_key_format_none_a_tombstone_is_bad() {
    let f = format(table("id bigint pk, v varchar"), &[("key.format", "none")]);
    let d = pairs(&f, &[("1", r#"{"id":1}"#), ("1", "~")]);
    assert_eq!((rows(&d).as_str(), bad(&d)), ("+ 1,NULL", vec![(102, TombstoneWithoutKey, "")]));
    let f = format(table("id bigint pk, v varchar"), &[("key.format", "string"), ("key.fields", "v")]);
    let d = pairs(&f, &[("x", r#"{"id":1}"#), ("x", "~")]);
    assert_eq!((rows(&d).as_str(), bad(&d)), ("+ 1,x", vec![(102, TombstoneWithoutKey, "")]));
}

#[test]
fn an_append_table_may_read_its_key_and_an_absent_one_reads_as_null() {
    let schema = || table("k_id bigint, v varchar");
    let f = format(schema(), &[("key.format", "json"), ("key.fields", "k_id"), ("key.prefix", "k_")]);
    let d = pairs(
        &f,
        &[(r#"{"id":1}"#, r#"{"v":"a"}"#), ("~", r#"{"v":"b"}"#), (r#"{"id":2}"#, "~"), ("{", r#"{"v":"c"}"#)],
    );
    assert_eq!(rows(&d), "+ 1,a | + NULL,b | + 2,NULL");
    assert_eq!(bad(&d), [(106, Malformed, "")]);
}
