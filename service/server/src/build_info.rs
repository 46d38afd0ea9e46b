//! Which build this is.

pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Set by the image build; a build from a working copy has none.
pub(crate) const COMMIT: &str = match option_env!("MILLSTREAM_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};
