//! A router on a socket until it is told to stop.

use std::{future::Future, io, net::SocketAddr};

use axum::Router;
use millstream_types::runtime::Tasks;
use tokio::{net::TcpListener, task::JoinHandle};

/// A bound port and the task that serves it.
#[derive(Debug)]
pub struct Listening {
    pub address: SocketAddr,
    /// Ends when `stop` has come and the requests at work are answered.
    pub task: JoinHandle<Option<()>>,
}

/// Binds now, so that a port in use fails the start, then serves until `stop`.
pub async fn serve(
    name: &'static str,
    address: SocketAddr,
    router: Router,
    tasks: &Tasks,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<Listening> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let task = tasks.io(name, async move {
        if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(stop).await {
            tracing::error!(%address, %error, "listener failed");
        }
    });
    Ok(Listening { address, task })
}
