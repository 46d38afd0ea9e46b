//! Section `stream`: the stream engine.

use std::time::Duration;

use crate::{
    section::{at_least, between, section},
    units::ByteSize,
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

section! {
    /// The stream engine: barriers, checkpoints, state, backfill.
    pub struct Stream {
        /// Time between two barriers, 50ms to 60s.
        ///
        /// Shorter: views and derived topics are fresher, but every job commits more and smaller Kafka transactions.
        /// Longer: fewer requests; a `read_committed` consumer waits up to this time plus one commit.
        barrier_interval: Duration = SECOND, between(Duration::from_millis(50), MINUTE);

        /// Epochs of one job between computing and committed. One more computes while one commits; further ones only use memory.
        max_in_flight: usize = 2, between(1, 16);

        /// Rows of one chunk between operators.
        ///
        /// More: less work per row. Less: less memory and shorter pauses.
        chunk_rows: usize = 8_192, between(64, 131_072);

        /// Rows a job takes in one epoch while it catches up, so that its first output does not wait for the whole backlog.
        catchup_rows: u64 = 100_000, at_least(1);

        /// Start every job paused: look at a broken pipeline without running it. Resume by REST.
        start_paused: bool = false;

        /// Wait before a failed job is started again; doubles with each failure.
        restart_backoff_min: Duration = SECOND, at_least(Duration::from_millis(1));

        /// Longest wait before a failed job is started again.
        restart_backoff_max: Duration = MINUTE, at_least(Duration::from_millis(1));

        /// Failures in a row after which a job is left stopped for a person to look at.
        quarantine_after: u32 = 10, at_least(1);

        /// Commits of epochs.
        checkpoint: Checkpoint = Checkpoint::default();

        /// State of operators.
        state: State = State::default();

        /// Filling a new view from the rows that are already there.
        backfill: Backfill = Backfill::default();
    }
}

section! {
    /// Commits of epochs.
    pub struct Checkpoint {
        /// Limit of one commit. After it the outcome counts as unknown and is read back.
        commit_timeout: Duration = SECOND * 30, between(SECOND, MINUTE * 10);

        /// After this time the broker aborts a transaction whose process is gone; until then it blocks `read_committed` consumers.
        /// At least twice `stream.checkpoint.commit_timeout`, at most the broker's `transaction.max.timeout.ms` (15m).
        transaction_timeout: Duration = MINUTE, between(SECOND * 2, MINUTE * 15);

        /// A job without input saves its position this often instead of at every barrier.
        idle_interval: Duration = SECOND * 10, between(Duration::from_millis(100), Duration::from_secs(3600));

        /// Output of one epoch of one job held in memory; an epoch that reaches it ends early.
        output_bytes: ByteSize = ByteSize::mib(128), at_least(ByteSize::mib(1));
    }
}

section! {
    /// State of operators.
    pub struct State {
        /// Memory for the working state of all jobs together, such as accumulators by group. What does not fit is read from the state's region again.
        cache_bytes: ByteSize = ByteSize::mib(256), at_least(ByteSize::mib(1));
    }
}

section! {
    /// Filling a new view from the rows that are already there.
    pub struct Backfill {
        /// Changes that may gather below the snapshot position of an append-only input before the backfill rather restarts at a newer snapshot.
        follow_max_rows: u64 = 5_000_000, at_least(1);

        /// Time a backfill reads in one epoch before it lets the barrier pass.
        ///
        /// Longer: faster backfill. Shorter: live changes of the same view are fresher meanwhile.
        quantum: Duration = Duration::from_millis(200), between(Duration::from_millis(1), MINUTE);

        /// Rows a backfill reads in one epoch at least, also when its time is used up, so that it always gets on.
        quantum_rows: u64 = 8_192, at_least(1);

        /// Most snapshot rows per second of one backfill; `null`: no limit. Spares brokers and bucket while others use them.
        rate_limit: Option<u64> = None, at_least(1);

        /// Backfills at the same time; others wait their turn.
        max_concurrent: usize = 4, between(1, 1_024);
    }
}
