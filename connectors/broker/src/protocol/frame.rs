//! Frames of a connection: four bytes of length, then a request. What cannot be a Kafka request (TLS hello, HTTP, nonsense) is told apart by its first eight
//! bytes, and memory is reserved only as bytes arrive.

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages::ApiKey;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Only Produce may be this large.
const PRODUCE_LIMIT: usize = 100 << 20;
const OTHER_LIMIT: usize = 16 << 20;
/// Memory that a frame gets before its bytes are there.
const STEP: usize = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("the peer does not speak Kafka's protocol")]
    Foreign,
    #[error("a request of {0} bytes is too large")]
    TooLarge(usize),
    #[error("the connection failed")]
    Io(#[from] std::io::Error),
}

#[derive(Debug)]
pub(crate) struct Frames<R> {
    from: R,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    pub(crate) fn new(from: R) -> Self {
        Self { from, buffer: BytesMut::with_capacity(16 << 10) }
    }

    /// The next request without its length; `None` when the peer has closed.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, FrameError> {
        // Length, API key and version: the shortest thing to judge by.
        if !self.fill(8).await? {
            return if self.buffer.is_empty() { Ok(None) } else { Err(FrameError::Foreign) };
        }
        let (mut length, mut key) = (&self.buffer[..4], &self.buffer[4..6]);
        let (length, key) = (length.get_i32(), key.get_i16());
        // TLS records, HTTP methods and the like are huge lengths; a small one needs a key that exists.
        let length =
            usize::try_from(length).ok().filter(|n| (8..=PRODUCE_LIMIT).contains(n)).ok_or(FrameError::Foreign)?;
        let api = ApiKey::try_from(key).map_err(|_| FrameError::Foreign)?;
        if api != ApiKey::Produce && length > OTHER_LIMIT {
            return Err(FrameError::TooLarge(length));
        }
        if !self.fill(4 + length).await? {
            return Err(FrameError::Io(std::io::ErrorKind::UnexpectedEof.into()));
        }
        self.buffer.advance(4);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }

    /// Reads until so many bytes are there; `false` if the peer closes before.
    async fn fill(&mut self, wanted: usize) -> Result<bool, FrameError> {
        while self.buffer.len() < wanted {
            let missing = wanted - self.buffer.len();
            self.buffer.reserve(missing.clamp(4 << 10, STEP));
            if self.from.read_buf(&mut self.buffer).await? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn first(bytes: &[u8]) -> Result<Option<Bytes>, FrameError> {
        Frames::new(bytes).next().await
    }

    #[tokio::test]
    async fn foreign_protocols_are_told_apart() {
        let tls = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
        assert!(matches!(first(&tls).await, Err(FrameError::Foreign)));
        assert!(matches!(first(b"GET / HTTP/1.1\r\n\r\n").await, Err(FrameError::Foreign)));
        assert!(matches!(first(b"\0\0").await, Err(FrameError::Foreign)));
        assert!(matches!(first(b"").await, Ok(None)));
        assert!(matches!(first(&[0, 0, 0, 9, 0x7f, 0xff, 0, 0]).await, Err(FrameError::Foreign)));
    }

    #[tokio::test]
    async fn a_frame_comes_whole_or_not_at_all() {
        let frame = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff];
        assert_eq!(first(&frame).await.unwrap().unwrap().len(), 10);
        assert!(matches!(first(&frame[..12]).await, Err(FrameError::Io(_))));
        let huge = [3, 0, 0, 0, 0, 3, 0, 0];
        assert!(matches!(first(&huge).await, Err(FrameError::TooLarge(_))));
    }
}
