//! Identities that do not mix: tables, regions, jobs, shards, replicas.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A table, a view, or an operator's state table. Given once by the catalog, never used twice.
    TableId(u32)
);
id!(
    /// The running dataflow of one view or sink. Given once by the catalog, never used twice.
    JobId(u64)
);
id!(
    /// One partition of the shared WAL topic with all the regions and jobs logged to it.
    ShardId(u32)
);
id!(
    /// One scan of a table or view in a job's plan; counts from 0 within the job.
    InputId(u16)
);

/// One process of the service, as it names itself in manifests and logs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReplicaId(pub String);

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One slice of a table: the unit of storage and of WAL. For a topic-fed table `number` is the Kafka partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RegionId {
    pub table: TableId,
    pub number: u32,
}

impl RegionId {
    pub fn new(table: TableId, number: u32) -> Self {
        Self { table, number }
    }

    /// One number for WAL entries and progress rows: table in the high half.
    pub fn as_u64(self) -> u64 {
        (u64::from(self.table.0) << 32) | u64::from(self.number)
    }

    pub fn from_u64(v: u64) -> Self {
        Self { table: TableId((v >> 32) as u32), number: v as u32 }
    }

    /// Folder name in the bucket: fixed width, so that a listing is in order.
    pub fn folder(self) -> String {
        format!("{:010}-{:05}", self.table.0, self.number)
    }
}

impl fmt::Display for RegionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.table.0, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_id_survives_its_number() {
        let id = RegionId::new(TableId(7), u32::MAX);
        assert_eq!(RegionId::from_u64(id.as_u64()), id);
        assert_eq!(id.folder(), "0000000007-4294967295");
    }
}
