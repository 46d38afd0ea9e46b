//! The guard of topic-fed regions: sees in time that unflushed records may expire, that the log start passed a paused reader, that the topic is not the one
//! it was, or that it has partitions that nobody reads.
//!
//! Owns: the periodic look and the pure headroom rule. Not here: what the worker does about it (`worker/handle_topic`).

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use millstream_types::{Seq, TableId, TopicInfo, TopicPartition, error::chain};

use crate::{
    WalBinding,
    context::Context,
    region::{RegionShared, state::RegionState},
    request::Notice,
};

/// Partitions looked at at a time.
const PARALLEL: usize = 16;

/// One look at all topic-fed regions. Errors only delay the next look.
pub(crate) async fn look(ctx: &Context, regions: Vec<Arc<RegionShared>>) {
    let mut topics: HashMap<Arc<str>, Option<TopicInfo>> = HashMap::new();
    for region in &regions {
        let WalBinding::Topic { partition, .. } = &region.wal else { continue };
        if !topics.contains_key(&partition.topic) {
            let info = match ctx.logs.admin().describe(&partition.topic).await {
                Ok(info) => info,
                Err(e) => {
                    tracing::debug!(topic = %partition.topic, error = %chain(&e), "cannot describe a topic, the next look tries again");
                    continue;
                }
            };
            topics.insert(partition.topic.clone(), info);
        }
    }
    report_unread(ctx, &regions, &topics);
    let topics = &topics;
    stream::iter(regions.clone())
        .for_each_concurrent(PARALLEL, |region| async move { look_at(ctx, &region, topics).await })
        .await;
    report_lag(ctx, &regions);
}

async fn look_at(ctx: &Context, region: &Arc<RegionShared>, topics: &HashMap<Arc<str>, Option<TopicInfo>>) {
    let WalBinding::Topic { partition, topic_id, .. } = &region.wal else { return };
    let cell = region.cell.borrow().clone();
    if !cell.state.is_live() {
        return;
    }
    let info = topics.get(&partition.topic).and_then(Option::as_ref);
    if let Some(info) = info
        && let Some(reason) = recreated(partition, topic_id, info)
    {
        region.worker.notice(Notice::Quarantine { region: region.clone(), reason }).await;
        return;
    }
    let ends = match ctx.logs.log(partition).offsets().await {
        Ok(ends) => ends,
        Err(e) => {
            tracing::debug!(region = %region.id, %partition, error = %chain(&e), "cannot ask for the ends of a topic, the next look tries again");
            return;
        }
    };
    region.set_wal_ends(ends.start.into(), ends.stable.into());
    let applied = cell.version.applied;
    // A log start above `applied` is the reader's to find: it may be far ahead of what is applied. A log that ends below is not our log any more.
    if cell.state == RegionState::Writable && Seq::from(ends.high_watermark) < applied {
        let notice = Notice::OutOfRange {
            region: region.clone(),
            wanted: applied,
            start: ends.start.into(),
            end: ends.high_watermark.into(),
        };
        region.worker.notice(notice).await;
        return;
    }
    let retention_ms = info.and_then(|i| i.config.get("retention.ms")).and_then(|v| v.parse::<i64>().ok());
    if let (Some(retention_ms), Some(oldest)) = (retention_ms, cell.oldest_record_ms)
        && let Some(headroom_ms) = headroom(retention_ms, oldest, ctx.clock.now_ms())
        && headroom_ms < urgent_below(retention_ms, ctx.config.flush.retention_flush_below)
    {
        region.worker.notice(Notice::FlushUrgently { region: region.clone(), headroom_ms }).await;
    }
}

/// Partitions that were added since CREATE: their records are in no table, which must not stay unseen.
fn report_unread(ctx: &Context, regions: &[Arc<RegionShared>], topics: &HashMap<Arc<str>, Option<TopicInfo>>) {
    let mut read: HashMap<TableId, i32> = HashMap::new();
    for region in regions {
        if let WalBinding::Topic { partition, .. } = &region.wal {
            let partitions = read.entry(region.id.table).or_default();
            *partitions = (*partitions).max(partition.partition + 1);
        }
    }
    for region in regions {
        let WalBinding::Topic { partition, topic_id, .. } = &region.wal else { continue };
        let Some(info) = topics.get(&partition.topic).and_then(Option::as_ref) else { continue };
        if recreated(partition, topic_id, info).is_some() {
            continue;
        }
        let unread = (info.partitions - read[&region.id.table]).max(0);
        ctx.metrics.unread_partitions.with_label_values(&[&region.table_name]).set(unread.into());
        if region.set_unread(unread)
            && let Some(what) = region.incomplete()
        {
            tracing::error!(region = %region.id, table = %region.table_name, what, "records are not read");
        }
    }
}

/// Records between position and log end, added up per table.
fn report_lag(ctx: &Context, regions: &[Arc<RegionShared>]) {
    let mut lag: HashMap<&str, i64> = HashMap::new();
    for region in regions {
        if let (_, Some(end)) = region.wal_ends() {
            *lag.entry(&region.table_name).or_default() += (end.0 - region.applied().0).max(0);
        }
    }
    for (table, records) in lag {
        ctx.metrics.tail_lag.with_label_values(&[table]).set(records);
    }
}

/// Why the topic is another one than at CREATE; brokers without topic ids cannot tell.
pub(crate) fn recreated(partition: &TopicPartition, topic_id: &str, info: &TopicInfo) -> Option<String> {
    let known = !topic_id.is_empty() && !info.topic_id.is_empty();
    (known && info.topic_id != topic_id).then(|| {
        format!(
            "topic {} was deleted and created again (topic id {topic_id}, now {}): drop the table and create it again",
            partition.topic, info.topic_id
        )
    })
}

/// Time until the oldest unflushed record may be removed; `None` = kept for ever.
fn headroom(retention_ms: i64, oldest_record_ms: i64, now_ms: u64) -> Option<u64> {
    let retention = u64::try_from(retention_ms).ok()?;
    let expires = u64::try_from(oldest_record_ms).ok()?.saturating_add(retention);
    Some(expires.saturating_sub(now_ms))
}

/// A topic that keeps less than 40 minutes would be urgent always; a quarter of its retention is what it can give.
fn urgent_below(retention_ms: i64, configured: Duration) -> u64 {
    let retention = u64::try_from(retention_ms).unwrap_or(u64::MAX);
    let configured = configured.as_millis() as u64;
    if retention < configured.saturating_mul(4) { retention / 4 } else { configured }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headroom_table() {
        assert_eq!(headroom(-1, 0, 100), None);
        assert_eq!(headroom(1000, 50, 100), Some(950));
        assert_eq!(headroom(1000, 50, 5000), Some(0));
        let ten_minutes = Duration::from_secs(600);
        assert_eq!(urgent_below(7 * 24 * 3_600_000, ten_minutes), 600_000);
        assert_eq!(urgent_below(20 * 60_000, ten_minutes), 300_000);
    }
}
