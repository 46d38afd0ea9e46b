//! The OpenAPI document, written from the routes' own annotations.

use axum::Json;
use utoipa::OpenApi;

use crate::routes;

#[derive(Debug, OpenApi)]
#[openapi(
    info(title = "Millstream", description = "Durable tables and exactly-once views over Apache Kafka"),
    paths(
        routes::probe::live,
        routes::probe::ready,
        routes::probe::metrics,
        routes::info::info,
        routes::sql::execute,
        routes::sql::validate,
        routes::objects::tables,
        routes::objects::table,
        routes::objects::views,
        routes::objects::view,
        routes::objects::sinks,
        routes::objects::sink,
        routes::rows::table_rows,
        routes::rows::view_rows,
        routes::rows::insert,
        routes::regions::regions,
        routes::regions::view_regions,
        routes::regions::files,
        routes::regions::view_files,
        routes::regions::wal,
        routes::regions::errors,
        routes::regions::flush,
        routes::regions::view_flush,
        routes::regions::compact,
        routes::control::pause_view,
        routes::control::resume_view,
        routes::control::pause_sink,
        routes::control::resume_sink,
        routes::control::checkpoint,
        routes::control::latest_barrier,
        routes::jobs::jobs,
        routes::jobs::job,
        routes::jobs::backfills,
        routes::jobs::patch_backfill,
    )
)]
struct Document;

/// The document as a value, for generators and tests.
pub fn openapi() -> utoipa::openapi::OpenApi {
    Document::openapi()
}

pub(crate) async fn document() -> Json<utoipa::openapi::OpenApi> {
    Json(openapi())
}
