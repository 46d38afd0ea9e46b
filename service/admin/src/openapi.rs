//! The OpenAPI document, written from the routes' own annotations.

use axum::Json;
use utoipa::{
    Modify, OpenApi,
    openapi::{Content, PathItem, Ref, ResponseBuilder, path::Operation},
};

use crate::routes;

#[derive(Debug, OpenApi)]
#[openapi(
    modifiers(&OneErrorBody),
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

/// Each operation may answer an error that is none of its own: a wrong path or method, too many requests, not ready, a time limit.
struct OneErrorBody;

impl Modify for OneErrorBody {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        for operation in document.paths.paths.values_mut().flat_map(operations) {
            let body = Content::new(Some(Ref::from_schema_name("ErrorBody")));
            let response = ResponseBuilder::new()
                .description("any other error, as its status tells: 400, 404, 405, 409, 413, 422, 429, 500, 503, 504")
                .content("application/json", body)
                .build();
            operation.responses.responses.entry("default".to_owned()).or_insert_with(|| response.into());
        }
    }
}

fn operations(path: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut path.get, &mut path.put, &mut path.post, &mut path.delete, &mut path.patch]
        .into_iter()
        .filter_map(Option::as_mut)
}

/// The document as a value, for generators and tests.
pub fn openapi() -> utoipa::openapi::OpenApi {
    Document::openapi()
}

pub(crate) async fn document() -> Json<utoipa::openapi::OpenApi> {
    Json(openapi())
}
