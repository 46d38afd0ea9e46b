//! Where the last N records of a partition begin. Offsets are no count of records: markers of transactions, aborted records and compacted ones have offsets too.
//! So the end is read, and what is before it, in pieces that double, until there are enough.

use std::{collections::VecDeque, time::Duration};

use millstream_types::{LogEvent, LogStore, Offset};
use tokio::time::{Instant, timeout_at};

use super::{consume::Trouble, place::Bounds};

/// Offsets of the first piece at least: opening a reader costs more than reading these.
const FIRST_PIECE: i64 = 256;

/// `limit` bounds the time without an answer.
pub(crate) async fn first_of(
    n: i64,
    log: &dyn LogStore,
    bounds: Bounds,
    limit: Option<Duration>,
) -> Result<i64, Trouble> {
    let mut missing = usize::try_from(n).unwrap_or(usize::MAX);
    let (mut end, mut piece) = (bounds.end, n.max(FIRST_PIECE));
    while missing > 0 && end > bounds.start {
        let from = end.saturating_sub(piece).max(bounds.start);
        let found = last_of_piece(missing, log, from, end, limit).await?;
        if found.len() == missing {
            return Ok(found[0]);
        }
        missing -= found.len();
        (end, piece) = (from, piece.saturating_mul(2));
    }
    Ok(bounds.start)
}

/// Offsets of the last `n` records of `from..end`.
async fn last_of_piece(
    n: usize,
    log: &dyn LogStore,
    from: i64,
    end: i64,
    limit: Option<Duration>,
) -> Result<VecDeque<i64>, Trouble> {
    let mut reader = log.read(Offset(from)).await.map_err(Trouble::Final)?;
    let (mut found, mut position, mut heard, mut last) = (VecDeque::new(), from, Instant::now(), None);
    while position < end {
        let event = match limit {
            None => reader.next().await,
            Some(limit) => timeout_at(heard + limit, reader.next()).await.map_err(|_| Trouble::Silence(last.take()))?,
        };
        position = match event {
            LogEvent::Records(batch) => {
                for offset in batch.offsets.iter().filter(|o| **o < end) {
                    if found.len() == n {
                        found.pop_front();
                    }
                    found.push_back(*offset);
                }
                batch.next.0
            }
            LogEvent::Position { next } => next.0,
            LogEvent::EndReached { end } => end.0,
            other => {
                last = Trouble::unless_it_heals(other)?;
                continue;
            }
        };
        heard = Instant::now();
    }
    Ok(found)
}
