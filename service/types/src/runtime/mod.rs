//! Doors for time and tasks: production uses the real ones, tests a manual clock.

mod clock;
mod tasks;

pub use clock::{Clock, ManualClock, SystemClock};
pub use tasks::Tasks;
