//! SELECT -> job plan. [`streamable`] refuses on the text what cannot be kept up to date, with the place and what to write instead; [`draft`]
//! walks DataFusion's analysed plan and lays out columns; [`job`] binds a draft to ids and regions; [`explain`] prints it.
//! [`bounds`] refuses plans that are too large, [`constants`] those whose constants fail, [`functions`] and [`meter`] bound what a plan makes when it runs.
//! [`threads`] is where planning runs, [`stop`] how it ends early.
//!
//! Only the analysed plan is used, not the optimised one: a plan is built anew at every start and must come out with the same columns, whatever
//! a later version of the optimiser finds better. What speed needs (constant folding, casts off the column, unused columns) is done here.

pub(crate) mod aggregate;
pub(crate) mod bounds;
pub(crate) mod constants;
pub(crate) mod draft;
pub(crate) mod explain;
pub(crate) mod expr;
pub(crate) mod functions;
pub(crate) mod job;
pub(crate) mod meter;
pub(crate) mod session;
pub(crate) mod stop;
pub(crate) mod streamable;
pub(crate) mod threads;
pub(crate) mod walk;
