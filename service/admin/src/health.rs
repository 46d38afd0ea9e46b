//! Whether this process can serve, and what outside it is failing. Written by the node, read by `/readyz` and a metric.
//!
//! Ready means restored once (decision 5): if Kafka or the bucket fails later the node stays ready for reads and the body says what fails since when.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use prometheus::{IntGaugeVec, Opts, Registry};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Where the node is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Connects to Kafka and the bucket.
    Starting,
    /// Opens regions and replays their WAL.
    Restoring,
    Serving,
    /// SIGTERM came: no new work.
    Stopping,
}

/// One thing outside this process that it depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PartHealth {
    /// `kafka` or `bucket`.
    pub name: String,
    pub ok: bool,
    /// Why it fails, with causes.
    pub cause: Option<String>,
    /// Unix milliseconds since which it is as it is.
    pub since_ms: u64,
}

/// Body of `/readyz`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReadyBody {
    pub ready: bool,
    pub phase: Phase,
    /// One line for people: `ready`, `restoring 43 %`, `starting: kafka: connection refused`.
    pub summary: String,
    pub restored_percent: u8,
    pub parts: Vec<PartHealth>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    restored_percent: u8,
    parts: BTreeMap<&'static str, PartHealth>,
}

/// Shared by the node (writes), the probes and the metrics (read). A lock held for a few instructions.
#[derive(Debug, Clone)]
pub struct Health {
    state: Arc<Mutex<State>>,
    up: IntGaugeVec,
}

impl Health {
    /// Registers `millstream_dependency_up`.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let up = IntGaugeVec::new(
            Opts::new("millstream_dependency_up", "1 if the dependency answered its last check, else 0"),
            &["kind"],
        )?;
        registry.register(Box::new(up.clone()))?;
        let state = State { phase: Phase::Starting, restored_percent: 0, parts: BTreeMap::new() };
        Ok(Self { state: Arc::new(Mutex::new(state)), up })
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn set_phase(&self, phase: Phase) {
        self.with(|s| {
            s.phase = phase;
            if phase == Phase::Serving {
                s.restored_percent = 100;
            }
        });
    }

    pub fn restoring(&self, percent: u8) {
        self.with(|s| {
            s.phase = Phase::Restoring;
            s.restored_percent = percent.min(100);
        });
    }

    /// Notes the result of a check. `cause` = `None` means it answered. Returns whether that is a change.
    pub fn report(&self, name: &'static str, cause: Option<String>, now_ms: u64) -> bool {
        self.up.with_label_values(&[name]).set(i64::from(cause.is_none()));
        self.with(|s| {
            let before = s.parts.get(name).map(|p| (p.ok, p.since_ms));
            let ok = cause.is_none();
            let since_ms = before.filter(|(was, _)| *was == ok).map_or(now_ms, |(_, since)| since);
            s.parts.insert(name, PartHealth { name: name.to_owned(), ok, cause, since_ms });
            before.map(|(was, _)| was) != Some(ok)
        })
    }

    pub fn phase(&self) -> Phase {
        self.with(|s| s.phase)
    }

    pub fn body(&self) -> ReadyBody {
        self.with(|s| {
            let parts: Vec<PartHealth> = s.parts.values().cloned().collect();
            let failing: Vec<String> = parts
                .iter()
                .filter(|p| !p.ok)
                .map(|p| format!("{}: {}", p.name, p.cause.as_deref().unwrap_or("failing")))
                .collect();
            let state = match s.phase {
                Phase::Starting => "starting".to_owned(),
                Phase::Restoring => format!("restoring {} %", s.restored_percent),
                Phase::Serving => "ready".to_owned(),
                Phase::Stopping => "stopping".to_owned(),
            };
            let summary = if failing.is_empty() { state } else { format!("{state}, failing: {}", failing.join("; ")) };
            ReadyBody {
                ready: s.phase == Phase::Serving,
                phase: s.phase,
                summary,
                restored_percent: s.restored_percent,
                parts,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_stays_ready_when_kafka_goes_away_and_says_so() {
        let health = Health::new(&Registry::new()).unwrap();
        assert!(!health.body().ready);
        health.restoring(43);
        assert_eq!(health.body().summary, "restoring 43 %");
        health.set_phase(Phase::Serving);
        assert!(health.report("kafka", None, 5));
        assert!(health.report("kafka", Some("refused".to_owned()), 10));
        assert!(!health.report("kafka", Some("refused".to_owned()), 20));
        let body = health.body();
        assert!(body.ready);
        assert_eq!((body.summary.as_str(), body.parts[0].since_ms), ("ready, failing: kafka: refused", 10));
        health.set_phase(Phase::Stopping);
        assert!(!health.body().ready);
    }
}
