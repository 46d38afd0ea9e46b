//! A record as a line of text.

use base64::Engine;
use bytes::Bytes;
use chrono::{DateTime, SecondsFormat};
use millstream_types::RawBatch;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{cli::topic::RecordOutput, command::escape};

/// Appends record `i` of the batch with its line end. On a terminal a bare value is escaped, too.
pub(crate) fn write(out: &mut Vec<u8>, batch: &RawBatch, i: usize, output: RecordOutput, terminal: bool) {
    match output {
        RecordOutput::Text => text(out, batch, i),
        RecordOutput::Json => {
            let json = serde_json::to_string(&json_of(batch, i)).expect("texts and numbers can be written");
            out.extend_from_slice(escape::json(&json).as_bytes());
        }
        RecordOutput::Value => match batch.values.get(i) {
            Some(value) if terminal => out.extend_from_slice(escape::bytes_of_lines(value).as_bytes()),
            Some(value) => out.extend_from_slice(value),
            None => return,
        },
    }
    out.push(b'\n');
}

fn headers(batch: &RawBatch, i: usize) -> &[(String, Option<Bytes>)] {
    batch.headers.get(i).map_or(&[], Vec::as_slice)
}

fn time(timestamp_ms: i64) -> Option<String> {
    let time = DateTime::from_timestamp_millis(timestamp_ms).filter(|_| timestamp_ms >= 0)?;
    Some(time.to_rfc3339_opts(SecondsFormat::Millis, true))
}

fn text(out: &mut Vec<u8>, batch: &RawBatch, i: usize) {
    let time = time(batch.timestamps[i]).unwrap_or_else(|| "-".to_owned());
    out.extend_from_slice(format!("{}\t{}\t{time}\t", batch.partition.partition, batch.offsets[i]).as_bytes());
    out.extend_from_slice(shown(batch.keys.get(i)).as_bytes());
    out.push(b'\t');
    out.extend_from_slice(shown(batch.values.get(i)).as_bytes());
    for (n, (name, value)) in headers(batch, i).iter().enumerate() {
        out.push(if n == 0 { b'\t' } else { b',' });
        out.extend_from_slice(format!("{}={}", escape::line(name), shown(value.as_deref())).as_bytes());
    }
}

/// One line on a terminal: control characters and bytes that are no text are escaped.
fn shown(bytes: Option<&[u8]>) -> String {
    bytes.map_or_else(|| "(null)".to_owned(), escape::bytes)
}

/// In this order.
#[derive(Serialize)]
struct JsonRecord<'a> {
    topic: &'a str,
    partition: i32,
    offset: i64,
    timestamp: Option<i64>,
    key: Value,
    value: Value,
    headers: Vec<(&'a str, Value)>,
}

fn json_of(batch: &RawBatch, i: usize) -> JsonRecord<'_> {
    JsonRecord {
        topic: &batch.partition.topic,
        partition: batch.partition.partition,
        offset: batch.offsets[i],
        timestamp: (batch.timestamps[i] >= 0).then_some(batch.timestamps[i]),
        key: exact(batch.keys.get(i)),
        value: exact(batch.values.get(i)),
        headers: headers(batch, i).iter().map(|(n, v)| (n.as_str(), exact(v.as_deref()))).collect(),
    }
}

/// Nothing is lost: text as it is, other bytes as `{"base64": ".."}`.
fn exact(bytes: Option<&[u8]>) -> Value {
    match bytes.map(|b| (b, std::str::from_utf8(b))) {
        None => Value::Null,
        Some((_, Ok(text))) => json!(text),
        Some((bytes, Err(_))) => json!({ "base64": base64::engine::general_purpose::STANDARD.encode(bytes) }),
    }
}

#[cfg(test)]
mod tests {
    use millstream_types::{Offset, TopicPartition};

    use super::*;

    fn batch() -> RawBatch {
        let mut b = RawBatch::new(TopicPartition::new("t", 3), Offset(9));
        b.offsets = vec![7, 8];
        b.timestamps = vec![1500, -1];
        b.keys.push(Some(b"k\n"));
        b.keys.push(None);
        b.values.push(Some(b"a\xff"));
        b.values.push(None);
        b.headers = vec![vec![("h".to_owned(), Some(Bytes::from_static(b"x"))), ("n".to_owned(), None)], vec![]];
        b
    }

    fn all(output: RecordOutput) -> String {
        let (b, mut out) = (batch(), Vec::new());
        (0..2).for_each(|i| write(&mut out, &b, i, output, false));
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn text_shows_nulls_and_bytes_in_one_line_each() {
        let expected = "3\t7\t1970-01-01T00:00:01.500Z\tk\\n\ta\\xff\th=x,n=(null)\n3\t8\t-\t(null)\t(null)\n";
        assert_eq!(all(RecordOutput::Text), expected);
    }

    #[test]
    fn json_loses_nothing() {
        let text = all(RecordOutput::Json);
        let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(lines[0]["value"], json!({"base64": "Yf8="}));
        assert_eq!(lines[0]["headers"], json!([["h", "x"], ["n", null]]));
        assert_eq!((&lines[1]["key"], &lines[1]["timestamp"]), (&Value::Null, &Value::Null));
        assert_eq!(lines[0]["offset"], 7);
    }

    #[test]
    fn values_alone_leave_tombstones_out_and_are_exact_except_on_a_terminal() {
        assert_eq!(all(RecordOutput::Value).lines().count(), 1);
        let value = |terminal| {
            let mut b = RawBatch::new(TopicPartition::new("t", 0), Offset(0));
            b.values.push(Some(b"a\n\x1b[2J"));
            let mut out = Vec::new();
            write(&mut out, &b, 0, RecordOutput::Value, terminal);
            String::from_utf8(out).unwrap()
        };
        assert_eq!((value(false).as_str(), value(true).as_str()), ("a\n\x1b[2J\n", "a\n\\u{1b}[2J\n"));
    }
}
