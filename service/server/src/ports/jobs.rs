//! Jobs of the stream engine as admin's [`JobPort`]. What must survive a restart (pause, rate limit) goes through SQL, which stores the wish.

use std::time::Duration;

use async_trait::async_trait;
use millstream_admin::{
    ApiError,
    model::job::{BackfillInfo, CheckpointInfo, JobInfo, PositionInfo, Reason},
    ports::JobPort,
};
use millstream_sql::{SqlService, catalog::Object};
use millstream_stream::{BackfillStatus, CheckpointStatus, JobKind, JobStatus, StreamService};
use millstream_types::{Epoch, ErrorKind, JobId, RegionId, Seq, runtime::Clock};

/// How long `POST /v1/checkpoints` waits for its barrier: many intervals, since a tick never waits for I/O.
const BARRIER_WAIT: Duration = Duration::from_secs(10);
/// How often it looks.
const BARRIER_LOOK: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Jobs {
    pub(crate) stream: StreamService,
    pub(crate) sql: SqlService,
    pub(crate) clock: std::sync::Arc<dyn Clock>,
}

impl Jobs {
    /// `ALTER <kind> "name" <action>` for the view or sink of a job.
    async fn alter(&self, job: JobId, action: &str) -> Result<(), ApiError> {
        let catalog = self.sql.catalog();
        let object = catalog.as_ref().and_then(|c| c.by_job(job));
        let object = object.ok_or_else(|| ApiError::not_found("job", &job.to_string()))?;
        let kind = match object.as_ref() {
            Object::Sink(_) => "SINK",
            Object::View(_) | Object::Table(_) => "MATERIALIZED VIEW",
        };
        let name = object.name().replace('"', "\"\"");
        self.sql.execute(&format!("ALTER {kind} \"{name}\" {action}")).await.map_err(super::sql::sql_error)?;
        Ok(())
    }
}

#[async_trait]
impl JobPort for Jobs {
    fn jobs(&self) -> Vec<JobInfo> {
        self.stream.jobs().iter().map(job_info).collect()
    }

    fn job(&self, job: JobId) -> Option<JobInfo> {
        self.stream.job(job).as_ref().map(job_info)
    }

    async fn pause(&self, job: JobId) -> Result<(), ApiError> {
        self.alter(job, "PAUSE").await
    }

    async fn resume(&self, job: JobId) -> Result<(), ApiError> {
        self.alter(job, "RESUME").await
    }

    async fn set_rate_limit(&self, job: JobId, limit: Option<u64>) -> Result<(), ApiError> {
        let value = limit.map_or_else(|| "DEFAULT".to_owned(), |n| n.to_string());
        self.alter(job, &format!("SET (backfill_rate_limit = {value})")).await
    }

    async fn wait_for(&self, job: JobId, positions: &[(RegionId, Seq)], timeout: Duration) -> Result<(), ApiError> {
        let reached = self.stream.wait_for(job, positions, timeout).await;
        reached.map(|_| ()).map_err(|e| ApiError::from_classified("stream", e))
    }

    async fn checkpoint(&self) -> Result<Epoch, ApiError> {
        let before = self.stream.latest_epoch();
        self.stream.checkpoint();
        let tries = BARRIER_WAIT.as_millis() / BARRIER_LOOK.as_millis();
        for _ in 0..tries {
            let now = self.stream.latest_epoch();
            if now > before {
                return Ok(now);
            }
            self.clock.sleep(BARRIER_LOOK).await;
        }
        Err(ApiError::new(ErrorKind::Unavailable, "NO_BARRIER", "no barrier passed all regions in time"))
    }

    fn latest_epoch(&self) -> Epoch {
        self.stream.latest_epoch()
    }
}

fn reason(r: &millstream_stream::Reason) -> Reason {
    Reason { code: r.code.clone(), message: r.message.clone() }
}

fn job_info(s: &JobStatus) -> JobInfo {
    JobInfo {
        job: s.job.0,
        name: s.name.to_string(),
        kind: match s.kind {
            JobKind::View => "view".to_owned(),
            JobKind::Sink => "sink".to_owned(),
        },
        state: s.state.as_str().to_owned(),
        reason: s.reason.as_ref().map(reason),
        committed_epoch: s.committed_epoch.0,
        positions: s.positions.iter().map(|(r, p)| PositionInfo { region: r.to_string(), position: p.0 }).collect(),
        restarts: s.restarts,
        last_error: s.last_error.as_ref().map(reason),
        rate_limit: s.rate_limit,
        finish_epoch: s.finish_epoch.map(|e| e.0),
        backfills: s.backfills.iter().map(|b| backfill_info(s, b)).collect(),
        checkpoints: s.checkpoints.iter().map(checkpoint_info).collect(),
    }
}

fn backfill_info(job: &JobStatus, b: &BackfillStatus) -> BackfillInfo {
    BackfillInfo {
        job: job.job.0,
        name: job.name.to_string(),
        input: b.input.0,
        region: b.region.to_string(),
        pass: b.pass,
        policy: b.policy.to_owned(),
        state: b.state.to_owned(),
        rows: b.rows,
        scanned: b.scanned,
        total: b.total,
        fraction: b.fraction,
        rows_per_second: b.rows_per_second,
        eta_seconds: b.eta_seconds,
        rate_limit: b.rate_limit,
        paused: b.paused.iter().map(|p| (*p).to_owned()).collect(),
        finish_epoch: b.finish_epoch.map(|e| e.0),
    }
}

fn checkpoint_info(c: &CheckpointStatus) -> CheckpointInfo {
    CheckpointInfo {
        epoch: c.epoch.0,
        outcome: c.outcome.to_owned(),
        collect_ms: c.collect_ms,
        commit_ms: c.commit_ms,
        apply_ms: c.apply_ms,
        view_rows: c.view_rows,
        state_rows: c.state_rows,
        derived_records: c.derived_records,
        bytes: c.bytes,
    }
}
