//! Room for recursion that is not ours: the parser's trees, DataFusion's planner and its operators call themselves once a level.
//!
//! [`parser::depth`](crate::parser) and [`planner::bounds`](crate::planner) bound the levels; here every one of them gets its stack, whatever thread
//! it runs on. A stack is mapped when a call needs it and costs only the pages that are touched.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use datafusion::common::runtime::{JoinSetTracer, set_join_set_tracer};
use futures::{FutureExt, future::BoxFuture};

/// Mapped at once, touched as needed.
const STACK: usize = 64 << 20;
/// With less than this a call moves to a new stack. More than a worker thread has, so that its first call moves.
const RED_ZONE: usize = 16 << 20;

/// Runs `work` with a large stack.
pub(crate) fn grown<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(RED_ZONE, STACK, work)
}

/// Whether a call that goes deeper may not come back. For what calls itself within [`grown`].
pub(crate) fn is_short() -> bool {
    const LEAST: usize = 8 << 20;
    stacker::remaining_stack().is_some_and(|left| left < LEAST)
}

/// A future that is polled and dropped with a large stack.
pub(crate) struct Deep<F>(Option<Pin<Box<F>>>);

impl<F: Future> Deep<F> {
    pub(crate) fn new(work: F) -> Self {
        Self(Some(Box::pin(work)))
    }
}

impl<F> Unpin for Deep<F> {}

impl<F: Future> Future for Deep<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        grown(|| {
            let work = self.0.as_mut().expect("a future is not polled after it was ready");
            let polled = work.as_mut().poll(cx);
            if polled.is_ready() {
                self.0 = None;
            }
            polled
        })
    }
}

impl<F> Drop for Deep<F> {
    fn drop(&mut self) {
        if let Some(work) = self.0.take() {
            grown(|| drop(work));
        }
    }
}

struct DeepTasks;

impl JoinSetTracer for DeepTasks {
    fn trace_future(
        &self,
        task: BoxFuture<'static, Box<dyn std::any::Any + Send>>,
    ) -> BoxFuture<'static, Box<dyn std::any::Any + Send>> {
        Deep::new(task).boxed()
    }

    fn trace_block(
        &self,
        block: Box<dyn FnOnce() -> Box<dyn std::any::Any + Send> + Send>,
    ) -> Box<dyn FnOnce() -> Box<dyn std::any::Any + Send> + Send> {
        Box::new(move || grown(block))
    }
}

/// The tasks that DataFusion starts for a part of a query get their stack, too. For the process, once.
pub(crate) fn deepen_tasks() {
    // set already: by an earlier service of this process
    drop(set_join_set_tracer(&DeepTasks));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses about `levels` KiB.
    fn recurse(levels: usize) -> usize {
        let page = std::hint::black_box([levels as u8; 1024]);
        if levels == 0 { usize::from(page[0]) } else { recurse(levels - 1) + usize::from(page[1023] == levels as u8) }
    }

    #[test]
    fn a_future_on_a_small_thread_may_recurse_for_many_megabytes_in_poll_and_in_drop() {
        struct OnDrop;
        impl Drop for OnDrop {
            fn drop(&mut self) {
                assert!(recurse(12 << 10) > 0);
            }
        }
        let small = std::thread::Builder::new().stack_size(256 << 10).spawn(|| {
            let last = OnDrop;
            let work = Deep::new(async move {
                let n = recurse(12 << 10);
                std::future::pending::<()>().await;
                drop(last);
                n
            });
            assert!(work.now_or_never().is_none());
            Deep::new(async { recurse(12 << 10) }).now_or_never()
        });
        assert!(small.unwrap().join().unwrap().is_some_and(|n| n > 0));
    }
}
