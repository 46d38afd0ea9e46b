//! Which broker a scenario runs on, and which of them run on this machine.
//!
//! `MILLSTREAM_E2E_BROKERS=embedded|kafka|both` asks for brokers, and what was asked for and is missing is a failure. Without it: the embedded broker always,
//! Apache Kafka where Java and its jars are (`e2e/kafka/kafka.sh install`), and a skipped scenario says so.

use std::{
    fmt,
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
    sync::{Condvar, Mutex, OnceLock, PoisonError},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `millstream-broker`, in the process of the test.
    Embedded,
    /// Apache Kafka in its own process.
    Kafka,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Embedded => "the embedded broker",
            Kind::Kafka => "Apache Kafka",
        })
    }
}

/// What `MILLSTREAM_E2E_BROKERS` asks for; empty = whatever is there.
fn asked() -> String {
    let asked = std::env::var("MILLSTREAM_E2E_BROKERS").unwrap_or_default();
    let known = ["", "embedded", "kafka", "both"];
    assert!(known.contains(&&*asked), "MILLSTREAM_E2E_BROKERS is embedded, kafka or both, not {asked:?}");
    asked
}

/// The script that installs and starts Apache Kafka.
pub(super) fn kafka_script() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("kafka/kafka.sh")
}

/// What `<script> installed` says: the place of what it installs, or what is missing.
pub(crate) fn installed(script: &std::path::Path) -> Result<PathBuf, String> {
    let out = Command::new("bash").arg(script).arg("installed").stdin(Stdio::null()).output();
    let out = out.map_err(|e| format!("bash: {e}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if out.status.success() { Ok(text(&out.stdout).into()) } else { Err(text(&out.stderr)) }
}

/// The folder with the jars of Apache Kafka, or why there is no Kafka here.
pub(super) fn kafka_jars() -> Result<PathBuf, String> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    FOUND.get_or_init(|| installed(&kafka_script())).clone()
}

impl Kind {
    /// Why nothing runs on it here, if so.
    fn missing(self) -> Option<String> {
        match (asked().as_str(), self) {
            ("both", _) | ("embedded" | "", Kind::Embedded) | ("kafka", Kind::Kafka) => None,
            ("", Kind::Kafka) if std::env::var_os("MILLSTREAM_E2E_KAFKA").is_some() => None,
            ("", Kind::Kafka) => kafka_jars().err(),
            (asked, _) => Some(format!("MILLSTREAM_E2E_BROKERS={asked}")),
        }
    }

    /// A size times `MILLSTREAM_E2E_SCALE`: 1 is the size that the issues name. Without it 0.2 on Apache Kafka, and less on the embedded broker: every
    /// change runs both.
    pub fn scaled(self, n: u64) -> u64 {
        crate::times_scale(n, if self == Kind::Kafka { 0.2 } else { 0.05 })
    }
}

/// The folder with the jars of Apache Kafka for a scenario that needs its Java client. Missing ones are a failure if Kafka was asked for, else a skip.
pub fn jars_for(scenario: &str) -> Option<PathBuf> {
    match kafka_jars() {
        Ok(jars) => Some(jars),
        Err(why) if asked().is_empty() || asked() == "embedded" => {
            skip(scenario, &format!("it reads with Kafka's Java client, and {why}"));
            None
        }
        Err(why) => panic!("{why}"),
    }
}

/// Tells that a scenario did not run, past the capture of the test harness.
pub fn skip(scenario: &str, why: &str) {
    // In one piece: other tests write, too.
    let _nobody_may_listen = std::io::stderr().write_all(format!("SKIPPED {scenario}: {why}\n").as_bytes());
}

static BUSY: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

/// One scenario at a time: two brokers, two services and two generators on two cores measure only each other.
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

/// Runs a scenario if its broker is wanted here; `alone`: beside no other such scenario of this process.
pub async fn run(kind: Kind, name: &str, alone: bool, scenario: impl AsyncFnOnce(Kind)) {
    if let Some(why) = kind.missing() {
        skip(&format!("{name} on {kind}"), &why);
        return;
    }
    let _turn = alone.then(Turn::take);
    scenario(kind).await;
}

/// Makes tests `embedded::<name>` and `kafka::<name>` of scenarios `async fn <name>(kind: Kind)`. With `alone:` they run one at a time;
/// `embedded alone:` is for those that break their broker.
#[macro_export]
macro_rules! on_each_broker {
    (alone: $($name:ident),+ $(,)?) => {
        $crate::on_each_broker!(@ embedded Embedded true $($name)+);
        $crate::on_each_broker!(@ kafka Kafka true $($name)+);
    };
    (embedded alone: $($name:ident),+ $(,)?) => {
        $crate::on_each_broker!(@ embedded Embedded true $($name)+);
    };
    (@ $module:ident $kind:ident $alone:literal $($name:ident)+) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $name() {
                    let name = concat!(module_path!(), "::", stringify!($name));
                    Box::pin($crate::broker::run($crate::broker::Kind::$kind, name, $alone, super::$name)).await;
                }
            )+
        }
    };
    ($($name:ident),+ $(,)?) => {
        $crate::on_each_broker!(@ embedded Embedded false $($name)+);
        $crate::on_each_broker!(@ kafka Kafka false $($name)+);
    };
}
