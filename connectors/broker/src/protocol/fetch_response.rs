//! The fetch answer, written by hand: records are ranges of files and must not pass through memory, which a codec that owns its records cannot do. A test
//! compares every version with `kafka-protocol`.

use bytes::{BufMut, Bytes, BytesMut};
use uuid::Uuid;

use super::reply::Part;
use crate::log::Slice;

#[derive(Debug, Default)]
pub(crate) struct FetchedPartition {
    pub(crate) index: i32,
    pub(crate) error: i16,
    pub(crate) high_watermark: i64,
    pub(crate) stable: i64,
    pub(crate) start: i64,
    /// `None` for `read_uncommitted`.
    pub(crate) aborted: Option<Vec<(i64, i64)>>,
    pub(crate) records: Option<Slice>,
}

impl FetchedPartition {
    pub(crate) fn error(index: i32, error: i16) -> Self {
        Self { index, error, high_watermark: -1, stable: -1, start: -1, ..Self::default() }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.records.as_ref().map_or(0, |r| r.length)
    }
}

#[derive(Debug)]
pub(crate) struct FetchedTopic {
    pub(crate) name: Bytes,
    pub(crate) id: Uuid,
    pub(crate) partitions: Vec<FetchedPartition>,
}

#[derive(Debug, Default)]
pub(crate) struct Fetched {
    pub(crate) error: i16,
    pub(crate) topics: Vec<FetchedTopic>,
}

struct Out {
    parts: Vec<Part>,
    buffer: BytesMut,
    flexible: bool,
}

impl Out {
    fn varint(&mut self, mut n: u32) {
        while n >= 0x80 {
            self.buffer.put_u8(n as u8 | 0x80);
            n >>= 7;
        }
        self.buffer.put_u8(n as u8);
    }

    fn count(&mut self, n: usize) {
        if self.flexible { self.varint(n as u32 + 1) } else { self.buffer.put_i32(n as i32) }
    }

    fn no_tags(&mut self) {
        if self.flexible {
            self.buffer.put_u8(0);
        }
    }

    fn flush(&mut self) {
        if !self.buffer.is_empty() {
            self.parts.push(Part::Bytes(self.buffer.split().freeze()));
        }
    }
}

/// Response header and body, for versions 4 to 16.
pub(crate) fn encode(fetched: Fetched, correlation: i32, version: i16) -> Vec<Part> {
    let mut out = Out { parts: Vec::new(), buffer: BytesMut::with_capacity(256), flexible: version >= 12 };
    out.buffer.put_i32(correlation);
    out.no_tags();
    out.buffer.put_i32(0);
    if version >= 7 {
        out.buffer.put_i16(fetched.error);
        // No sessions: every fetch is a full one.
        out.buffer.put_i32(0);
    }
    out.count(fetched.topics.len());
    for topic in fetched.topics {
        if version >= 13 {
            out.buffer.put_slice(topic.id.as_bytes());
        } else if out.flexible {
            out.varint(topic.name.len() as u32 + 1);
            out.buffer.put_slice(&topic.name);
        } else {
            out.buffer.put_i16(topic.name.len() as i16);
            out.buffer.put_slice(&topic.name);
        }
        out.count(topic.partitions.len());
        for p in topic.partitions {
            partition(&mut out, p, version);
        }
        out.no_tags();
    }
    out.no_tags();
    out.flush();
    out.parts
}

fn partition(out: &mut Out, p: FetchedPartition, version: i16) {
    out.buffer.put_i32(p.index);
    out.buffer.put_i16(p.error);
    out.buffer.put_i64(p.high_watermark);
    out.buffer.put_i64(p.stable);
    if version >= 5 {
        out.buffer.put_i64(p.start);
    }
    match p.aborted {
        None if out.flexible => out.varint(0),
        None => out.buffer.put_i32(-1),
        Some(aborted) => {
            out.count(aborted.len());
            for (producer, first) in aborted {
                out.buffer.put_i64(producer);
                out.buffer.put_i64(first);
                out.no_tags();
            }
        }
    }
    if version >= 11 {
        out.buffer.put_i32(-1);
    }
    let length = p.records.as_ref().map_or(0, |r| r.length);
    out.count(length as usize);
    if let Some(slice) = p.records {
        out.flush();
        out.parts.push(Part::File(slice));
    }
    out.no_tags();
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::unix::fs::FileExt, sync::Arc};

    use kafka_protocol::{
        messages::{FetchResponse, fetch_response as kp},
        protocol::{Encodable, StrBytes},
    };

    use super::*;

    fn bytes(parts: Vec<Part>) -> Vec<u8> {
        let mut out = Vec::new();
        for p in parts {
            match p {
                Part::Bytes(b) => out.extend_from_slice(&b),
                Part::File(s) => {
                    let mut b = vec![0; s.length as usize];
                    s.file.read_exact_at(&mut b, s.position).unwrap();
                    out.extend_from_slice(&b);
                }
            }
        }
        out
    }

    #[test]
    fn every_version_is_what_the_codec_writes() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        let file = Arc::new(file);
        let id = Uuid::from_u128(77);
        for version in 4..=16 {
            let slice = Slice { file: Arc::clone(&file), position: 2, length: 5 };
            let ours = FetchedPartition {
                index: 3,
                error: 0,
                high_watermark: 9,
                stable: 8,
                start: 1,
                aborted: Some(vec![(5, 6)]),
                records: Some(slice),
            };
            let plain = FetchedPartition { aborted: None, records: None, ..FetchedPartition::error(4, 3) };
            let topics = vec![FetchedTopic { name: "abc".into(), id, partitions: vec![ours, plain] }];
            let ours = bytes(encode(Fetched { error: 0, topics }, 42, version));

            let mut theirs = bytes::BytesMut::new();
            kafka_protocol::messages::ResponseHeader::default()
                .with_correlation_id(42)
                .encode(&mut theirs, if version >= 12 { 1 } else { 0 })
                .unwrap();
            let aborted = kp::AbortedTransaction::default().with_producer_id(5.into()).with_first_offset(6);
            let start = |n| if version >= 5 { n } else { -1 };
            let data = kp::PartitionData::default()
                .with_partition_index(3)
                .with_high_watermark(9)
                .with_last_stable_offset(8)
                .with_log_start_offset(start(1))
                .with_aborted_transactions(Some(vec![aborted]))
                .with_records(Some("23456".into()));
            let plain = kp::PartitionData::default()
                .with_partition_index(4)
                .with_error_code(3)
                .with_high_watermark(-1)
                .with_last_stable_offset(-1)
                .with_log_start_offset(-1)
                .with_aborted_transactions(None)
                .with_records(Some(Bytes::new()));
            let mut topic = kp::FetchableTopicResponse::default().with_partitions(vec![data, plain]);
            if version >= 13 {
                topic.topic_id = id;
            } else {
                topic.topic = StrBytes::from_static_str("abc").into();
            }
            FetchResponse::default().with_responses(vec![topic]).encode(&mut theirs, version).unwrap();
            assert_eq!(ours, theirs, "version {version}");
        }
    }
}
