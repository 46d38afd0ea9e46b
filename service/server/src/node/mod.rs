//! One node, wired in the order in which the data meets the parts: clock and health, bucket, Kafka, WAL topic, storage, stream, SQL, REST.
//!
//! Start: [`start`] makes the parts, `recover` opens regions and jobs, then `/readyz` says yes. Stop: [`stop`]. While it runs [`watch`] looks at Kafka and the
//! bucket. Nothing here decides about data.

mod error;
mod start;
mod stop;
pub(crate) mod wal_topic;
mod watch;

use std::net::SocketAddr;

use millstream_admin::{Phase, bind, routes, serve};
use millstream_config::Config;
use millstream_types::runtime::Tasks;
use tokio_util::sync::CancellationToken;

pub(crate) use error::NodeError;
use start::Base;

/// Where a node listens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Addresses {
    pub(crate) rest: SocketAddr,
    pub(crate) probes: SocketAddr,
}

/// What a node tells the one who runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The ports are open.
    Starting,
    /// All regions and jobs are there.
    Ready,
}

/// Runs until `stop`. An error means that it could not start.
pub(crate) async fn run(
    config: Config,
    tasks: Tasks,
    stop: CancellationToken,
    tell: impl Fn(Stage, Addresses),
) -> Result<(), NodeError> {
    let base = Base::new(config, tasks)?;
    let server = &base.config.server;
    let (probe_listener, probe_address) =
        bind(server.probe_listen).await.map_err(|e| NodeError::bind("server.probe_listen", server.probe_listen, e))?;
    let (rest_listener, rest_address) =
        bind(server.listen).await.map_err(|e| NodeError::bind("server.listen", server.listen, e))?;
    let addresses = Addresses { rest: rest_address, probes: probe_address };
    tell(Stage::Starting, addresses);
    tracing::info!(rest = %rest_address, probes = %probe_address, replica = %base.replica, prefix = %base.config.kafka.prefix, "starting");

    // The probes answer to the very end, when everything else is closed.
    let ended = CancellationToken::new();
    let probes = routes::probes(base.health.clone(), base.metrics.clone());
    let probes = serve("probes", probe_listener, probes, &base.tasks, ended.clone().cancelled_owned());

    let parts = tokio::select! {
        parts = base.parts() => parts?,
        () = stop.cancelled() => {
            tracing::info!("stopped before the start was complete");
            return Ok(());
        }
    };
    let rest = serve(
        "rest",
        rest_listener,
        routes::rest(base.admin_state(&parts)),
        &base.tasks,
        stop.clone().cancelled_owned(),
    );
    let recovered = tokio::select! {
        recovered = base.recover(&parts) => recovered,
        () = stop.cancelled() => Ok(()),
    };
    if recovered.is_ok() && !stop.is_cancelled() {
        base.health.set_phase(Phase::Serving);
        tracing::info!(
            regions = millstream_storage::Storage::regions(parts.engine.as_ref()).len(),
            jobs = parts.stream.jobs().len(),
            "ready"
        );
        tell(Stage::Ready, addresses);
        watch::until(&base, &parts, stop.cancelled()).await;
    }
    stop::stop(&base, &parts, rest).await;
    ended.cancel();
    stop::bounded("probes", std::time::Duration::from_secs(1), probes).await;
    recovered
}
