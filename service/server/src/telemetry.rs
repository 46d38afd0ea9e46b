//! Log lines on standard error, and panics as log lines. Standard output belongs to the command.

use std::{io::IsTerminal, panic};

use millstream_config::{LogFormat, Telemetry};
use tracing_subscriber::{EnvFilter, fmt, prelude::*};

/// The log level is no level.
#[derive(Debug, thiserror::Error)]
#[error(
    "`telemetry.log_level` is {level:?}: write error, warn, info, debug or trace, or by module: info,millstream_storage=debug"
)]
pub(crate) struct BadLevel {
    level: String,
    #[source]
    source: tracing_subscriber::filter::ParseError,
}

/// Call once per process.
pub(crate) fn init(config: &Telemetry) -> Result<(), BadLevel> {
    let filter =
        EnvFilter::try_new(&config.log_level).map_err(|source| BadLevel { level: config.log_level.clone(), source })?;
    let lines = fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(filter);
    match config.log_format {
        LogFormat::Text => registry.with(lines.with_ansi(std::io::stderr().is_terminal())).init(),
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).init(),
    }
    log_panics();
    Ok(())
}

/// Changes which lines are shown on standard error from now on; a level that is none changes nothing.
#[cfg(feature = "dev")]
pub(crate) type Show = Box<dyn Fn(&str) + Send + Sync>;

/// Log lines at `config.log_level` to a file, and those from `shown` on to standard error, too. Call once per process.
#[cfg(feature = "dev")]
pub(crate) fn init_file(config: &Telemetry, file: std::fs::File, shown: &str) -> Result<Show, BadLevel> {
    use tracing_subscriber::{Layer, reload};
    let level = |level: &str| EnvFilter::try_new(level).map_err(|source| BadLevel { level: level.to_owned(), source });
    let lines = fmt::layer().with_ansi(false).with_writer(std::sync::Mutex::new(file));
    let person = fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal());
    let (filter, handle) = reload::Layer::new(level(shown)?);
    tracing_subscriber::registry()
        .with(lines.with_filter(level(&config.log_level)?))
        .with(person.with_filter(filter))
        .init();
    log_panics();
    Ok(Box::new(move |shown| {
        let changed = EnvFilter::try_new(shown).map(|filter| handle.reload(filter));
        if !matches!(changed, Ok(Ok(()))) {
            tracing::debug!(shown, "the lines that are shown could not be changed");
        }
    }))
}

/// A panic in a task stops that task only; its line must be where all other lines are.
fn log_panics() {
    panic::set_hook(Box::new(|info| {
        let payload = info.payload();
        let text =
            payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let location = info.location().map(ToString::to_string).unwrap_or_default();
        let thread = std::thread::current().name().unwrap_or("unnamed").to_owned();
        let backtrace = std::backtrace::Backtrace::capture();
        tracing::error!(panic = text.unwrap_or("?"), %location, %thread, %backtrace, "panicked");
    }));
}
