//! Section `telemetry`: logs.

use crate::section::{choice, section};

choice! {
    /// How a log line is written.
    pub enum LogFormat {
        /// For people.
        Text = "text",
        /// One JSON object per line.
        Json = "json",
    }
}

section! {
    /// Logs.
    pub struct Telemetry {
        /// text for people, json for machines: one object per line.
        log_format: LogFormat = LogFormat::Text;

        /// Which lines are written: error, warn, info, debug or trace, also by module: `info,millstream_storage=debug`.
        log_level: String = "info".to_owned();
    }
}
