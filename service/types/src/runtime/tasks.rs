//! Tasks with names, on two runtimes: one for I/O and loops that never block, one for work that uses a core (decode, merge, jobs).

use std::{future::Future, panic::AssertUnwindSafe};

use futures::FutureExt;
use tokio::{runtime::Handle, task::JoinHandle};

/// Spawns named tasks. A panic becomes an error line with the task's name, and the returned handle yields `None`.
#[derive(Debug, Clone)]
pub struct Tasks {
    io: Handle,
    compute: Handle,
}

impl Tasks {
    pub fn new(io: Handle, compute: Handle) -> Self {
        Self { io, compute }
    }

    /// Both on the current runtime, for tests.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub fn current() -> Self {
        Self { io: Handle::current(), compute: Handle::current() }
    }

    /// For loops and I/O; must never block or compute for long.
    pub fn io<T: Send + 'static>(
        &self,
        name: impl Into<String>,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<Option<T>> {
        spawn(&self.io, name.into(), task)
    }

    /// For work that uses a core for a while: decode, sort, merge, encode, the loop of a job.
    pub fn compute<T: Send + 'static>(
        &self,
        name: impl Into<String>,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<Option<T>> {
        spawn(&self.compute, name.into(), task)
    }
}

fn spawn<T: Send + 'static>(
    on: &Handle,
    name: String,
    task: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<Option<T>> {
    on.spawn(async move {
        match AssertUnwindSafe(task).catch_unwind().await {
            Ok(v) => Some(v),
            Err(panic) => {
                let text = panic
                    .downcast_ref::<&str>()
                    .map(|s| (*s).to_owned())
                    .or_else(|| panic.downcast_ref::<String>().cloned());
                tracing::error!(task = %name, panic = %text.unwrap_or_default(), "task panicked");
                None
            }
        }
    })
}
