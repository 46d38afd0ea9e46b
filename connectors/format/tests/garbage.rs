//! Whatever bytes come, each record is a row or bad, and its neighbours are untouched.

use std::sync::Arc;

use millstream_format::TableFormat;
use millstream_types::BadReason::{self, *};
use proptest::prelude::*;
use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::support::{Record, bad, batch, check, decode, format, row, table};

fn orders() -> TableFormat {
    format(
        table(
            "id bigint not null, n decimal(12,2), s varchar, l bigint[], m map(varchar, int), o struct(a double, b varchar)",
        ),
        &[],
    )
}

fn good(i: usize) -> Vec<u8> {
    format!(r#"{{"id":{i},"n":"{i}.25","s":"row {i}","l":[{i},null],"m":{{"k":{i}}},"o":{{"a":{i}.5,"b":"x"}}}}"#)
        .into_bytes()
}

fn good_row(i: usize) -> String {
    format!("{i},{i}.25,row {i},[{i}, NULL],{{k: {i}}},{{a: {i}.5, b: x}}")
}

/// Decodes `garbage` with a good record before and behind each piece, and returns the reason of each.
fn between_good(f: &TableFormat, garbage: &[Vec<u8>]) -> Vec<BadReason> {
    let mut values = vec![good(0)];
    for (i, piece) in garbage.iter().enumerate() {
        values.push(piece.clone());
        values.push(good(i + 1));
    }
    let records: Vec<Record<'_>> = values.iter().map(|v| (None, Some(v.as_slice()))).collect();
    let d = decode(f, &batch(&records));
    assert_eq!(d.bad.len(), garbage.len(), "{:?}", bad(&d));
    assert_eq!(d.rows.num_rows(), garbage.len() + 1);
    for i in 0..d.rows.num_rows() {
        assert_eq!(row(&d.rows, i), good_row(i));
    }
    d.bad.iter().map(|b| b.reason).collect()
}

#[test]
fn a_poison_record_harms_only_itself() {
    let mib = "x".repeat(1 << 20);
    let cases: Vec<(Vec<u8>, BadReason)> = vec![
        (b"".to_vec(), Malformed),
        (b" ".to_vec(), Malformed),
        (b"{".to_vec(), Malformed),
        (b"null".to_vec(), TypeMismatch),
        (b"[]".to_vec(), TypeMismatch),
        (b"\"{}\"".to_vec(), TypeMismatch),
        (b"{}{}".to_vec(), Malformed),
        (br#"{"id":1} x"#.to_vec(), Malformed),
        (br#"{"id":1,}"#.to_vec(), Malformed),
        (b"\xef\xbb\xbf{\"id\":1}".to_vec(), Malformed),
        (b"{\"id\":1,\"s\":\"\xff\"}".to_vec(), InvalidUtf8),
        (b"{\"id\":1,\"s\":\"a\0b\"}".to_vec(), Malformed),
        (b"\0\0\0\0\x01{\"id\":1}".to_vec(), Malformed),
        (vec![0; 1000], Malformed),
        (br#"{"id":9223372036854775808}"#.to_vec(), OutOfRange),
        (br#"{"id":1,"n":99999999999.99}"#.to_vec(), OutOfRange),
        (br#"{"id":1,"n":1e999999999999999999999}"#.to_vec(), OutOfRange),
        (br#"{"id":1,"o":{"a":1e400}}"#.to_vec(), OutOfRange),
        (br#"{"id":1,"l":[1,2,"x"]}"#.to_vec(), TypeMismatch),
        (br#"{"id":1,"l":[1,2"#.to_vec(), Malformed),
        (br#"{"id":1,"m":{"k":1,"j":"x"}}"#.to_vec(), TypeMismatch),
        (br#"{"id":1,"o":{"b":"y","a":[]}}"#.to_vec(), TypeMismatch),
        (br#"{"n":"1"}"#.to_vec(), MissingField),
        (br#"{"id":null}"#.to_vec(), NotNull),
        (br#"{"id":1,"s":"\ud800"}"#.to_vec(), InvalidUtf8),
        (format!(r#"{{"id":1,"skipped":{}}}"#, "[".repeat(10_000)).into_bytes(), LimitExceeded),
        (format!(r#"{{"id":1,"l":{}}}"#, "[".repeat(10_000)).into_bytes(), TypeMismatch),
        ("{\"id\":".repeat(10_000).into_bytes(), LimitExceeded),
        (format!(r#"{{{}"id":1}}"#, "\"f\":0,".repeat(10_000)).into_bytes(), LimitExceeded),
        (format!(r#"{{"id":1,"s":"{mib}"#).into_bytes(), Malformed),
        (format!(r#"{{"id":"{mib}"}}"#).into_bytes(), TypeMismatch),
        (format!(r#"{{"id":{}}}"#, "9".repeat(1 << 20)).into_bytes(), OutOfRange),
    ];
    let reasons = between_good(&orders(), &cases.iter().map(|(bytes, _)| bytes.clone()).collect::<Vec<_>>());
    for (i, (bytes, reason)) in cases.iter().enumerate() {
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        // An unexpected kind deep in a wrong column may be met before or after the depth limit: both stop the record.
        let same = reasons[i] == *reason || (*reason == TypeMismatch && reasons[i] == LimitExceeded);
        assert!(same, "{text}: {:?} instead of {reason:?}", reasons[i]);
    }
}

#[test]
fn every_truncation_of_a_record_is_malformed() {
    let whole = good(7);
    let pieces: Vec<Vec<u8>> = (0..whole.len()).map(|n| whole[..n].to_vec()).collect();
    assert!(between_good(&orders(), &pieces).iter().all(|r| *r == Malformed));
}

#[test]
fn broken_halves_never_pair_up() {
    let whole = good(7);
    let pieces: Vec<Vec<u8>> = (1..whole.len()).flat_map(|n| [whole[..n].to_vec(), whole[n..].to_vec()]).collect();
    let records: Vec<Record<'_>> = pieces.iter().map(|v| (None, Some(v.as_slice()))).collect();
    let d = decode(&orders(), &batch(&records));
    assert_eq!((d.rows.num_rows(), d.bad.len()), (0, pieces.len()));
}

#[test]
fn random_bytes_are_bad_and_nothing_else() {
    let mut random = StdRng::seed_from_u64(7);
    let pieces: Vec<Vec<u8>> = (0..2_000)
        .map(|_| {
            let length = random.random_range(0..200);
            (0..length).map(|_| random.random()).collect()
        })
        .collect();
    between_good(&orders(), &pieces);
}

#[test]
fn a_large_text_is_kept_whole() {
    let f = orders();
    let text = "é\\n".repeat(1 << 19);
    let value = format!(r#"{{"id":1,"s":"{text}"}}"#);
    let d = decode(&f, &batch(&[(None, Some(value.as_bytes()))]));
    assert_eq!(d.bad, []);
    let column = arrow::array::AsArray::as_string::<i32>(d.rows.column(2));
    assert_eq!(column.value(0), "é\n".repeat(1 << 19));
}

#[test]
fn a_decoder_starts_each_batch_afresh() {
    let f = orders();
    let mut decoder = millstream_types::DecoderFactory::decoder(&f);
    for round in 0..3 {
        let (a, b) = (good(round), good(round + 1));
        let batch = batch(&[(None, Some(&a)), (None, Some(b"{")), (None, Some(&b))]);
        let d = decoder.decode(&batch);
        check(&d, &batch);
        assert_eq!((row(&d.rows, 0), row(&d.rows, 1)), (good_row(round), good_row(round + 1)));
    }
    let empty = batch(&[]);
    assert_eq!(decoder.decode(&empty).rows.num_rows(), 0);
}

proptest! {
    #[test]
    fn one_changed_byte_never_harms_a_neighbour(at in 0_usize..100, byte: u8) {
        let f = orders();
        let mut middle = good(5);
        let at = at % middle.len();
        middle[at] = byte;
        let (first, last) = (good(1), good(9));
        let b = batch(&[(None, Some(&first)), (None, Some(&middle)), (None, Some(&last))]);
        let d = decode(&f, &b);
        prop_assert_eq!(row(&d.rows, 0), good_row(1));
        prop_assert_eq!(row(&d.rows, d.rows.num_rows() - 1), good_row(9));
        // What serde_json refuses must be bad here too.
        if serde_json::from_slice::<serde_json::Value>(&middle).is_err() {
            prop_assert_eq!(d.bad.len(), 1);
        }
    }

    #[test]
    fn keys_of_any_bytes_are_counted(key in proptest::collection::vec(any::<u8>(), 0..20), mode in 0..4) {
        let options = [vec![], vec![("key.format", "json")], vec![("key.format", "string")], vec![("key.format", "none")]];
        let schema = Arc::new(table("id varchar pk, v int"));
        let options = crate::support::options(&options[mode as usize]);
        let f = TableFormat::from_options(schema, &options).unwrap();
        decode(&f, &batch(&[(Some(&key), None), (Some(&key), Some(br#"{"id":"a","v":1}"#)), (Some(&key), Some(b"{}"))]));
    }
}
