//! Regions of a table or view: state, files, WAL, rejected records, flush and compact.

use std::sync::Arc;

use axum::{Json, extract::State};
use futures::future::try_join_all;
use millstream_storage::{Region, api::RegionStatus};

use crate::extract::Path;
use crate::{
    error::{ApiError, ErrorBody},
    model::{
        object::ErrorsInfo,
        region::{FileInfo, RegionInfo, WalInfo},
    },
    ports::ObjectKind,
    state::AdminState,
};

impl AdminState {
    /// The open regions of a table or view, by number. One that is not open is left out: it has no state.
    pub(crate) fn open_regions(&self, kind: ObjectKind, name: &str) -> Result<Vec<Arc<dyn Region>>, ApiError> {
        let object = self.object(kind, name)?;
        Ok(object.regions.iter().filter_map(|id| self.deps.storage.region(*id)).collect())
    }

    fn statuses(&self, kind: ObjectKind, name: &str) -> Result<Vec<RegionStatus>, ApiError> {
        Ok(self.open_regions(kind, name)?.iter().map(|r| r.status()).collect())
    }

    async fn flush_all(&self, kind: ObjectKind, name: &str) -> Result<Json<Vec<RegionInfo>>, ApiError> {
        let regions = self.open_regions(kind, name)?;
        let work = async move {
            try_join_all(regions.iter().map(|r| r.flush())).await?;
            Ok(regions.iter().map(|r| RegionInfo::from(&r.status())).collect())
        };
        self.detached("flush", work).await.map(Json)
    }
}

/// State of each region of a table.
#[utoipa::path(get, path = "/v1/tables/{table}/regions", tag = "tables", params(("table" = String, Path)),
    responses((status = 200, body = Vec<RegionInfo>), (status = 404, body = ErrorBody)))]
pub(crate) async fn regions(
    State(state): State<AdminState>,
    Path(name): Path<String>,
) -> Result<Json<Vec<RegionInfo>>, ApiError> {
    Ok(Json(state.statuses(ObjectKind::Table, &name)?.iter().map(RegionInfo::from).collect()))
}

/// State of each region of a view.
#[utoipa::path(get, path = "/v1/views/{view}/regions", tag = "views", params(("view" = String, Path)),
    responses((status = 200, body = Vec<RegionInfo>), (status = 404, body = ErrorBody)))]
pub(crate) async fn view_regions(
    State(state): State<AdminState>,
    Path(name): Path<String>,
) -> Result<Json<Vec<RegionInfo>>, ApiError> {
    Ok(Json(state.statuses(ObjectKind::View, &name)?.iter().map(RegionInfo::from).collect()))
}

/// All SSTs of a table.
#[utoipa::path(get, path = "/v1/tables/{table}/files", tag = "tables", params(("table" = String, Path)),
    responses((status = 200, body = Vec<FileInfo>), (status = 404, body = ErrorBody)))]
pub(crate) async fn files(
    State(state): State<AdminState>,
    Path(name): Path<String>,
) -> Result<Json<Vec<FileInfo>>, ApiError> {
    Ok(Json(state.statuses(ObjectKind::Table, &name)?.iter().flat_map(FileInfo::of).collect()))
}

/// All SSTs of a view.
#[utoipa::path(get, path = "/v1/views/{view}/files", tag = "views", params(("view" = String, Path)),
    responses((status = 200, body = Vec<FileInfo>), (status = 404, body = ErrorBody)))]
pub(crate) async fn view_files(
    State(state): State<AdminState>,
    Path(name): Path<String>,
) -> Result<Json<Vec<FileInfo>>, ApiError> {
    Ok(Json(state.statuses(ObjectKind::View, &name)?.iter().flat_map(FileInfo::of).collect()))
}

/// Where each region is logged, its lag and its headroom before retention.
#[utoipa::path(get, path = "/v1/tables/{table}/wal", tag = "tables", params(("table" = String, Path)),
    responses((status = 200, body = Vec<WalInfo>), (status = 404, body = ErrorBody)))]
pub(crate) async fn wal(
    State(state): State<AdminState>,
    Path(name): Path<String>,
) -> Result<Json<Vec<WalInfo>>, ApiError> {
    Ok(Json(state.statuses(ObjectKind::Table, &name)?.iter().map(WalInfo::from).collect()))
}

/// Records that no row was made of: how many, why, and the newest ones with their coordinates. Held in memory: empty after a restart.
#[utoipa::path(get, path = "/v1/tables/{table}/errors", tag = "tables", params(("table" = String, Path)),
    responses((status = 200, body = ErrorsInfo), (status = 404, body = ErrorBody)))]
pub(crate) async fn errors(
    State(state): State<AdminState>,
    Path(name): Path<String>,
) -> Result<Json<ErrorsInfo>, ApiError> {
    let object = state.object(ObjectKind::Table, &name)?;
    Ok(Json(state.deps.sql.bad_records(&object)))
}

/// Answers when everything applied now is in files.
#[utoipa::path(post, path = "/v1/tables/{table}/flush", tag = "tables", params(("table" = String, Path)),
    responses((status = 200, body = Vec<RegionInfo>), (status = 404, body = ErrorBody)))]
pub(crate) async fn flush(
    State(state): State<AdminState>,
    Path(name): Path<String>,
) -> Result<Json<Vec<RegionInfo>>, ApiError> {
    state.flush_all(ObjectKind::Table, &name).await
}

/// Answers when everything applied now is in files.
#[utoipa::path(post, path = "/v1/views/{view}/flush", tag = "views", params(("view" = String, Path)),
    responses((status = 200, body = Vec<RegionInfo>), (status = 404, body = ErrorBody)))]
pub(crate) async fn view_flush(
    State(state): State<AdminState>,
    Path(name): Path<String>,
) -> Result<Json<Vec<RegionInfo>>, ApiError> {
    state.flush_all(ObjectKind::View, &name).await
}

/// Merges all files of each region into one run, region by region: each needs its own memory.
#[utoipa::path(post, path = "/v1/tables/{table}/compact", tag = "tables", params(("table" = String, Path)),
    responses((status = 200, body = Vec<RegionInfo>), (status = 404, body = ErrorBody)))]
pub(crate) async fn compact(
    State(state): State<AdminState>,
    Path(name): Path<String>,
) -> Result<Json<Vec<RegionInfo>>, ApiError> {
    let regions = state.open_regions(ObjectKind::Table, &name)?;
    let work = async move {
        for region in &regions {
            region.compact().await?;
        }
        Ok(regions.iter().map(|r| RegionInfo::from(&r.status())).collect())
    };
    state.detached("compact", work).await.map(Json)
}
