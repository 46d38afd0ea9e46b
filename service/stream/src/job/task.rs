//! The loop of one job.
