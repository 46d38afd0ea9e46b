//! Apache Kafka for scenarios: started by `e2e/kafka/kafka.sh`, or one that is already there (`MILLSTREAM_E2E_KAFKA=host:port`).

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Condvar, Mutex, PoisonError},
};

use tempfile::TempDir;

/// A broker of this test process; stopped when dropped.
#[derive(Debug)]
pub struct Broker {
    bootstrap: String,
    own: Option<Own>,
}

#[derive(Debug)]
struct Own {
    dir: TempDir,
    port: u16,
    _turn: Turn,
}

static BUSY: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

/// One scenario with a broker of its own at a time: two brokers, two services and two generators on two cores measure only each other.
#[derive(Debug)]
struct Turn;

impl Turn {
    fn take() -> Turn {
        let (busy, freed) = &BUSY;
        let mut busy = busy.lock().unwrap_or_else(PoisonError::into_inner);
        while *busy {
            busy = freed.wait(busy).unwrap_or_else(PoisonError::into_inner);
        }
        *busy = true;
        Turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let (busy, freed) = &BUSY;
        *busy.lock().unwrap_or_else(PoisonError::into_inner) = false;
        freed.notify_one();
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("kafka/kafka.sh")
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|l| l.local_addr())
        .expect("a loopback port can be bound")
        .port()
}

impl Broker {
    /// The broker of the environment, or a new one on a temporary folder.
    pub fn start() -> Broker {
        if let Ok(bootstrap) = std::env::var("MILLSTREAM_E2E_KAFKA") {
            return Broker { bootstrap, own: None };
        }
        Broker::start_own()
    }

    /// Always a new one: for scenarios that stop it.
    pub fn start_own() -> Broker {
        let turn = Turn::take();
        let dir =
            tempfile::Builder::new().prefix("millstream-kafka-").tempdir().expect("a temporary folder can be made");
        let port = free_port();
        let broker = Broker { bootstrap: format!("127.0.0.1:{port}"), own: Some(Own { dir, port, _turn: turn }) };
        broker.restart();
        broker
    }

    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    fn own(&self) -> &Own {
        self.own.as_ref().expect("only a broker that the harness started can be stopped")
    }

    /// Starts it (again) on the same folder and port.
    pub fn restart(&self) {
        let own = self.own();
        self.run(&[
            "start",
            "--dir",
            &own.dir.path().to_string_lossy(),
            "--port",
            &own.port.to_string(),
            "--parent",
            &std::process::id().to_string(),
        ]);
    }

    pub fn stop(&self) {
        self.run(&["stop", "--dir", &self.own().dir.path().to_string_lossy()]);
    }

    pub fn kill(&self) {
        self.run(&["stop", "--dir", &self.own().dir.path().to_string_lossy(), "--kill"]);
    }

    fn run(&self, args: &[&str]) {
        let out = Command::new("bash").arg(script()).args(args).stdin(Stdio::null()).output().expect("bash is there");
        assert!(
            out.status.success(),
            "kafka.sh {args:?}: {}{}",
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        );
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if self.own.is_some() {
            self.kill();
        }
    }
}

/// Folder of Apache Kafka's jars, for its Java client.
pub fn kafka_jars() -> PathBuf {
    let tools = std::env::var_os("MILLSTREAM_TOOLS").map(PathBuf::from).unwrap_or_else(|| {
        PathBuf::from(std::env::var_os("HOME").expect("HOME is set")).join(".cache/millstream-tools")
    });
    tools.join("kafka-4.4.0/libs")
}
