//! millstream-kafka
