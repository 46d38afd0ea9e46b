//! An embedded broker, and `millstream topic` against it.

use std::{
    io::Write,
    process::{Child, Command, Output, Stdio},
    sync::Arc,
};

use millstream_broker::{Broker, BrokerConfig};
use millstream_kafka::{KafkaCluster, KafkaOptions};

pub(crate) struct Cluster {
    broker: Option<Broker>,
    runtime: tokio::runtime::Runtime,
    pub(crate) dir: tempfile::TempDir,
}

impl Cluster {
    pub(crate) fn start() -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let broker = runtime.block_on(Broker::start(BrokerConfig::new(dir.path().join("broker")))).unwrap();
        Self { broker: Some(broker), runtime, dir }
    }

    /// A client of the test's own.
    pub(crate) fn client(&self) -> Arc<KafkaCluster> {
        KafkaCluster::connect(KafkaOptions::new(self.broker.as_ref().unwrap().bootstrap())).unwrap()
    }

    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// From here on nobody answers.
    pub(crate) fn stop_broker(&mut self) {
        let broker = self.broker.take().unwrap();
        self.runtime.block_on(broker.stop()).unwrap();
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
        command.arg("topic").args(args).args(["--bootstrap", &self.broker.as_ref().unwrap().bootstrap()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Exit code, standard output, standard error.
    pub(crate) fn run(&self, args: &[&str], input: &str) -> (i32, String, String) {
        let mut child = self.command(args).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        finish(child)
    }

    pub(crate) fn good(&self, args: &[&str], input: &str) -> String {
        let (code, out, err) = self.run(args, input);
        assert_eq!(code, 0, "{args:?}: {err}");
        out
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(broker) = self.broker.take() {
            let stopped = self.runtime.block_on(broker.stop());
            assert!(stopped.is_ok() || std::thread::panicking());
        }
    }
}

pub(crate) fn finish(child: Child) -> (i32, String, String) {
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    (status.code().unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

pub(crate) fn interrupt(child: &Child) {
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
}

/// Lines that cannot be compressed, each of `length` characters.
pub(crate) fn noise(lines: usize, length: usize) -> String {
    let mut state = 1_u64;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b'!' + (state >> 33) as u8 % 90)
    };
    let mut line = || (0..length).map(|_| letter()).chain(['\n']).collect::<String>();
    (0..lines).map(|_| line()).collect()
}
