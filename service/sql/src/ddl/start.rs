//! `scan.startup.mode` -> one number per partition. Resolved once, before the first fetch, and stored: `latest` must mean the same after a restart.

use arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;
use datafusion::sql::sqlparser::tokenizer::Location;
use millstream_types::{PartitionOffsets, Seq, TopicAdmin};

use super::options::OptionReader;
use crate::{SqlError, parser::statement::OptionEntry};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StartMode {
    Earliest,
    Latest,
    Timestamp(i64),
    /// Given partitions; the others start at the earliest.
    Offsets(Vec<(i32, i64)>),
}

impl StartMode {
    pub(super) fn read(options: &mut OptionReader<'_>) -> Result<Self, SqlError> {
        #[derive(Clone, Copy, PartialEq)]
        enum Word {
            Earliest,
            Latest,
            Timestamp,
            Offsets,
        }
        let words = [
            ("earliest", Word::Earliest),
            ("latest", Word::Latest),
            ("timestamp", Word::Timestamp),
            ("offsets", Word::Offsets),
        ];
        let mode = options.choice("scan.startup.mode", &words, "earliest")?;
        let missing = |key: &str| SqlError::option(format!("this scan.startup.mode needs {key}"));
        match mode {
            Word::Timestamp => {
                options.only_with(&["scan.startup.offsets"], "scan.startup.mode = 'offsets'")?;
                let e = options
                    .entry("scan.startup.timestamp")
                    .ok_or_else(|| missing("scan.startup.timestamp = '2026-01-31T10:00:00Z'"))?;
                Ok(StartMode::Timestamp(timestamp_ms(e)?))
            }
            Word::Offsets => {
                options.only_with(&["scan.startup.timestamp"], "scan.startup.mode = 'timestamp'")?;
                let e = options
                    .entry("scan.startup.offsets")
                    .ok_or_else(|| missing("scan.startup.offsets = '0:42,1:17'"))?;
                Ok(StartMode::Offsets(offsets(e)?))
            }
            Word::Earliest | Word::Latest => {
                options.only_with(&["scan.startup.timestamp"], "scan.startup.mode = 'timestamp'")?;
                options.only_with(&["scan.startup.offsets"], "scan.startup.mode = 'offsets'")?;
                Ok(if mode == Word::Latest { StartMode::Latest } else { StartMode::Earliest })
            }
        }
    }

    /// One start per partition. `ends` are those of the topic now.
    pub(super) async fn resolve(
        &self,
        admin: &dyn TopicAdmin,
        topic: &str,
        ends: &[PartitionOffsets],
        options: &OptionReader<'_>,
    ) -> Result<Vec<Seq>, SqlError> {
        Ok(match self {
            StartMode::Earliest => ends.iter().map(|e| e.start.into()).collect(),
            StartMode::Latest => ends.iter().map(|e| e.stable.into()).collect(),
            StartMode::Timestamp(ms) => admin.offsets_at(topic, *ms).await?.into_iter().map(Seq::from).collect(),
            StartMode::Offsets(given) => {
                let at = options.location("scan.startup.offsets").unwrap_or(Location::empty());
                let mut starts: Vec<Seq> = ends.iter().map(|e| e.start.into()).collect();
                for (partition, offset) in given {
                    let refuse = |what: String| SqlError::option(format!("scan.startup.offsets: {what}")).at(at);
                    let Some(end) = usize::try_from(*partition).ok().and_then(|p| ends.get(p)) else {
                        return Err(refuse(format!(
                            "topic {topic} has partitions 0 to {}, not {partition}",
                            ends.len() as i64 - 1
                        )));
                    };
                    if *offset < end.start.0 || *offset > end.stable.0 {
                        return Err(refuse(format!(
                            "partition {partition} has offsets {} to {}, not {offset}",
                            end.start, end.stable
                        )));
                    }
                    starts[*partition as usize] = Seq(*offset);
                }
                starts
            }
        })
    }
}

fn timestamp_ms(e: &OptionEntry) -> Result<i64, SqlError> {
    let nanos = string_to_timestamp_nanos(&e.value).map_err(|_| {
        SqlError::option("scan.startup.timestamp must be a time such as '2026-01-31T10:00:00Z'").at(e.value_at)
    })?;
    Ok(nanos.div_euclid(1_000_000))
}

fn offsets(e: &OptionEntry) -> Result<Vec<(i32, i64)>, SqlError> {
    let refuse =
        || SqlError::option("scan.startup.offsets must be partition:offset pairs such as '0:42,1:17'").at(e.value_at);
    let mut pairs: Vec<(i32, i64)> = Vec::new();
    for part in e.value.split(',') {
        let (partition, offset) = part.trim().split_once(':').ok_or_else(refuse)?;
        let pair = (partition.trim().parse().map_err(|_| refuse())?, offset.trim().parse().map_err(|_| refuse())?);
        if pairs.iter().any(|(p, _)| *p == pair.0) {
            return Err(
                SqlError::option(format!("scan.startup.offsets names partition {} twice", pair.0)).at(e.value_at)
            );
        }
        pairs.push(pair);
    }
    Ok(pairs)
}
