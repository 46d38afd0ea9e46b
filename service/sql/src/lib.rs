//! millstream-sql
