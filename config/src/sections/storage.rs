//! Section `storage`: the region engine.

use std::time::Duration;

use super::processors;
use crate::{
    section::{at_least, between, section},
    units::ByteSize,
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

section! {
    /// The region engine: memory, write-ahead log, files, compaction, clean-up.
    pub struct Storage {
        /// Memory for rows that are not in a file yet, of all regions together. At the limit the largest regions are flushed; well above it writes wait.
        ///
        /// More: fewer and larger files, longer replay after a crash. Less: less memory, more compaction.
        write_buffer_bytes: ByteSize = ByteSize::mib(256), at_least(ByteSize::mib(1));

        /// Rows of one region in memory before that region is flushed. Twice this must fit into `storage.write_buffer_bytes`, because one half is filled
        /// while the other is written.
        region_buffer_bytes: ByteSize = ByteSize::mib(64), at_least(ByteSize::kib(64));

        /// Tasks that each own a share of the regions. `null`: half the processors, 1 to 16.
        workers: Option<usize> = None, between(1, 64);

        /// Requests that may wait in front of one worker; a sender then waits in turn.
        mailbox_requests: usize = 256, between(1, 65_536);

        /// How long a write waits for memory before it is refused as exhausted. The sender tries again, nothing is lost.
        stall_wait: Duration = SECOND * 10, between(Duration::ZERO, MINUTE * 10);

        /// How often every region is looked at for a flush or compaction that is due.
        check_interval: Duration = MINUTE, between(Duration::from_millis(100), HOUR);

        /// Writing memory to files.
        flush: Flush = Flush::default();

        /// The files.
        sst: Sst = Sst::default();

        /// Merging of files.
        compaction: Compaction = Compaction::default();

        /// The write-ahead log in Kafka.
        wal: Wal = Wal::default();

        /// Versions kept for jobs that were away.
        pins: Pins = Pins::default();

        /// Deletion of files nobody needs.
        gc: Gc = Gc::default();

        /// Memory for reads.
        cache: Cache = Cache::default();
    }
}

section! {
    /// Writing memory to files.
    pub struct Flush {
        /// A region with rows in memory is flushed after this time at the latest. Bounds how much of the log is replayed after a crash.
        interval: Duration = MINUTE * 15, between(SECOND, HOUR * 24);

        /// Flushes at the same time. `null`: half the processors, at least 2.
        max_concurrent: Option<usize> = None, between(1, 64);
    }
}

section! {
    /// The files.
    pub struct Sst {
        /// Rows of one Parquet row group: the unit of reading, caching and skipping.
        ///
        /// More: better compression. Less: point reads decode less.
        row_group_rows: usize = 131_072, between(1_024, 1_048_576);

        /// A file of a keyed table or view is closed at about this size.
        target_keyed: ByteSize = ByteSize::mib(128), at_least(ByteSize::mib(1));

        /// A file of an append-only table is closed at about this size.
        target_append: ByteSize = ByteSize::mib(256), at_least(ByteSize::mib(1));

        /// zstd level of files written by a flush, 1 to 22: low, because memory waits for them.
        zstd_flush: i32 = 1, between(1, 22);

        /// zstd level of files written by compaction, 1 to 22: these live longer.
        zstd_compact: i32 = 3, between(1, 22);
    }
}

section! {
    /// Merging of files.
    pub struct Compaction {
        /// Files of similar size that are merged into one. Lower: faster reads, more bytes rewritten.
        min_runs: usize = 4, between(2, 64);

        /// Most files merged at once. At twice as many, at least 32, writes to the region wait.
        max_runs: usize = 12, between(2, 64);

        /// Merges at the same time. `null`: a quarter of the processors, at least 1.
        max_concurrent: Option<usize> = None, between(1, 64);

        /// Most bytes one merge reads. Larger files are left as they are.
        max_input_bytes: ByteSize = ByteSize::gib(1), at_least(ByteSize::mib(1));
    }
}

section! {
    /// The write-ahead log in Kafka.
    pub struct Wal {
        /// Limit of one append until the in-sync replicas have it. Must be less than `stream.checkpoint.transaction_timeout`.
        append_deadline: Duration = SECOND * 10, between(Duration::from_millis(100), MINUTE * 10);

        /// How long an append waits for others to share its request.
        linger: Duration = Duration::from_millis(5), between(Duration::ZERO, SECOND);

        /// Rows are put into entries of about this size, one Kafka record each. Must be below the broker's `message.max.bytes`.
        entry_bytes: ByteSize = ByteSize::mib(1), between(ByteSize::kib(16), ByteSize::mib(64));

        /// A row larger than this is refused; a view that would have one stops with reason `row_too_large`. Must be below the broker's `message.max.bytes`.
        max_row_bytes: ByteSize = ByteSize::mib(8), between(ByteSize::kib(1), ByteSize::mib(512));

        /// How often records that every region has flushed are deleted from the log.
        prune_interval: Duration = MINUTE, between(SECOND, HOUR * 24);
    }
}

section! {
    /// Versions kept for jobs that were away.
    pub struct Pins {
        /// How long a job that does not report keeps the versions it has to catch up from. After that it is rebuilt from the snapshot.
        ///
        /// Longer: longer outages are caught up exactly. Shorter: compaction can drop old versions earlier.
        grace: Duration = MINUTE * 15, at_least(SECOND);
    }
}

section! {
    /// Deletion of files nobody needs.
    pub struct Gc {
        /// A file that left the manifest is deleted after this time, so that running reads can end.
        file_grace: Duration = MINUTE * 15, at_least(Duration::ZERO);

        /// How often the bucket is listed for orphans: files of a crash between upload and manifest.
        interval: Duration = HOUR, at_least(SECOND);

        /// An orphan is deleted at this age: twice the 12 hours after which an upload is given up. At least `storage.gc.file_grace`.
        orphan_age: Duration = HOUR * 24, at_least(HOUR * 24);
    }
}

section! {
    /// Memory for reads.
    pub struct Cache {
        /// Decoded row groups.
        pages: ByteSize = ByteSize::mib(64);

        /// Parquet footers: without one a read starts with one more request.
        footers: ByteSize = ByteSize::mib(32);
    }
}

impl Storage {
    /// The configured number of workers, else half the processors, 1 to 16.
    pub fn workers(&self) -> usize {
        self.workers.unwrap_or_else(|| (processors() / 2).clamp(1, 16))
    }
}

impl Flush {
    /// The configured number of flushes, else half the processors, at least 2: one large flush must not hold up all others.
    pub fn max_concurrent(&self) -> usize {
        self.max_concurrent.unwrap_or_else(|| (processors() / 2).max(2))
    }
}

impl Compaction {
    /// The configured number of merges, else a quarter of the processors, at least 1.
    pub fn max_concurrent(&self) -> usize {
        self.max_concurrent.unwrap_or_else(|| (processors() / 4).max(1))
    }
}
