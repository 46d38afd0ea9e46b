//! millstream-e2e
