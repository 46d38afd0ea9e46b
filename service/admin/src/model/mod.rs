//! The shapes of REST: one file a resource. Data only; where they come from is `adapt` and the routes.

pub mod job;
pub mod object;
pub mod region;
pub mod sql;
