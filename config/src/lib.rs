//! millstream-config
