//! The embedded broker in the process of the test. In the same process it starts within milliseconds and hands out its fault hooks.
//!
//! `kill` drops it: connections end, nothing is flushed or closed. What a kill in the middle of a write leaves is tested by its own crate, on a process.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::executor::block_on;
use millstream_broker::{Broker, BrokerConfig, Listener, faults::FaultHandle};
use tempfile::TempDir;

use super::Options;

pub(super) struct Embedded {
    config: BrokerConfig,
    running: Mutex<Option<Broker>>,
    // Dropped after the broker in it.
    _dir: TempDir,
}

impl std::fmt::Debug for Embedded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embedded").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Embedded {
    pub(super) fn start(options: &Options) -> Embedded {
        let dir =
            tempfile::Builder::new().prefix("millstream-broker-").tempdir().expect("a temporary folder can be made");
        // As the properties of `kafka.sh`: compaction and retention are seen soon.
        let mut config = BrokerConfig::new(dir.path());
        config.compaction = true;
        config.retention_interval = Duration::from_millis(500);
        if let Some(limit) = options.transaction_max_timeout {
            config.transaction_max_timeout = limit;
        }
        if let Some((port, to)) = options.proxied {
            let listen = std::net::SocketAddr::from(([127, 0, 0, 1], port));
            config.listeners.push(Listener { listen, advertised: Some(("127.0.0.1".to_owned(), to)) });
        }
        let broker = open(&config);
        let config = config.port(broker.addr().port());
        Embedded { config, running: Mutex::new(Some(broker)), _dir: dir }
    }

    pub(super) fn bootstrap(&self) -> String {
        self.config.listeners[0].listen.to_string()
    }

    fn take(&self) -> Option<Broker> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn restart(&self) {
        assert!(self.take().is_none(), "it runs");
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(open(&self.config));
    }

    pub(super) fn stop(&self) {
        if let Some(broker) = self.take() {
            block_on(broker.stop()).expect("the broker stops cleanly");
        }
    }

    pub(super) fn kill(&self) {
        drop(self.take());
    }

    pub(super) fn faults(&self) -> FaultHandle {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).as_ref().expect("the broker runs").faults()
    }
}

/// A killed one may hold folder and port for a moment: its threads end at their next step.
fn open(config: &BrokerConfig) -> Broker {
    let start = Instant::now();
    loop {
        match block_on(Broker::start(config.clone())) {
            Ok(broker) => return broker,
            Err(e) => assert!(start.elapsed() < Duration::from_secs(20), "{e}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        // Waits for its end, so that nothing writes into a folder that is being deleted.
        if let Some(broker) = self.take() {
            drop(block_on(broker.stop()));
        }
    }
}
