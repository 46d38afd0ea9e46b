//! An answer on its way to a socket: bytes, and ranges of segment files that go from the page cache to the socket without passing through this process.

use std::{io, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::{
    messages::ResponseHeader,
    protocol::{Encodable, HeaderVersion},
};
use tokio::{io::AsyncWriteExt, net::tcp::OwnedWriteHalf};

use crate::log::Slice;

#[derive(Debug)]
pub(crate) enum Part {
    Bytes(Bytes),
    File(Slice),
}

impl Part {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(b) => b.len() as u64,
            Self::File(s) => s.length,
        }
    }
}

/// A whole answer with its length in front.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    parts: Vec<Part>,
}

/// An answer cannot be encoded: a bug here, or a field that the asked version cannot carry.
#[derive(Debug, thiserror::Error)]
#[error("an answer cannot be encoded: {0}")]
pub(crate) struct EncodeError(String);

impl Reply {
    /// Encodes a message that `kafka-protocol` knows.
    pub(crate) fn of<M: Encodable + HeaderVersion>(
        correlation: i32,
        version: i16,
        message: &M,
    ) -> Result<Self, EncodeError> {
        Self::with_header(correlation, M::header_version(version), version, message)
    }

    pub(crate) fn with_header<M: Encodable>(
        correlation: i32,
        header_version: i16,
        version: i16,
        message: &M,
    ) -> Result<Self, EncodeError> {
        macro_rules! fault {
            () => {
                |e| EncodeError(format!("{e:#}"))
            };
        }
        let mut out = BytesMut::with_capacity(256);
        out.put_i32(0);
        ResponseHeader::default()
            .with_correlation_id(correlation)
            .encode(&mut out, header_version)
            .map_err(fault!())?;
        message.encode(&mut out, version).map_err(fault!())?;
        let length = (out.len() - 4) as i32;
        out[..4].copy_from_slice(&length.to_be_bytes());
        Ok(Self { parts: vec![Part::Bytes(out.freeze())] })
    }

    /// Parts of a body that starts with its response header; the length is put in front.
    pub(crate) fn of_parts(mut parts: Vec<Part>) -> Self {
        let length: u64 = parts.iter().map(Part::len).sum();
        parts.insert(0, Part::Bytes(Bytes::copy_from_slice(&(length as i32).to_be_bytes())));
        Self { parts }
    }

    #[cfg(test)]
    pub(crate) fn size(&self) -> u64 {
        self.parts.iter().map(Part::len).sum()
    }

    /// Sends everything; `patience` is how long the client may take nothing. After an error the connection is of no use.
    pub(crate) async fn send(self, to: &mut OwnedWriteHalf, patience: Duration) -> io::Result<()> {
        let mut pending = BytesMut::new();
        for part in self.parts {
            match part {
                // Small pieces go out together, so that a record range follows its header in one packet.
                Part::Bytes(b) if pending.is_empty() && b.len() > 4096 => send_bytes(&b, to, patience).await?,
                Part::Bytes(b) => pending.extend_from_slice(&b),
                Part::File(slice) => {
                    send_bytes(&pending, to, patience).await?;
                    pending.clear();
                    send_file(&slice, to, patience).await?;
                }
            }
        }
        send_bytes(&pending, to, patience).await
    }
}

async fn progress<T>(patience: Duration, step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(patience, step).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn send_bytes(mut bytes: &[u8], to: &mut OwnedWriteHalf, patience: Duration) -> io::Result<()> {
    while !bytes.is_empty() {
        match progress(patience, to.write(bytes)).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => bytes = &bytes[n..],
        }
    }
    Ok(())
}

#[cfg(target_os = "linux")]
async fn send_file(slice: &Slice, to: &OwnedWriteHalf, patience: Duration) -> io::Result<()> {
    use tokio::io::Interest;

    let socket: &tokio::net::TcpStream = to.as_ref();
    let (mut position, end) = (slice.position, slice.position + slice.length);
    while position < end {
        let length = (end - position).min(1 << 20) as usize;
        let step = socket.async_io(Interest::WRITABLE, || {
            rustix::fs::sendfile(socket, &slice.file, Some(&mut position), length).map_err(io::Error::from)
        });
        if progress(patience, step).await? == 0 {
            // Truncated meanwhile (only a fault does that): the answer cannot be completed.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
async fn send_file(slice: &Slice, to: &mut OwnedWriteHalf, patience: Duration) -> io::Result<()> {
    use std::os::unix::fs::FileExt;

    let (mut position, end) = (slice.position, slice.position + slice.length);
    let mut buffer = vec![0; (end - position).min(256 << 10) as usize];
    while position < end {
        let n = ((end - position) as usize).min(buffer.len());
        slice.file.read_exact_at(&mut buffer[..n], position)?;
        send_bytes(&buffer[..n], to, patience).await?;
        position += n as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{io::Write, sync::Arc, time::Instant};

    use tokio::{
        io::AsyncReadExt,
        net::{TcpListener, TcpStream},
    };

    use super::*;

    const PATIENCE: Duration = Duration::from_millis(300);

    /// 16 MiB from memory and 16 MiB from a file.
    fn large() -> Reply {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; 16 << 20]).unwrap();
        let slice = Slice { file: Arc::new(file), position: 0, length: 16 << 20 };
        Reply { parts: vec![Part::Bytes(vec![7; 16 << 20].into()), Part::File(slice)] }
    }

    async fn pair() -> (OwnedWriteHalf, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (listener.accept().await.unwrap().0.into_split().1, client)
    }

    #[tokio::test]
    async fn a_slow_client_gets_a_whole_answer() {
        let (mut to, mut client) = pair().await;
        let slow = async {
            let (mut buffer, mut got) = (vec![0; 1 << 20], 0);
            while got < 32 << 20 {
                tokio::time::sleep(PATIENCE / 20).await;
                got += client.read(&mut buffer).await.unwrap();
            }
        };
        let began = Instant::now();
        let (sent, ()) = tokio::join!(large().send(&mut to, PATIENCE), slow);
        sent.unwrap();
        assert!(began.elapsed() > PATIENCE, "too fast to show anything");
    }

    #[tokio::test]
    async fn a_client_that_takes_nothing_is_given_up() {
        let (mut to, _client) = pair().await;
        let error = large().send(&mut to, PATIENCE).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
