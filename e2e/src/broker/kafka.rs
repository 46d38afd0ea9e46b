//! Apache Kafka in a process of its own, by `e2e/kafka/kafka.sh`. A watchdog of the script ends it when this process is gone.

use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::{Options, choice::kafka_script, free_port};

#[derive(Debug)]
pub(super) struct Kafka {
    dir: TempDir,
    port: u16,
    args: Vec<String>,
}

impl Kafka {
    pub(super) fn start(options: &Options) -> Kafka {
        let dir =
            tempfile::Builder::new().prefix("millstream-kafka-").tempdir().expect("a temporary folder can be made");
        let mut args = Vec::new();
        if let Some((port, to)) = options.proxied {
            args.extend(["--proxied".to_owned(), format!("{port}:{to}")]);
        }
        if let Some(limit) = options.transaction_max_timeout {
            args.extend(["--property".to_owned(), format!("transaction.max.timeout.ms={}", limit.as_millis())]);
        }
        let kafka = Kafka { dir, port: free_port(), args };
        kafka.restart();
        kafka
    }

    pub(super) fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(super) fn restart(&self) {
        let (port, parent) = (self.port.to_string(), std::process::id().to_string());
        let start = ["start", "--dir", self.dir(), "--port", &port, "--parent", &parent];
        script(&start.into_iter().chain(self.args.iter().map(String::as_str)).collect::<Vec<_>>());
    }

    pub(super) fn stop(&self) {
        script(&["stop", "--dir", self.dir()]);
    }

    pub(super) fn kill(&self) {
        script(&["stop", "--dir", self.dir(), "--kill"]);
    }

    fn dir(&self) -> &str {
        self.dir.path().to_str().expect("temporary folders have plain names")
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        self.kill();
    }
}

/// One that ends with this process, folder included; answers its address.
pub(super) fn until_the_end() -> String {
    let parent = std::process::id().to_string();
    let dir = std::env::temp_dir().join(format!("millstream-kafka-of-{parent}"));
    let dir = dir.to_str().expect("temporary folders have plain names");
    let line = script(&["start", "--dir", dir, "--parent", &parent, "--ephemeral"]);
    let bootstrap = line.split_whitespace().find_map(|word| word.strip_prefix("bootstrap="));
    bootstrap.unwrap_or_else(|| panic!("no address in {line:?}")).to_owned()
}

fn script(args: &[&str]) -> String {
    let out = Command::new("bash").arg(kafka_script()).args(args).stdin(Stdio::null()).output().expect("bash is there");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "kafka.sh {args:?}: {text}{}", String::from_utf8_lossy(&out.stderr));
    text
}
