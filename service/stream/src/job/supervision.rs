//! Keeps one job alive.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{service::Context, shared::JobShared};
use crate::plan::JobPlan;

pub(crate) async fn supervise(_context: Arc<Context>, _plan: Arc<JobPlan>, _shared: Arc<JobShared>, cancel: CancellationToken) {
    cancel.cancelled().await;
}
