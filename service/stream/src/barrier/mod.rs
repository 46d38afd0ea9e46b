//! Barriers: the injector ticks, every region worker answers with its cut, jobs take the newest answer when they are ready.

pub mod injector;
