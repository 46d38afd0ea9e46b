//! The records inside a batch: borrowed views of bounded, uncompressed bytes. Needed only for timestamps, compaction and key checks; produce and fetch
//! never come here. Owns: decompression with a limit. Not here: the batch header (`batch.rs`).

use std::io::{self, Read};

use bytes::Bytes;

use super::batch::{BatchHeader, HEADER_BYTES};

/// A batch may grow to this much; more is refused instead of eating memory.
const UNCOMPRESSED_LIMIT: u64 = 256 << 20;
const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];

/// One record. `raw` is the record with its length, so that compaction can copy it as it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordView<'a> {
    pub(crate) raw: &'a [u8],
    pub(crate) timestamp_delta: i64,
    pub(crate) offset_delta: i32,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) has_value: bool,
}

fn bad(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The record bytes of a batch, uncompressed.
pub(crate) fn uncompressed(header: &BatchHeader, batch: &Bytes) -> io::Result<Bytes> {
    let body = batch.slice(HEADER_BYTES.min(batch.len())..);
    match header.compression() {
        0 => Ok(body),
        1 => limited(flate2::read::MultiGzDecoder::new(&body[..])),
        2 => unsnap(&body),
        3 => limited(lz4::Decoder::new(&body[..])?),
        4 => limited(zstd::Decoder::with_buffer(&body[..])?),
        _ => Err(bad("unknown compression")),
    }
}

/// The same codec again, for batches that compaction has made smaller.
pub(crate) fn compressed(compression: i16, records: &[u8]) -> io::Result<Vec<u8>> {
    use std::io::Write;
    match compression {
        0 => Ok(records.to_vec()),
        1 => {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            out.write_all(records)?;
            out.finish()
        }
        2 => {
            let block = snap::raw::Encoder::new().compress_vec(records).map_err(io::Error::other)?;
            let mut out = XERIAL_MAGIC.to_vec();
            out.extend_from_slice(&1i32.to_be_bytes());
            out.extend_from_slice(&1i32.to_be_bytes());
            out.extend_from_slice(&(block.len() as i32).to_be_bytes());
            out.extend_from_slice(&block);
            Ok(out)
        }
        3 => {
            // Clients know only independent blocks.
            let mut out = lz4::EncoderBuilder::new().block_mode(lz4::BlockMode::Independent).build(Vec::new())?;
            out.write_all(records)?;
            let (out, result) = out.finish();
            result.map(|()| out)
        }
        4 => zstd::encode_all(records, 0),
        _ => Err(bad("unknown compression")),
    }
}

fn limited(reader: impl Read) -> io::Result<Bytes> {
    let mut out = Vec::new();
    reader.take(UNCOMPRESSED_LIMIT + 1).read_to_end(&mut out)?;
    if out.len() as u64 > UNCOMPRESSED_LIMIT { Err(bad("the batch is too large uncompressed")) } else { Ok(out.into()) }
}

/// Snappy comes as one raw block, or as the blocks of the Java client.
fn unsnap(body: &[u8]) -> io::Result<Bytes> {
    let mut out = Vec::new();
    let mut block = |b: &[u8]| {
        let size = snap::raw::decompress_len(b).map_err(io::Error::other)?;
        if (out.len() + size) as u64 > UNCOMPRESSED_LIMIT {
            return Err(bad("the batch is too large uncompressed"));
        }
        let at = out.len();
        out.resize(at + size, 0);
        snap::raw::Decoder::new().decompress(b, &mut out[at..]).map(|_| ()).map_err(io::Error::other)
    };
    if !body.starts_with(&XERIAL_MAGIC) {
        block(body)?;
        return Ok(out.into());
    }
    let mut rest = body.get(16..).ok_or_else(|| bad("snappy frame is cut"))?;
    while let Some((length, tail)) = rest.split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        let (chunk, tail) = tail.split_at_checked(length).ok_or_else(|| bad("snappy block is cut"))?;
        block(chunk)?;
        rest = tail;
    }
    Ok(out.into())
}

/// Reads a zigzag varint of up to 64 bits from the front.
fn varint(b: &mut &[u8]) -> io::Result<i64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = b.split_first().ok_or_else(|| bad("record is cut"))?;
        *b = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(((value >> 1) as i64) ^ -((value & 1) as i64));
        }
    }
    Err(bad("number is too long"))
}

fn length(b: &mut &[u8]) -> io::Result<Option<usize>> {
    match varint(b)? {
        -1 => Ok(None),
        n => usize::try_from(n).map(Some).map_err(|_| bad("negative length")),
    }
}

/// Walks the records in uncompressed bytes. A bad record is an error and ends the walk.
pub(crate) fn records(bytes: &[u8]) -> impl Iterator<Item = io::Result<RecordView<'_>>> {
    let mut rest = bytes;
    let mut failed = false;
    std::iter::from_fn(move || {
        if rest.is_empty() || failed {
            return None;
        }
        let record = one(&mut rest);
        failed = record.is_err();
        Some(record)
    })
}

fn one<'a>(rest: &mut &'a [u8]) -> io::Result<RecordView<'a>> {
    let whole = *rest;
    let size = length(rest)?.ok_or_else(|| bad("negative length"))?;
    let (mut body, tail) = rest.split_at_checked(size).ok_or_else(|| bad("record is cut"))?;
    let raw = &whole[..whole.len() - tail.len()];
    *rest = tail;
    body = body.split_first().ok_or_else(|| bad("record is cut"))?.1;
    let timestamp_delta = varint(&mut body)?;
    let offset_delta = i32::try_from(varint(&mut body)?).map_err(|_| bad("offset is out of range"))?;
    let key = match length(&mut body)? {
        None => None,
        Some(n) => {
            let (key, tail) = body.split_at_checked(n).ok_or_else(|| bad("record is cut"))?;
            body = tail;
            Some(key)
        }
    };
    let has_value = length(&mut body)?.is_some();
    Ok(RecordView { raw, timestamp_delta, offset_delta, key, has_value })
}

#[cfg(test)]
mod tests {
    use super::{super::batch::tests::sample, *};

    #[test]
    fn records_are_seen_as_they_were_written() {
        let b = sample(3, (-1, -1, -1), false, 5);
        let h = BatchHeader::parse(&b).unwrap();
        let plain = uncompressed(&h, &b).unwrap();
        let seen: Vec<_> = records(&plain).map(|r| r.unwrap()).map(|r| (r.offset_delta, r.key.unwrap()[1])).collect();
        assert_eq!(seen, [(0, b'0'), (1, b'1'), (2, b'2')]);
    }

    #[test]
    fn every_codec_comes_back() {
        let b = sample(9, (-1, -1, -1), false, 5);
        let plain = &b[HEADER_BYTES..];
        for codec in 0..=4i16 {
            let packed = compressed(codec, plain).unwrap();
            let mut batch = b[..HEADER_BYTES].to_vec();
            batch[22] = codec as u8;
            batch.extend_from_slice(&packed);
            let h = BatchHeader::parse(&batch).unwrap();
            assert_eq!(&uncompressed(&h, &batch.into()).unwrap()[..], plain, "codec {codec}");
        }
    }

    #[test]
    fn nonsense_is_an_error_and_no_panic() {
        for codec in 0..=4u8 {
            let mut batch = sample(1, (-1, -1, -1), false, 5)[..HEADER_BYTES].to_vec();
            batch[22] = codec;
            batch.extend_from_slice(&[0xff; 40]);
            let h = BatchHeader::parse(&batch).unwrap();
            let outcome = uncompressed(&h, &batch.into()).map(|b| records(&b).all(|r| r.is_ok()));
            assert!(!matches!(outcome, Ok(true)), "codec {codec}");
        }
    }
}
