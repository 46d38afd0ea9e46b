//! One client: a request in, its answer out, in order. The next request is read after the answer is sent, so a client that does not read its answers holds
//! back only itself.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{net::TcpStream, time::timeout};

use crate::{
    handle::{Client, Outcome, serve},
    node::{Node, stopped},
    protocol::frame::{FrameError, Frames},
};

/// As Kafka's `connections.max.idle.ms`.
const IDLE: Duration = Duration::from_secs(600);
/// A client that takes nothing of its answer for so long is gone. One that is slow may take all its time.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn run(node: Arc<Node>, stream: TcpStream, peer: SocketAddr, advertised: Option<(String, u16)>) {
    if let Err(e) = stream.set_nodelay(true) {
        tracing::debug!(%peer, error = %e, "no delay cannot be switched off");
    }
    // Without another word, clients come back to where they came to.
    let advertised = advertised.or_else(|| stream.local_addr().ok().map(|a| (a.ip().to_string(), a.port())));
    let Some(advertised) = advertised else { return };
    let (read, mut write) = stream.into_split();
    let mut frames = Frames::new(read);
    let mut client = Client::new(peer, advertised);
    let mut stopping = node.stopping.subscribe();
    loop {
        let frame = tokio::select! {
            frame = timeout(IDLE, frames.next()) => frame,
            () = stopped(&mut stopping) => return,
        };
        let frame = match frame {
            Ok(Ok(Some(frame))) => frame,
            Ok(Ok(None)) => return,
            Ok(Err(FrameError::Io(e))) => {
                tracing::debug!(%peer, error = %e, "connection lost");
                return;
            }
            Ok(Err(e)) => {
                tracing::info!(%peer, error = %e, "connection closed");
                return;
            }
            Err(_) => {
                tracing::debug!(%peer, "connection was idle for too long");
                return;
            }
        };
        let outcome = tokio::select! {
            outcome = Box::pin(serve(&node, &mut client, frame)) => outcome,
            () = stopped(&mut stopping) => return,
        };
        match outcome {
            Outcome::Reply(reply) => {
                let sent = tokio::select! {
                    sent = reply.send(&mut write, PATIENCE) => sent,
                    () = stopped(&mut stopping) => return,
                };
                match sent {
                    Ok(()) => {}
                    Err(e) if e.kind() == std::io::ErrorKind::TimedOut => {
                        tracing::info!(%peer, client = client.id, "the client does not take its answer");
                        return;
                    }
                    Err(e) => {
                        tracing::debug!(%peer, error = %e, "an answer could not be sent");
                        return;
                    }
                }
            }
            Outcome::Nothing => {}
            Outcome::Close(why) => {
                tracing::info!(%peer, client = client.id, why, "connection closed");
                return;
            }
        }
        if node.faults.wants_disconnect(&client.id) {
            return;
        }
    }
}
