//! millstream-admin
