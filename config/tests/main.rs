//! Goal: a wrong file never starts a service, and the person who wrote it learns every mistake with its key and the way out.
//!
//! Method: `testdata/bad/*.yaml` open with the expected messages as `#! ` lines; `testdata/v1/` keeps samples of past files; the generated reference
//! and schema are compared with the types.
