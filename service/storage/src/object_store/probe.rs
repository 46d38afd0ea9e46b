//! Start-up check: does the bucket's put-if-absent exclude a concurrent writer?

use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;

use super::{Bucket, Put};
use crate::StorageError;

const RACES: usize = 8;
const WRITERS: usize = 4;

/// Races a few puts on scratch keys and reads the winner back. Some stores answer 412 in a sequential test and still let two concurrent writers win,
/// which would break R1; such a bucket is refused.
pub async fn probe(bucket: &Arc<Bucket>) -> Result<(), StorageError> {
    let refuse =
        |what: String| StorageError::InvalidOption { what: format!("object_store.url {}: {what}", bucket.name()) };
    for _ in 0..RACES {
        let path = format!("probe/{:032x}", rand::random::<u128>());
        let outcomes =
            join_all((0..WRITERS).map(|w| bucket.put_if_absent(&path, Bytes::from(format!("writer {w}"))))).await;
        let outcomes = outcomes.into_iter().collect::<Result<Vec<_>, _>>()?;
        let winners: Vec<usize> = (0..WRITERS).filter(|w| outcomes[*w] == Put::Won).collect();
        let kept = bucket.get(&path).await?;
        let again = bucket.put_if_absent(&path, Bytes::from_static(b"late writer")).await?;
        bucket.delete(&path).await?;
        match winners.as_slice() {
            [w] if kept.as_deref() == Some(format!("writer {w}").as_bytes()) && again == Put::Exists => {}
            [_] => return Err(refuse("put-if-absent does not keep what the winner wrote".to_owned())),
            _ => return Err(refuse(format!("put-if-absent let {} concurrent writers win", winners.len()))),
        }
    }
    Ok(())
}
