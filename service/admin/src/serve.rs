//! A router on a socket until it is told to stop.

use std::{future::Future, io, net::SocketAddr};

use axum::Router;
use millstream_types::runtime::Tasks;
use tokio::{net::TcpListener, task::JoinHandle};

/// Binds a port; a port in use fails the start before anything else happens.
pub async fn bind(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Serves until `stop`; the task ends when the requests at work are answered.
pub fn serve(
    name: &'static str,
    listener: TcpListener,
    router: Router,
    tasks: &Tasks,
    stop: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<Option<()>> {
    tasks.io(name, async move {
        if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(stop).await {
            tracing::error!(listener = name, %error, "listener failed");
        }
    })
}
