//! Configuration of Millstream: one typed YAML file, `${..}` substitution, environment overrides, rules over several keys, generated reference.
//!
//! Owns: every key with its default, limits and meaning ([`Config`] and its sections), loading, validation, the texts of `config/reference.yaml` and
//! `config/schema.json`. Not here: what a key does (the crate that uses it says so), live checks against Kafka or the bucket (`millstream check`), and
//! command-line flags (`service/server`).
//!
//! The path of a value: file text -> YAML tree -> [`substitute`] (`${ENV}`, `${ENV:-default}`, `${file:/path}`) -> [`environment`] overrides
//! (`MILLSTREAM__SECTION__KEY`) -> [`field`] reading into a [`Config`] that starts as the defaults -> [`validate`]. Every step collects problems instead
//! of stopping at the first, so one run shows everything that is wrong.

mod environment;
mod error;
mod field;
pub mod reference;
mod secret;
mod section;
mod sections;
mod substitute;
mod units;
mod validate;

use std::{fs, path::Path};

pub use environment::Environment;
pub use error::{ConfigError, Problem};
pub use secret::Secret;
pub use sections::{
    Auth, Backfill, Broker, BrokerFsync, BucketUrl, Cache, Checkpoint, Cluster, Compaction, Config, Flush, Gc, Kafka,
    LogFormat, ObjectStore, Pins, SaslMechanism, SecurityProtocol, Server, Sql, Sst, State, Storage, Stream, Telemetry,
    Wal,
};
pub use units::{ByteSize, format_duration, parse_duration};

use field::{Field, Reader};

impl Config {
    /// Reads, substitutes, overrides and validates the file at `path` with the environment of this process.
    ///
    /// Keys that only serving needs (`kafka.bootstrap_servers`, `object_store.url`) may be missing here: see [`Config::validate_serve`].
    pub fn load(path: impl AsRef<Path>) -> Result<Config, ConfigError> {
        Self::load_with(path, &Environment::process())
    }

    /// [`Config::load`] with an environment of the caller's choice.
    pub fn load_with(path: impl AsRef<Path>, environment: &Environment) -> Result<Config, ConfigError> {
        let path = path.as_ref();
        let text = fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::parse(&text, &path.display().to_string(), environment)
    }

    /// Defaults and environment of this process, without a file.
    pub fn from_environment() -> Result<Config, ConfigError> {
        Self::parse("", "environment", &Environment::process())
    }

    /// Reads `text` with an empty environment: the result depends on nothing but the text and the `${file:..}` it names.
    pub fn from_yaml(text: &str) -> Result<Config, ConfigError> {
        Self::from_yaml_with(text, &Environment::empty())
    }

    pub fn from_yaml_with(text: &str, environment: &Environment) -> Result<Config, ConfigError> {
        Self::parse(text, "config", environment)
    }

    /// The whole configuration as YAML, secrets as `***`: for `millstream check` and support requests.
    pub fn to_yaml(&self) -> String {
        reference::plain_yaml(&self.show())
    }

    fn parse(text: &str, origin: &str, environment: &Environment) -> Result<Config, ConfigError> {
        let mut tree =
            serde_yaml_ng::from_str(text).map_err(|source| ConfigError::Yaml { origin: origin.to_owned(), source })?;
        let mut problems = substitute::substitute(&mut tree, environment);
        let overrides = environment::apply_overrides(&mut tree, environment, &mut problems);
        let mut reader = Reader::new(problems, overrides);
        let mut config = Config::default();
        config.read(&tree, &mut reader);
        let mut problems = reader.into_problems();
        // Rules over several keys only make sense when each key could be read.
        if problems.is_empty() {
            problems = config.problems();
        }
        if problems.is_empty() { Ok(config) } else { Err(ConfigError::Invalid { origin: origin.to_owned(), problems }) }
    }
}
