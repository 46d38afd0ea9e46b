//! millstream-format
