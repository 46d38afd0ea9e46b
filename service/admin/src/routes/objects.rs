//! Tables, views and sinks as the catalog has them, with their jobs.

use axum::{Json, extract::State};

use crate::extract::Path;
use crate::{
    error::{ApiError, ErrorBody},
    model::object::ObjectInfo,
    ports::{CatalogObject, ObjectKind},
    state::AdminState,
};

impl AdminState {
    pub(crate) fn describe(&self, object: &CatalogObject) -> ObjectInfo {
        ObjectInfo::new(object, object.job.and_then(|job| self.deps.jobs.job(job)))
    }

    fn list(&self, kind: ObjectKind) -> Json<Vec<ObjectInfo>> {
        Json(self.deps.sql.objects().iter().filter(|o| o.kind == kind).map(|o| self.describe(o)).collect())
    }

    fn one(&self, kind: ObjectKind, name: &str) -> Result<Json<ObjectInfo>, ApiError> {
        Ok(Json(self.describe(&self.object(kind, name)?)))
    }
}

/// All tables.
#[utoipa::path(get, path = "/v1/tables", tag = "tables", responses((status = 200, body = Vec<ObjectInfo>)))]
pub(crate) async fn tables(State(state): State<AdminState>) -> Json<Vec<ObjectInfo>> {
    state.list(ObjectKind::Table)
}

/// One table.
#[utoipa::path(get, path = "/v1/tables/{table}", tag = "tables", params(("table" = String, Path)),
    responses((status = 200, body = ObjectInfo), (status = 404, body = ErrorBody)))]
pub(crate) async fn table(
    State(state): State<AdminState>,
    Path(name): Path<String>,
) -> Result<Json<ObjectInfo>, ApiError> {
    state.one(ObjectKind::Table, &name)
}

/// All views with their jobs.
#[utoipa::path(get, path = "/v1/views", tag = "views", responses((status = 200, body = Vec<ObjectInfo>)))]
pub(crate) async fn views(State(state): State<AdminState>) -> Json<Vec<ObjectInfo>> {
    state.list(ObjectKind::View)
}

/// One view with its job.
#[utoipa::path(get, path = "/v1/views/{view}", tag = "views", params(("view" = String, Path)),
    responses((status = 200, body = ObjectInfo), (status = 404, body = ErrorBody)))]
pub(crate) async fn view(
    State(state): State<AdminState>,
    Path(name): Path<String>,
) -> Result<Json<ObjectInfo>, ApiError> {
    state.one(ObjectKind::View, &name)
}

/// All sinks with their jobs.
#[utoipa::path(get, path = "/v1/sinks", tag = "sinks", responses((status = 200, body = Vec<ObjectInfo>)))]
pub(crate) async fn sinks(State(state): State<AdminState>) -> Json<Vec<ObjectInfo>> {
    state.list(ObjectKind::Sink)
}

/// One sink with its job.
#[utoipa::path(get, path = "/v1/sinks/{sink}", tag = "sinks", params(("sink" = String, Path)),
    responses((status = 200, body = ObjectInfo), (status = 404, body = ErrorBody)))]
pub(crate) async fn sink(
    State(state): State<AdminState>,
    Path(name): Path<String>,
) -> Result<Json<ObjectInfo>, ApiError> {
    state.one(ObjectKind::Sink, &name)
}
