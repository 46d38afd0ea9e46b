//! One region: the immutable version that readers take.

pub mod version;
