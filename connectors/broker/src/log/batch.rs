//! The record batch (magic 2) as bytes: header fields, checks on arrival, control batches. Not here: the records inside (`records.rs`).

use bytes::{BufMut, Bytes, BytesMut};

/// Bytes before the first record.
pub(crate) const HEADER_BYTES: usize = 61;
/// Base offset and batch length: what is needed to find the next batch.
pub(crate) const FRAME_BYTES: usize = 12;
/// The checksum covers everything from here on; base offset and leader epoch lie before it.
const CRC_START: usize = 21;
const COMPRESSION_MASK: i16 = 0x07;
const LOG_APPEND_TIME: i16 = 0x08;
const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;
pub(crate) const NO_PRODUCER: i64 = -1;

/// Why bytes are no good batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadBatch {
    /// Fewer bytes than the header or the length field says.
    Short,
    Magic(i8),
    Length(i32),
    Checksum,
    /// Number of records and offsets do not agree, or are none.
    Count,
    Attributes(i16),
    /// A producer with an id counts its records.
    Sequence(i32),
}

impl std::fmt::Display for BadBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Short => write!(f, "the batch is cut short"),
            Self::Magic(m) => write!(f, "message format {m} is not supported"),
            Self::Length(n) => write!(f, "the batch length {n} is impossible"),
            Self::Checksum => write!(f, "the checksum does not match"),
            Self::Count => write!(f, "record count and offsets do not agree"),
            Self::Sequence(n) => write!(f, "a producer with an id has the sequence {n}"),
            Self::Attributes(a) => write!(f, "batch attributes {a:#x} are not allowed"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub(crate) base_offset: i64,
    /// Bytes after the length field.
    pub(crate) length: i32,
    pub(crate) leader_epoch: i32,
    pub(crate) crc: u32,
    pub(crate) attributes: i16,
    pub(crate) last_offset_delta: i32,
    pub(crate) base_timestamp: i64,
    pub(crate) max_timestamp: i64,
    pub(crate) producer_id: i64,
    pub(crate) producer_epoch: i16,
    pub(crate) base_sequence: i32,
    pub(crate) count: i32,
}

fn i16_at(b: &[u8], at: usize) -> i16 {
    i16::from_be_bytes([b[at], b[at + 1]])
}

fn i32_at(b: &[u8], at: usize) -> i32 {
    i32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

fn i64_at(b: &[u8], at: usize) -> i64 {
    (i64::from(i32_at(b, at)) << 32) | i64::from(i32_at(b, at + 4) as u32)
}

impl BatchHeader {
    /// Reads the header from the front of `b`; looks at no other byte.
    pub(crate) fn parse(b: &[u8]) -> Result<Self, BadBatch> {
        if b.len() < HEADER_BYTES {
            return Err(BadBatch::Short);
        }
        let magic = b[16] as i8;
        if magic != 2 {
            return Err(BadBatch::Magic(magic));
        }
        let header = Self {
            base_offset: i64_at(b, 0),
            length: i32_at(b, 8),
            leader_epoch: i32_at(b, 12),
            crc: i32_at(b, 17) as u32,
            attributes: i16_at(b, 21),
            last_offset_delta: i32_at(b, 23),
            base_timestamp: i64_at(b, 27),
            max_timestamp: i64_at(b, 35),
            producer_id: i64_at(b, 43),
            producer_epoch: i16_at(b, 51),
            base_sequence: i32_at(b, 53),
            count: i32_at(b, 57),
        };
        if header.length < (HEADER_BYTES - FRAME_BYTES) as i32 {
            return Err(BadBatch::Length(header.length));
        }
        if header.last_offset_delta < 0 || header.count < 0 {
            return Err(BadBatch::Count);
        }
        Ok(header)
    }

    /// The whole batch, frame included.
    pub(crate) fn size(&self) -> usize {
        FRAME_BYTES + self.length as usize
    }

    pub(crate) fn last_offset(&self) -> i64 {
        self.base_offset + i64::from(self.last_offset_delta)
    }

    /// Sequence of the last record; sequences go from `i32::MAX` to 0.
    pub(crate) fn last_sequence(&self) -> i32 {
        add_sequence(self.base_sequence, self.last_offset_delta)
    }

    pub(crate) fn compression(&self) -> i16 {
        self.attributes & COMPRESSION_MASK
    }

    pub(crate) fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL != 0
    }

    pub(crate) fn is_control(&self) -> bool {
        self.attributes & CONTROL != 0
    }

    pub(crate) fn log_append_time(&self) -> bool {
        self.attributes & LOG_APPEND_TIME != 0
    }
}

/// `sequence + n` in the circle of non-negative i32.
pub(crate) fn add_sequence(sequence: i32, n: i32) -> i32 {
    ((i64::from(sequence) + i64::from(n)) & 0x7fff_ffff) as i32
}

/// Header of a stored batch whose bytes are all there and whose checksum matches.
pub(crate) fn check_stored(b: &[u8]) -> Result<BatchHeader, BadBatch> {
    let header = BatchHeader::parse(b)?;
    let body = b.get(CRC_START..header.size()).ok_or(BadBatch::Short)?;
    if crc32c::crc32c(body) != header.crc {
        return Err(BadBatch::Checksum);
    }
    Ok(header)
}

/// Header of what a producer sent: exactly one batch, whole, with records, no control batch.
pub(crate) fn check_arrival(b: &[u8]) -> Result<BatchHeader, BadBatch> {
    let header = check_stored(b)?;
    if header.size() != b.len() {
        return Err(BadBatch::Length(header.length));
    }
    if header.count < 1 || header.last_offset_delta != header.count - 1 {
        return Err(BadBatch::Count);
    }
    let transactional_without_producer = header.is_transactional() && header.producer_id < 0;
    if header.is_control() || header.compression() > 4 || transactional_without_producer {
        return Err(BadBatch::Attributes(header.attributes));
    }
    if header.producer_id >= 0 && header.base_sequence < 0 {
        return Err(BadBatch::Sequence(header.base_sequence));
    }
    Ok(header)
}

/// Whether the bytes say that they belong to a transaction; they need not be a batch.
pub(crate) fn says_transactional(b: &[u8]) -> bool {
    b.len() > 22 && i16_at(b, 21) & TRANSACTIONAL != 0
}

/// The first 16 bytes as stored: base offset and leader epoch filled in, both outside the checksum.
pub(crate) fn stored_prefix(header: &BatchHeader, base_offset: i64, leader_epoch: i32) -> [u8; 16] {
    let mut prefix = [0; 16];
    prefix[..8].copy_from_slice(&base_offset.to_be_bytes());
    prefix[8..12].copy_from_slice(&header.length.to_be_bytes());
    prefix[12..].copy_from_slice(&leader_epoch.to_be_bytes());
    prefix
}

/// A copy with the broker's time (`message.timestamp.type=LogAppendTime`) and a new checksum.
pub(crate) fn with_append_time(b: &[u8], now_ms: i64) -> Bytes {
    let mut copy = BytesMut::from(b);
    let attributes = i16_at(b, 21) | LOG_APPEND_TIME;
    copy[21..23].copy_from_slice(&attributes.to_be_bytes());
    copy[35..43].copy_from_slice(&now_ms.to_be_bytes());
    seal(&mut copy);
    copy.freeze()
}

fn seal(batch: &mut [u8]) {
    let crc = crc32c::crc32c(&batch[CRC_START..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}

/// Fields of a batch that the broker itself writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewBatch {
    pub(crate) base_offset: i64,
    pub(crate) leader_epoch: i32,
    pub(crate) attributes: i16,
    pub(crate) last_offset_delta: i32,
    pub(crate) base_timestamp: i64,
    pub(crate) max_timestamp: i64,
    pub(crate) producer_id: i64,
    pub(crate) producer_epoch: i16,
    pub(crate) base_sequence: i32,
    pub(crate) count: i32,
}

/// A batch of records that are already encoded (and compressed, as the attributes say).
pub(crate) fn build(new: &NewBatch, records: &[u8]) -> Bytes {
    let mut b = BytesMut::with_capacity(HEADER_BYTES + records.len());
    b.put_i64(new.base_offset);
    b.put_i32((HEADER_BYTES - FRAME_BYTES + records.len()) as i32);
    b.put_i32(new.leader_epoch);
    b.put_u8(2);
    b.put_u32(0);
    b.put_i16(new.attributes);
    b.put_i32(new.last_offset_delta);
    b.put_i64(new.base_timestamp);
    b.put_i64(new.max_timestamp);
    b.put_i64(new.producer_id);
    b.put_i16(new.producer_epoch);
    b.put_i32(new.base_sequence);
    b.put_i32(new.count);
    b.extend_from_slice(records);
    seal(&mut b);
    b.freeze()
}

/// How a transaction ended, as its control record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Marker {
    Abort,
    Commit,
}

/// The control batch that ends a transaction. Offset and leader epoch are filled in at the append.
pub(crate) fn control_batch(marker: Marker, producer_id: i64, producer_epoch: i16, now_ms: i64) -> Bytes {
    let kind: u8 = if marker == Marker::Commit { 1 } else { 0 };
    // Length 16 (zigzag 32), attributes, timestamp delta, offset delta, key (4 bytes: version 0, type), value (6 bytes: version 0,
    // coordinator epoch 0), no headers.
    let record = [32, 0, 0, 0, 8, 0, 0, 0, kind, 12, 0, 0, 0, 0, 0, 0, 0];
    let new = NewBatch {
        base_offset: 0,
        leader_epoch: 0,
        attributes: TRANSACTIONAL | CONTROL,
        last_offset_delta: 0,
        base_timestamp: now_ms,
        max_timestamp: now_ms,
        producer_id,
        producer_epoch,
        base_sequence: -1,
        count: 1,
    };
    build(&new, &record)
}

/// What a stored control batch says; `None` for control records of other kinds.
pub(crate) fn marker_of(b: &[u8]) -> Option<Marker> {
    match b.get(HEADER_BYTES..HEADER_BYTES + 9)? {
        [_, _, _, _, 8, 0, 0, 0, 0] => Some(Marker::Abort),
        [_, _, _, _, 8, 0, 0, 0, 1] => Some(Marker::Commit),
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// `n` small records `k0=v0 ..` without compression.
    pub(crate) fn sample(n: i32, producer: (i64, i16, i32), transactional: bool, timestamp: i64) -> Bytes {
        let mut records = Vec::new();
        for i in 0..n {
            // length, attributes, timestamp delta, offset delta, key, value, headers
            records.extend_from_slice(&[20, 0, 0, (i * 2) as u8, 4, b'k', b'0' + (i % 10) as u8, 4, b'v', b'0', 0]);
        }
        let new = NewBatch {
            base_offset: 0,
            leader_epoch: -1,
            attributes: if transactional { TRANSACTIONAL } else { 0 },
            last_offset_delta: n - 1,
            base_timestamp: timestamp,
            max_timestamp: timestamp,
            producer_id: producer.0,
            producer_epoch: producer.1,
            base_sequence: producer.2,
            count: n,
        };
        build(&new, &records)
    }

    #[test]
    fn a_batch_survives_the_round_trip() {
        let b = sample(3, (7, 1, 42), true, 99);
        let h = check_arrival(&b).unwrap();
        assert_eq!((h.count, h.last_offset_delta, h.producer_id, h.producer_epoch, h.base_sequence), (3, 2, 7, 1, 42));
        assert!(h.is_transactional() && !h.is_control());
        assert_eq!((h.max_timestamp, h.size()), (99, b.len()));
    }

    #[test]
    fn damage_is_noticed() {
        let b = sample(3, (7, 1, 42), false, 99);
        assert_eq!(check_arrival(&b[..b.len() - 1]), Err(BadBatch::Short));
        for at in CRC_START..b.len() {
            let mut bad = b.to_vec();
            bad[at] ^= 1;
            assert!(check_arrival(&bad).is_err(), "byte {at}");
        }
        let mut two = b.to_vec();
        two.extend_from_slice(&b);
        assert!(check_arrival(&two).is_err());
    }

    #[test]
    fn a_producer_with_an_id_counts() {
        assert_eq!(check_arrival(&sample(3, (7, 1, -1), false, 99)), Err(BadBatch::Sequence(-1)));
        assert!(check_arrival(&sample(3, (-1, -1, -1), false, 99)).is_ok());
        assert!(
            says_transactional(&sample(1, (7, 1, 0), true, 0)) && !says_transactional(&sample(1, (7, 1, 0), false, 0))
        );
        assert!(!says_transactional(&[0xff; 22]));
    }

    #[test]
    fn the_prefix_is_outside_the_checksum() {
        let b = sample(2, (-1, -1, -1), false, 5);
        let h = check_arrival(&b).unwrap();
        let mut stored = stored_prefix(&h, 1000, 3).to_vec();
        stored.extend_from_slice(&b[16..]);
        let h = check_stored(&stored).unwrap();
        assert_eq!((h.base_offset, h.leader_epoch, h.last_offset()), (1000, 3, 1001));
    }

    #[test]
    fn markers_are_read_back() {
        for marker in [Marker::Abort, Marker::Commit] {
            let b = control_batch(marker, 5, 2, 77);
            let h = check_stored(&b).unwrap();
            assert!(h.is_control() && h.is_transactional());
            assert_eq!(marker_of(&b), Some(marker));
        }
    }

    #[test]
    fn append_time_replaces_the_timestamp() {
        let b = with_append_time(&sample(2, (-1, -1, -1), false, 5), 1234);
        let h = check_arrival(&b).unwrap();
        assert!(h.log_append_time());
        assert_eq!(h.max_timestamp, 1234);
    }

    #[test]
    fn sequences_wrap() {
        assert_eq!(add_sequence(i32::MAX, 1), 0);
        assert_eq!(add_sequence(i32::MAX - 1, 3), 1);
    }
}
