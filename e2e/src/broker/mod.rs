//! Brokers for tests: the embedded one, in the process of the test, or Apache Kafka, started by `e2e/kafka/kafka.sh`.
//!
//! `choice.rs` decides on which of them a scenario runs. [`Broker::start`] gives a broker with names of its own: a new one, or the Apache Kafka that all
//! scenarios of a process share, since its start takes seconds (or the one at `MILLSTREAM_E2E_KAFKA=host:port`). [`Broker::own`] gives one that may be
//! stopped, killed and broken.

mod choice;
mod embedded;
mod kafka;

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use millstream_broker::faults::FaultHandle;

pub(crate) use self::choice::installed;
pub use self::choice::{Kind, jars_for, run, skip};
use self::{embedded::Embedded, kafka::Kafka};

/// What a scenario needs to be different.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// A second listener on the first port that tells its clients to come to the second, where a proxy listens.
    pub proxied: Option<(u16, u16)>,
    pub transaction_max_timeout: Option<Duration>,
}

/// A broker of this test process; stopped when dropped, unless others use it, too.
#[derive(Debug)]
pub struct Broker {
    kind: Kind,
    bootstrap: String,
    prefix: String,
    own: Option<Own>,
}

#[derive(Debug)]
enum Own {
    Embedded(Box<Embedded>),
    Kafka(Kafka),
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|l| l.local_addr())
        .expect("a loopback port can be bound")
        .port()
}

impl Broker {
    /// For scenarios that only use it: see the head.
    pub fn start(kind: Kind) -> Broker {
        if kind == Kind::Embedded {
            return Broker::own(kind);
        }
        static SHARED: OnceLock<String> = OnceLock::new();
        static USERS: AtomicU32 = AtomicU32::new(0);
        let shared = || std::env::var("MILLSTREAM_E2E_KAFKA").unwrap_or_else(|_| kafka::until_the_end());
        let bootstrap = SHARED.get_or_init(shared).clone();
        let prefix = format!("e{:08x}-{}-", rand::random::<u32>(), USERS.fetch_add(1, Ordering::Relaxed));
        Broker { kind, bootstrap, prefix, own: None }
    }

    /// Always a new one: for scenarios that stop it.
    pub fn own(kind: Kind) -> Broker {
        Broker::own_with(kind, &Options::default())
    }

    pub fn own_with(kind: Kind, options: &Options) -> Broker {
        let (bootstrap, own) = match kind {
            Kind::Embedded => {
                let embedded = Embedded::start(options);
                (embedded.bootstrap(), Own::Embedded(Box::new(embedded)))
            }
            Kind::Kafka => {
                let kafka = Kafka::start(options);
                (kafka.bootstrap(), Own::Kafka(kafka))
            }
        };
        Broker { kind, bootstrap, prefix: String::new(), own: Some(own) }
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Before every name that a scenario makes on the broker, so that it meets no other.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// A name on this broker, of a topic say.
    pub fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn mine(&self) -> &Own {
        self.own.as_ref().expect("a broker that others use is not stopped: this scenario needs one of its own")
    }

    /// Starts it (again) on the same folder and port.
    pub fn restart(&self) {
        match self.mine() {
            Own::Embedded(b) => b.restart(),
            Own::Kafka(b) => b.restart(),
        }
    }

    pub fn stop(&self) {
        match self.mine() {
            Own::Embedded(b) => b.stop(),
            Own::Kafka(b) => b.stop(),
        }
    }

    pub fn kill(&self) {
        match self.mine() {
            Own::Embedded(b) => b.kill(),
            Own::Kafka(b) => b.kill(),
        }
    }

    /// What the embedded broker does wrong on request. A restart heals and ends the handle.
    pub fn faults(&self) -> FaultHandle {
        match self.mine() {
            Own::Embedded(b) => b.faults(),
            Own::Kafka(_) => panic!("only the embedded broker can be broken"),
        }
    }
}
