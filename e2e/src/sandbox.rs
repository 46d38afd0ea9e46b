//! One server process on temporary folders, with ports chosen freely: start, kill -9, restart, stop, and a log that is scanned at the end.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, OnceLock, mpsc},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::{broker::Broker, client::Client};

/// Path of the binary: `MILLSTREAM_BIN`, or built once by cargo in the profile of this test.
pub fn binary() -> &'static Path {
    static BIN: OnceLock<PathBuf> = OnceLock::new();
    BIN.get_or_init(|| {
        if let Some(bin) = std::env::var_os("MILLSTREAM_BIN") {
            return PathBuf::from(bin);
        }
        // target/<profile>/deps/<this test>: the binary is two folders up.
        let exe = std::env::current_exe().expect("a test has a path");
        let profile = exe.parent().and_then(Path::parent).expect("tests lie in target/<profile>/deps").to_path_buf();
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo
            .args(["build", "--quiet", "-p", "millstream-server", "--bin", "millstream"])
            .current_dir(env!("CARGO_MANIFEST_DIR"));
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        // What cargo set for this test would look like a changed environment to build scripts, and half of the dependencies would be built again.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            let ours = text.starts_with("CARGO_")
                && !["CARGO_TARGET_DIR", "CARGO_HOME"].contains(&&*text)
                && !text.starts_with("CARGO_TERM");
            if ours || text == "LD_LIBRARY_PATH" {
                cargo.env_remove(&name);
            }
        }
        assert!(cargo.status().expect("cargo is there").success(), "building the millstream binary failed");
        profile.join("millstream")
    })
}

/// A broker that has just started says this to the first transactional producer; the client asks again by itself.
const COORDINATOR_LOADS: &str = "Coordinator load in progress";

/// A server that can be killed and started again on the same data.
#[derive(Debug)]
pub struct Sandbox {
    dir: TempDir,
    config: PathBuf,
    child: Mutex<Option<Child>>,
    client: Mutex<Option<Client>>,
    expected_logs: Mutex<Vec<String>>,
}

/// What a scenario sets before the start.
#[derive(Debug, Clone)]
pub struct Options {
    pub bootstrap: String,
    pub prefix: String,
    /// Empty = a folder in the sandbox.
    pub object_store: String,
    /// YAML of further top-level sections or keys, merged by hand: appended as it is.
    pub extra: String,
    /// YAML under `object_store:` (indented by two), for options.
    pub object_store_extra: String,
}

impl Options {
    /// A service on this broker; `name` is its prefix there, behind that of the scenario.
    pub fn new(broker: &Broker, name: &str) -> Self {
        Self {
            bootstrap: broker.bootstrap().to_owned(),
            prefix: broker.name(name),
            object_store: String::new(),
            extra: String::new(),
            object_store_extra: String::new(),
        }
    }

    #[must_use]
    pub fn extra(mut self, yaml: &str) -> Self {
        self.extra.push_str(yaml);
        self.extra.push('\n');
        self
    }
}

impl Sandbox {
    pub fn new(options: &Options) -> Sandbox {
        let dir = tempfile::Builder::new().prefix("millstream-e2e-").tempdir().expect("a temporary folder can be made");
        let data = dir.path().join("data");
        let url = if options.object_store.is_empty() {
            format!("file://{}", dir.path().join("bucket").display())
        } else {
            options.object_store.clone()
        };
        let yaml = format!(
            "version: 1\nserver:\n  listen: 127.0.0.1:0\n  probe_listen: 127.0.0.1:0\n  data_dir: {}\nkafka:\n  bootstrap_servers: {}\n  prefix: {}\nobject_store:\n  url: {url}\n{}\nsql:\n  max_result_rows: 10000000\n  query_memory: 1GiB\n{}",
            data.display(),
            options.bootstrap,
            options.prefix,
            options.object_store_extra,
            options.extra
        );
        let config = dir.path().join("millstream.yaml");
        std::fs::write(&config, yaml).expect("the sandbox is writable");
        Sandbox {
            dir,
            config,
            child: Mutex::new(None),
            client: Mutex::new(None),
            expected_logs: Mutex::new(vec![COORDINATOR_LOADS.to_owned()]),
        }
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn config(&self) -> &Path {
        &self.config
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("server.log")
    }

    /// A line of WARN or ERROR that contains `text` is part of the scenario.
    pub fn expect_log(&self, text: &str) {
        self.expected_logs.lock().expect("no test thread panicked here").push(text.to_owned());
    }

    /// Starts the process and waits until it prints its addresses and `/readyz` answers 200.
    pub async fn start(&self) -> Client {
        let client = self.launch();
        client.wait_ready(Duration::from_secs(120)).await;
        client
    }

    /// Starts the process and waits only for its addresses.
    pub fn launch(&self) -> Client {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_path())
            .expect("the sandbox is writable");
        let mut child = Command::new(binary())
            .args(["serve", "--config"])
            .arg(&self.config)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.try_clone().expect("a file can be cloned"))
            .spawn()
            .expect("the millstream binary starts");
        let stdout = child.stdout.take().expect("stdout is piped");
        *self.child.lock().expect("no test thread panicked here") = Some(child);
        let line = first_line(stdout, log, Duration::from_secs(60))
            .unwrap_or_else(|| panic!("no ready line; log:\n{}", self.log_tail(40)));
        let field = |name: &str| {
            let at = line.find(name).unwrap_or_else(|| panic!("no {name} in {line:?}"));
            line[at + name.len()..].split_whitespace().next().expect("a value follows").to_owned()
        };
        let client = Client::new(field("rest="), field("probes="));
        *self.client.lock().expect("no test thread panicked here") = Some(client.clone());
        client
    }

    /// The client of the latest start.
    pub fn client(&self) -> Client {
        self.client.lock().expect("no test thread panicked here").clone().expect("the server was started")
    }

    pub fn pid(&self) -> u32 {
        self.child.lock().expect("no test thread panicked here").as_ref().expect("the server runs").id()
    }

    /// kill -9.
    pub fn kill(&self) {
        if let Some(mut child) = self.child.lock().expect("no test thread panicked here").take() {
            child.kill().expect("an own child can be killed");
            child.wait().expect("an own child can be waited for");
        }
    }

    pub fn is_running(&self) -> bool {
        self.child
            .lock()
            .expect("no test thread panicked here")
            .as_mut()
            .is_some_and(|c| c.try_wait().expect("an own child can be waited for").is_none())
    }

    /// SIGTERM and the exit code; kills after `grace`.
    pub fn terminate(&self, grace: Duration) -> Option<i32> {
        let mut child = self.child.lock().expect("no test thread panicked here").take()?;
        let sent = Command::new("kill").arg(child.id().to_string()).status().expect("kill is there");
        assert!(sent.success());
        let start = Instant::now();
        while start.elapsed() < grace {
            if let Some(status) = child.try_wait().expect("an own child can be waited for") {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        child.kill().expect("an own child can be killed");
        child.wait().expect("an own child can be waited for");
        panic!("the server did not stop within {grace:?}; log:\n{}", self.log_tail(40));
    }

    pub fn log_tail(&self, lines: usize) -> String {
        let text = std::fs::read_to_string(self.log_path()).unwrap_or_default();
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Peak resident memory of the running server in MiB.
    pub fn peak_mib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        status
            .lines()
            .find_map(|l| l.strip_prefix("VmHWM:"))
            .and_then(|v| v.split_whitespace().next())
            .and_then(|v| v.parse::<u64>().ok())
            .unwrap_or(0)
            / 1024
    }

    /// CPU seconds (user and system) that the running server has used.
    pub fn cpu_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |i: usize| fields.get(i).and_then(|v| v.parse::<f64>().ok()).unwrap_or(0.0);
        (ticks(11) + ticks(12)) / 100.0
    }

    /// Lines of WARN and ERROR that no `expect_log` covers.
    pub fn unexpected_logs(&self) -> Vec<String> {
        let expected = self.expected_logs.lock().expect("no test thread panicked here");
        let text = std::fs::read_to_string(self.log_path()).unwrap_or_default();
        text.lines()
            .filter(|l| l.contains(" WARN ") || l.contains(" ERROR ") || l.contains("panicked"))
            .filter(|l| !expected.iter().any(|e| l.contains(e.as_str())))
            .map(str::to_owned)
            .collect()
    }

    /// # Panics
    /// If the log has WARN or ERROR lines that the scenario did not announce.
    pub fn assert_clean_log(&self) {
        let lines = self.unexpected_logs();
        assert!(
            lines.is_empty(),
            "{} unexpected log lines, first ones:\n{}",
            lines.len(),
            lines[..lines.len().min(20)].join("\n")
        );
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _kept = writeln!(std::io::stderr(), "server log, last lines:\n{}", self.log_tail(60));
        }
        self.kill();
    }
}

/// The line with the addresses; what stdout says after it goes to the log.
fn first_line(stdout: std::process::ChildStdout, mut log: std::fs::File, deadline: Duration) -> Option<String> {
    let (found, line) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        for text in BufReader::new(stdout).lines().map_while(Result::ok) {
            if text.contains("rest=") {
                let _receiver_may_be_gone = found.try_send(text.clone());
            }
            let _log_is_best_effort = writeln!(log, "{text}");
        }
    });
    line.recv_timeout(deadline).ok()
}
