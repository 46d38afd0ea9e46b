//! The records inside a batch: a look at each as it is decompressed (timestamps, key checks), or borrowed views of uncompressed bytes (compaction). Produce
//! and fetch never come here. Owns: decompression with a limit. Not here: the batch header (`batch.rs`).

use std::io::{self, BufRead, BufReader, Read};

use bytes::Bytes;

use super::batch::{BatchHeader, HEADER_BYTES};

/// A batch may grow to this much; more is refused instead of eating memory.
const UNCOMPRESSED_LIMIT: u64 = 256 << 20;
const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];

/// One record. `raw` is the record with its length, so that compaction can copy it as it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordView<'a> {
    pub(crate) raw: &'a [u8],
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
    if header.compression() == 0 {
        return Ok(body);
    }
    let mut out = Vec::new();
    let mut reader = plain(header, &body)?;
    reader.read_to_end(&mut out)?;
    check_limit(&reader)?;
    Ok(out.into())
}

/// The record bytes of a batch as they are decompressed: memory is needed for a window or a block, not for all of them.
fn plain<'a>(header: &BatchHeader, body: &'a [u8]) -> io::Result<io::Take<Box<dyn BufRead + 'a>>> {
    let reader: Box<dyn BufRead + 'a> = match header.compression() {
        0 => Box::new(body),
        1 => Box::new(BufReader::new(flate2::read::MultiGzDecoder::new(body))),
        2 => Box::new(Snappy::new(body)?),
        3 => Box::new(BufReader::new(lz4::Decoder::new(body)?)),
        4 => Box::new(BufReader::new(zstd::Decoder::with_buffer(body)?)),
        _ => return Err(bad("unknown compression")),
    };
    Ok(reader.take(UNCOMPRESSED_LIMIT + 1))
}

fn check_limit(reader: &io::Take<Box<dyn BufRead + '_>>) -> io::Result<()> {
    if reader.limit() == 0 { Err(bad("the batch is too large uncompressed")) } else { Ok(()) }
}

/// What of a record can be seen in passing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Glimpse {
    pub(crate) timestamp_delta: i64,
    pub(crate) offset_delta: i32,
    pub(crate) has_key: bool,
}

/// The first record of a batch that `wanted` wants. What comes after it is not decompressed.
pub(crate) fn find(
    header: &BatchHeader,
    batch: &[u8],
    mut wanted: impl FnMut(Glimpse) -> bool,
) -> io::Result<Option<Glimpse>> {
    let mut reader = plain(header, batch.get(HEADER_BYTES..).unwrap_or_default())?;
    while !reader.fill_buf()?.is_empty() {
        let size = u64::try_from(read_varint(&mut reader)?).map_err(|_| bad("negative length"))?;
        let mut body = (&mut reader).take(size);
        body.read_exact(&mut [0])?;
        let timestamp_delta = read_varint(&mut body)?;
        let offset_delta = i32::try_from(read_varint(&mut body)?).map_err(|_| bad("offset is out of range"))?;
        let has_key = read_varint(&mut body)? >= 0;
        let glimpse = Glimpse { timestamp_delta, offset_delta, has_key };
        if wanted(glimpse) {
            return Ok(Some(glimpse));
        }
        while body.limit() > 0 {
            let n = body.fill_buf()?.len();
            if n == 0 {
                check_limit(&reader)?;
                return Err(bad("record is cut"));
            }
            body.consume(n);
        }
    }
    check_limit(&reader)?;
    Ok(None)
}

fn read_varint(reader: &mut impl Read) -> io::Result<i64> {
    let (mut bytes, mut n) = ([0; 10], 0);
    loop {
        let Some(place) = bytes.get_mut(n..=n) else { return Err(bad("number is too long")) };
        reader.read_exact(place)?;
        n += 1;
        if place[0] < 0x80 {
            return varint(&mut &bytes[..n]);
        }
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

/// Snappy comes as one raw block, or as the blocks of the Java client. One block at a time is uncompressed.
struct Snappy<'a> {
    rest: &'a [u8],
    /// `rest` is blocks with their lengths in front.
    framed: bool,
    block: Vec<u8>,
    at: usize,
}

/// Snappy's best: a copy of 64 bytes takes 3. More is a lie.
const SNAPPY_RATIO: usize = 32;

impl<'a> Snappy<'a> {
    fn new(body: &'a [u8]) -> io::Result<Self> {
        let framed = body.starts_with(&XERIAL_MAGIC);
        let rest = if framed { body.get(16..).ok_or_else(|| bad("snappy frame is cut"))? } else { body };
        Ok(Self { rest, framed, block: Vec::new(), at: 0 })
    }

    fn next_block(&mut self) -> io::Result<()> {
        let packed = if self.framed {
            let (length, tail) = self.rest.split_first_chunk::<4>().ok_or_else(|| bad("snappy block is cut"))?;
            let length = u32::from_be_bytes(*length) as usize;
            let (packed, tail) = tail.split_at_checked(length).ok_or_else(|| bad("snappy block is cut"))?;
            self.rest = tail;
            packed
        } else {
            std::mem::take(&mut self.rest)
        };
        let size = snap::raw::decompress_len(packed).map_err(io::Error::other)?;
        if size > packed.len().saturating_mul(SNAPPY_RATIO) {
            return Err(bad("snappy block has an impossible length"));
        }
        self.block.resize(size, 0);
        self.at = 0;
        snap::raw::Decoder::new().decompress(packed, &mut self.block).map(|_| ()).map_err(io::Error::other)
    }
}

impl BufRead for Snappy<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.at == self.block.len() && !self.rest.is_empty() {
            self.next_block()?;
        }
        Ok(&self.block[self.at..])
    }

    fn consume(&mut self, n: usize) {
        self.at += n;
    }
}

impl Read for Snappy<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.fill_buf()?.read(out)?;
        self.consume(n);
        Ok(n)
    }
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
    // The timestamp.
    varint(&mut body)?;
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
    Ok(RecordView { raw, offset_delta, key, has_value })
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

    /// A batch whose header claims this codec.
    fn packed(codec: i16, plain: &[u8]) -> (BatchHeader, Bytes) {
        let mut batch = sample(9, (-1, -1, -1), false, 5)[..HEADER_BYTES].to_vec();
        batch[22] = codec as u8;
        batch.extend_from_slice(&compressed(codec, plain).unwrap());
        (BatchHeader::parse(&batch).unwrap(), batch.into())
    }

    #[test]
    fn a_record_is_found_in_every_codec() {
        let b = sample(9, (-1, -1, -1), false, 5);
        for codec in 0..=4i16 {
            let (h, batch) = packed(codec, &b[HEADER_BYTES..]);
            let mut seen = Vec::new();
            let found = find(&h, &batch, |g| {
                seen.push(g.offset_delta);
                g.offset_delta == 7
            });
            assert_eq!(found.unwrap(), Some(Glimpse { timestamp_delta: 0, offset_delta: 7, has_key: true }));
            assert_eq!(seen, (0..=7).collect::<Vec<_>>(), "codec {codec}");
            assert_eq!(find(&h, &batch, |_| false).unwrap(), None);
        }
    }

    /// Of a small batch that is huge inside only what is asked for is decompressed, and never more than the limit.
    #[test]
    fn a_batch_that_explodes_is_read_only_as_far_as_needed() {
        let first = &sample(1, (-1, -1, -1), false, 5)[HEADER_BYTES..];
        for codec in [1i16, 3, 4] {
            let mut plain = first.to_vec();
            // The length of a record of 300 MiB: attributes, deltas, key of length -1, then nothing but zeros.
            let size = 300u64 << 20;
            let mut zigzag = size << 1;
            while zigzag >= 0x80 {
                plain.push((zigzag & 0x7f) as u8 | 0x80);
                zigzag >>= 7;
            }
            plain.push(zigzag as u8);
            plain.extend_from_slice(&[0, 0, 2, 1]);
            plain.resize(plain.len() + size as usize - 4, 0);
            let (h, batch) = packed(codec, &plain);
            drop(plain);
            assert!(batch.len() < 3 << 20, "codec {codec}: {} bytes", batch.len());
            assert_eq!(find(&h, &batch, |_| true).unwrap().unwrap().offset_delta, 0);
            assert_eq!(find(&h, &batch, |g| !g.has_key).unwrap().unwrap().offset_delta, 1);
            let error = find(&h, &batch, |_| false).unwrap_err();
            assert_eq!(error.to_string(), "the batch is too large uncompressed", "codec {codec}");
        }
    }

    #[test]
    fn nonsense_is_an_error_and_no_panic() {
        for codec in 0..=4u8 {
            let mut batch = sample(1, (-1, -1, -1), false, 5)[..HEADER_BYTES].to_vec();
            batch[22] = codec;
            batch.extend_from_slice(&[0xff; 40]);
            let h = BatchHeader::parse(&batch).unwrap();
            let batch = Bytes::from(batch);
            let outcome = uncompressed(&h, &batch).map(|b| records(&b).all(|r| r.is_ok()));
            assert!(!matches!(outcome, Ok(true)), "codec {codec}");
            assert!(find(&h, &batch, |_| false).is_err(), "codec {codec}");
        }
    }
}
