//! From the configuration file to the settings of each part. Names differ only here: a part's settings are plain values that know nothing of YAML.

use std::{sync::Arc, time::Duration};

use millstream_admin::AdminConfig;
use millstream_config::Config;
use millstream_kafka::{KafkaError, KafkaOptions, Secret, Security};
use millstream_sql::SqlConfig;
use millstream_storage::{
    StorageConfig, StorageError,
    object_store::{Bucket, RetryPolicy},
    wal::entry::EntryLimits,
};
use millstream_stream::StreamConfig;

/// `<prefix>.wal`.
pub(crate) fn wal_topic(config: &Config) -> Arc<str> {
    format!("{}.wal", config.kafka.prefix).into()
}

pub(crate) fn kafka(config: &Config) -> Result<KafkaOptions, KafkaError> {
    let k = &config.kafka;
    let secret = |s: &Option<millstream_config::Secret<String>>| s.as_ref().map(|s| Secret::new(s.expose().clone()));
    let path = |p: &Option<std::path::PathBuf>| p.as_ref().map(|p| p.to_string_lossy().into_owned());
    let security = Security {
        protocol: k.security_protocol.as_str().parse()?,
        sasl_mechanism: k.sasl_mechanism.map(|m| m.as_str().to_owned()),
        sasl_username: k.sasl_username.clone(),
        sasl_password: secret(&k.sasl_password),
        ssl_ca: path(&k.ssl_ca),
        ssl_certificate: path(&k.ssl_certificate),
        ssl_key: path(&k.ssl_key).map(Secret::new),
        ssl_key_password: secret(&k.ssl_key_password),
        ..Security::default()
    };
    Ok(KafkaOptions {
        client_id: k.client_id(&config.server.replica_id()),
        security,
        passthrough: k.passthrough_options().map(|(name, value)| (name, value.to_owned())).collect(),
        request_timeout: k.request_timeout,
        prefetch_bytes: k.prefetch_bytes.as_usize(),
        transaction_timeout: config.stream.checkpoint.transaction_timeout,
        commit_timeout: config.stream.checkpoint.commit_timeout,
        ..KafkaOptions::new(&k.bootstrap_servers)
    })
}

/// Opens the bucket with the patience of the configuration; no request is made yet.
pub(crate) fn bucket(config: &Config) -> Result<Arc<Bucket>, Box<StorageError>> {
    bucket_within(config, config.object_store.retry_total)
}

/// Opens the bucket to repeat a request for at most `total`.
pub(crate) fn bucket_within(config: &Config, total: Duration) -> Result<Arc<Bucket>, Box<StorageError>> {
    let o = &config.object_store;
    let invalid = |what: String| Box::new(StorageError::InvalidOption { what });
    let url = o.url.as_ref().ok_or_else(|| invalid("`object_store.url` is required".to_owned()))?;
    let url = url.to_url().map_err(|e| invalid(format!("`object_store.url`: {e}")))?;
    let options: Vec<(String, String)> = o.options.iter().map(|(k, v)| (k.clone(), v.expose().clone())).collect();
    let retry = RetryPolicy { total, ..RetryPolicy::default() };
    Bucket::open_with(url.as_str(), &options, retry).map_err(Box::new)
}

pub(crate) fn storage(config: &Config) -> StorageConfig {
    let s = &config.storage;
    let mut out = StorageConfig {
        workers: s.workers(),
        mailbox_requests: s.mailbox_requests,
        write_buffer_bytes: s.write_buffer_bytes.as_usize(),
        region_buffer_bytes: s.region_buffer_bytes.as_usize(),
        stall_wait: s.stall_wait,
        check_interval: s.check_interval,
        ..StorageConfig::default()
    };
    out.wal.append_deadline = s.wal.append_deadline;
    out.wal.linger = s.wal.linger;
    out.wal.entry_bytes = s.wal.entry_bytes.as_usize();
    out.wal.max_row_bytes = s.wal.max_row_bytes.as_usize();
    out.wal.prune_interval = s.wal.prune_interval;
    out.flush.interval = s.flush.interval;
    out.flush.max_concurrent = s.flush.max_concurrent();
    out.sst.row_group_rows = s.sst.row_group_rows;
    out.sst.target_keyed_bytes = s.sst.target_keyed.as_usize();
    out.sst.target_append_bytes = s.sst.target_append.as_usize();
    out.sst.zstd_flush = s.sst.zstd_flush;
    out.sst.zstd_compact = s.sst.zstd_compact;
    out.sst.cache_bytes = s.cache.pages.as_usize() + s.cache.footers.as_usize();
    out.compaction.min_runs = s.compaction.min_runs;
    out.compaction.max_runs = s.compaction.max_runs;
    out.compaction.stall_runs = out.compaction.stall_runs.max(2 * s.compaction.max_runs);
    out.compaction.max_concurrent = s.compaction.max_concurrent();
    out.compaction.max_input_bytes = s.compaction.max_input_bytes.as_u64();
    out.pins.grace = s.pins.grace;
    out.gc.file_grace = s.gc.file_grace;
    out.gc.orphan_age = s.gc.orphan_age;
    out.gc.interval = s.gc.interval;
    out
}

pub(crate) fn stream(config: &Config) -> StreamConfig {
    let s = &config.stream;
    StreamConfig {
        barrier_interval: s.barrier_interval,
        max_in_flight: s.max_in_flight,
        chunk_rows: s.chunk_rows,
        quantum_rows: s.backfill.quantum_rows,
        quantum: s.backfill.quantum,
        epoch_bytes: s.checkpoint.output_bytes.as_usize(),
        catchup_rows: s.catchup_rows,
        follow_max_rows: s.backfill.follow_max_rows,
        idle_checkpoint: s.checkpoint.idle_interval,
        commit_timeout: s.checkpoint.commit_timeout,
        wal: EntryLimits {
            entry_bytes: config.storage.wal.entry_bytes.as_usize(),
            max_row_bytes: config.storage.wal.max_row_bytes.as_usize(),
        },
        state_cache_bytes: s.state.cache_bytes.as_usize(),
        restart_backoff_min: s.restart_backoff_min,
        restart_backoff_max: s.restart_backoff_max,
        quarantine_after: s.quarantine_after,
        start_paused: s.start_paused,
        ..StreamConfig::default()
    }
}

pub(crate) fn sql(config: &Config) -> SqlConfig {
    SqlConfig {
        wal_topic: wal_topic(config),
        shards: config.cluster.shards,
        query_memory_bytes: config.sql.query_memory.as_usize(),
        query_timeout: config.sql.query_timeout,
        max_result_rows: config.sql.max_result_rows,
        ..SqlConfig::default()
    }
}

pub(crate) fn admin(config: &Config) -> AdminConfig {
    let defaults = AdminConfig::default();
    // A query must be able to end by its own limit first.
    let request_timeout = defaults.request_timeout.max(config.sql.query_timeout * 2);
    AdminConfig { request_timeout, ..defaults }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_of_the_service_is_closed_to_tables_and_views_with_any_prefix() {
        let mut config = Config::default();
        config.kafka.prefix = "other".into();
        assert_eq!(&*sql(&config).wal_topic, "other.wal");
        assert_eq!(sql(&config).wal_topic, wal_topic(&config));
    }
}
