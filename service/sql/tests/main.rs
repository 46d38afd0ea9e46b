//! Tests of millstream-sql.
