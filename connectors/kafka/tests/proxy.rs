//! A proxy before a broker that can lose the answer to a commit.
//!
//! Owns: forwarding bytes, seeing request kinds (size, then API key, both big-endian), silence on demand.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

const END_TXN: i16 = 26;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Fault {
    None,
    /// The next EndTxn reaches the broker, its answer and everything after it does not come back.
    LoseAnswer,
    /// The next EndTxn and everything after it does not reach the broker.
    LoseRequest,
    /// Nothing passes.
    Silent,
}

pub(crate) struct Proxy {
    pub(crate) port: u16,
    fault: Arc<AtomicU8>,
}

impl Proxy {
    pub(crate) async fn listen() -> (Proxy, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        (Proxy { port, fault: Arc::new(AtomicU8::new(Fault::None as u8)) }, listener)
    }

    pub(crate) fn set(&self, fault: Fault) {
        self.fault.store(fault as u8, Ordering::SeqCst);
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.fault.load(Ordering::SeqCst) == Fault::Silent as u8
    }

    /// Forwards to the broker's port from now on.
    pub(crate) fn serve(&self, listener: TcpListener, to: u16) {
        let fault = Arc::clone(&self.fault);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let fault = Arc::clone(&fault);
                tokio::spawn(async move {
                    let broker = TcpStream::connect(("127.0.0.1", to)).await?;
                    let (client_read, client_write) = client.into_split();
                    let (broker_read, broker_write) = broker.into_split();
                    let back = tokio::spawn(answers(broker_read, client_write, Arc::clone(&fault)));
                    let forth = requests(client_read, broker_write, fault).await;
                    back.abort();
                    forth
                });
            }
        });
    }
}

async fn requests(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    fault: Arc<AtomicU8>,
) -> std::io::Result<()> {
    loop {
        let size = from.read_u32().await?;
        let mut frame = vec![0; size as usize];
        from.read_exact(&mut frame).await?;
        let now = fault.load(Ordering::SeqCst);
        if i16::from_be_bytes([frame[0], frame[1]]) == END_TXN
            && (now == Fault::LoseAnswer as u8 || now == Fault::LoseRequest as u8)
        {
            fault.store(Fault::Silent as u8, Ordering::SeqCst);
            if now == Fault::LoseRequest as u8 {
                continue;
            }
        } else if now == Fault::Silent as u8 {
            continue;
        }
        to.write_u32(size).await?;
        to.write_all(&frame).await?;
    }
}

async fn answers(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    fault: Arc<AtomicU8>,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let n = from.read(&mut buffer).await?;
        if n == 0 {
            return Ok(());
        }
        if fault.load(Ordering::SeqCst) != Fault::Silent as u8 {
            to.write_all(&buffer[..n]).await?;
        }
    }
}
