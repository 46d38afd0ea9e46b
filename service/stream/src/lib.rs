//! millstream-stream
