//! Jobs: [`service`] is the door, [`supervision`] keeps one job alive, [`task`] is its loop, [`status`] what is told about it.

pub mod service;
pub(crate) mod shared;
pub mod status;
pub(crate) mod supervision;
pub(crate) mod task;

/// Stops a task with its owner. For a commit in flight that leaves an unknown outcome, which the next start resolves.
#[derive(Debug)]
pub(crate) struct AbortOnDrop<T>(pub(crate) tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Of the one producer of a job. Whoever initialises it ends what its predecessor left open.
pub(crate) fn transactional_id(prefix: &str, job: millstream_types::JobId) -> String {
    format!("{prefix}.{job}")
}
