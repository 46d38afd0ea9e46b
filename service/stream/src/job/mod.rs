//! Jobs: [`service`] is the door, [`supervision`] keeps one job alive, [`task`] is its loop, [`status`] what is told about it.

pub mod service;
pub mod status;
pub(crate) mod shared;
pub(crate) mod supervision;
pub(crate) mod task;
