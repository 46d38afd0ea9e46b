//! `/v1/info`: which process this is.

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{health::Phase, ports::ObjectKind, state::AdminState};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Info {
    pub version: String,
    pub commit: String,
    pub replica: String,
    /// `kafka.prefix`: of the WAL topic and the transactional ids.
    pub prefix: String,
    pub uptime_seconds: u64,
    pub phase: Phase,
    pub summary: String,
    pub tables: usize,
    pub views: usize,
    pub sinks: usize,
    pub latest_epoch: u64,
}

/// Version, name and state of this process.
#[utoipa::path(get, path = "/v1/info", tag = "service", responses((status = 200, body = Info)))]
pub(crate) async fn info(State(state): State<AdminState>) -> Json<Info> {
    let objects = state.deps.sql.objects();
    let count = |kind| objects.iter().filter(|o| o.kind == kind).count();
    let (node, health) = (&state.deps.info, state.health.body());
    Json(Info {
        version: node.version.to_owned(),
        commit: node.commit.to_owned(),
        replica: node.replica.clone(),
        prefix: node.prefix.clone(),
        uptime_seconds: state.deps.clock.now_ms().saturating_sub(node.started_ms) / 1000,
        phase: health.phase,
        summary: health.summary,
        tables: count(ObjectKind::Table),
        views: count(ObjectKind::View),
        sinks: count(ObjectKind::Sink),
        latest_epoch: state.deps.jobs.latest_epoch().0,
    })
}
