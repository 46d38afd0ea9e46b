//! Produce versions 0 to 2 are advertised but not served: the answer says so for every partition. The codecs do not know these versions any more.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::ResponseError;

use super::reply::Part;

/// Response header and body; `None` if the request is cut, or wants no answer (`acks=0`).
pub(crate) fn refuse(mut body: Bytes, correlation: i32, version: i16) -> Option<Vec<Part>> {
    let acks = body.try_get_i16().ok()?;
    body.try_get_i32().ok()?;
    let mut out = BytesMut::new();
    out.put_i32(correlation);
    let topics = body.try_get_i32().ok()?;
    out.put_i32(topics);
    for _ in 0..topics {
        let length = usize::try_from(body.try_get_i16().ok()?).ok()?;
        if body.remaining() < length {
            return None;
        }
        out.put_i16(length as i16);
        out.put_slice(&body.split_to(length));
        let partitions = body.try_get_i32().ok()?;
        out.put_i32(partitions);
        for _ in 0..partitions {
            out.put_i32(body.try_get_i32().ok()?);
            let size = body.try_get_i32().ok()?;
            let size = usize::try_from(size).unwrap_or(0);
            if body.remaining() < size {
                return None;
            }
            body.advance(size);
            out.put_i16(ResponseError::UnsupportedVersion.code());
            out.put_i64(-1);
            if version >= 2 {
                out.put_i64(-1);
            }
        }
    }
    if version >= 1 {
        out.put_i32(0);
    }
    (acks != 0).then(|| vec![Part::Bytes(out.freeze())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_partition_is_refused() {
        let mut request = BytesMut::new();
        request.put_i16(1);
        request.put_i32(1000);
        request.put_i32(1);
        request.put_i16(1);
        request.put_slice(b"t");
        request.put_i32(1);
        request.put_i32(7);
        request.put_i32(2);
        request.put_slice(b"xx");
        let request = request.freeze();
        assert!(refuse(request.clone(), 1, 0).is_some());
        for cut in 0..request.len() {
            assert!(refuse(request.slice(..cut), 1, 2).is_none(), "{cut}");
        }
    }
}
