//! What can go wrong for the one who starts or stops a broker. Errors of requests are Kafka's error codes and never come here.

use std::{io, net::SocketAddr, path::PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    #[error("the address {addr} cannot be listened on")]
    Listen { addr: SocketAddr, source: io::Error },
    #[error("{addr} is not a loopback address: set `allow_remote` to listen for other machines")]
    Remote { addr: SocketAddr },
    #[error("the folder {} cannot be used", path.display())]
    Data { path: PathBuf, source: io::Error },
    #[error("the folder {} belongs to another running broker", path.display())]
    InUse { path: PathBuf },
    #[error("the broker's runtime cannot be started")]
    Runtime(#[source] io::Error),
}
