//! Start-up check: does the bucket's put-if-absent exclude a concurrent writer, and may we read, list and delete? Also: what to do when not.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use millstream_types::{Classified, ErrorKind, error::chain};
use tokio::time::Instant;

use super::{Bucket, Put};
use crate::StorageError;

const RACES: usize = 8;
const WRITERS: usize = 4;
const FOLDER: &str = "probe";

/// Races a few puts on scratch keys and reads the winner back. Some stores answer 412 in a sequential test and still let two concurrent writers win,
/// which would break R1; such a bucket is refused. A race whose outcome got lost on the way says nothing about the bucket and is run again, for as long as
/// the bucket's policy repeats.
pub async fn probe(bucket: &Arc<Bucket>) -> Result<(), StorageError> {
    let (start, mut attempt, mut won) = (Instant::now(), 0, 0);
    while won < RACES {
        let path = format!("{FOLDER}/{:032x}", rand::random::<u128>());
        let Err(error) = race(bucket, &path).await else {
            won += 1;
            continue;
        };
        let wait = bucket.retry_policy().wait(attempt);
        // All requests but the put were repeated for that long already.
        if error.kind() != ErrorKind::Unknown || start.elapsed() + wait > bucket.retry_policy().total {
            return Err(error);
        }
        tracing::debug!(path, attempt, error = %chain(&error), "a race on a scratch object has no outcome, running another");
        tokio::time::sleep(wait).await;
        attempt += 1;
        // What the lost requests may have left. An error is told by the next race.
        let _scratch_may_stay = bucket.delete(&path).await.is_err();
    }
    Ok(())
}

async fn race(bucket: &Arc<Bucket>, path: &str) -> Result<(), StorageError> {
    let refuse =
        |what: String| StorageError::InvalidOption { what: format!("object_store.url {}: {what}", bucket.name()) };
    // Without the permission to list, a bucket answers "denied" for an object that is not there.
    if bucket.get(path).await?.is_some() {
        return Err(refuse(format!("{path} should not be there")));
    }
    let outcomes = join_all((0..WRITERS).map(|w| bucket.put_if_absent(path, Bytes::from(format!("writer {w}"))))).await;
    let outcomes = outcomes.into_iter().collect::<Result<Vec<_>, _>>()?;
    let winners: Vec<usize> = (0..WRITERS).filter(|w| outcomes[*w] == Put::Won).collect();
    let kept = bucket.get(path).await?;
    let listed = bucket.list(FOLDER).await?.iter().any(|o| o.location.as_ref() == path);
    let again = bucket.put_if_absent(path, Bytes::from_static(b"late writer")).await?;
    bucket.delete(path).await?;
    match winners.as_slice() {
        [w] if kept.as_deref() == Some(format!("writer {w}").as_bytes()) && again == Put::Exists => {}
        [_] => return Err(refuse("put-if-absent does not keep what the winner wrote".to_owned())),
        _ => return Err(refuse(format!("put-if-absent let {} concurrent writers win", winners.len()))),
    }
    if !listed {
        return Err(refuse("a listing does not show an object that was just written".to_owned()));
    }
    Ok(())
}

/// The way out of an error of [`probe`] or of opening a bucket, for the person who runs the service.
pub fn remedy(error: &StorageError) -> &'static str {
    let text = chain(error);
    let says = |words: &[&str]| words.iter().any(|w| text.contains(w));
    if says(&["put-if-absent", "a listing does not show"]) {
        "this store cannot keep two writers apart, so two leaders could overwrite each other's manifest: use another store, or a release of it that has atomic conditional puts (`If-None-Match: *`)"
    } else if matches!(error, StorageError::InvalidOption { .. }) {
        "correct section `object_store`"
    } else if says(&["NoSuchBucket"]) {
        "create the bucket, or correct its name in `object_store.url`"
    } else if says(&["169.254.169.254", "169.254.170.2"]) {
        "there are no credentials: set `aws_access_key_id` and `aws_secret_access_key` in `object_store.options` or the environment, or run where a role is given"
    } else if says(&[
        "InvalidAccessKeyId",
        "XAdminUserNotFound",
        "SignatureDoesNotMatch",
        "401 Unauthorized",
        "ExpiredToken",
    ]) {
        "the credentials are wrong: correct key and secret in `object_store.options` or the environment"
    } else if says(&["AccessDenied", "403 Forbidden", "Permission denied"]) {
        "the credentials need to read, write, delete and list objects below `object_store.url`"
    } else if says(&["redirect", "AuthorizationHeaderMalformed"]) {
        "the bucket is in another region: set `aws_region` in `object_store.options`"
    } else if says(&["URL scheme is not allowed"]) {
        "the endpoint is without TLS: use https://, or set `aws_allow_http: \"true\"` in `object_store.options`"
    } else if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown) {
        "does it run at this address (`aws_endpoint` and the like in `object_store.options`), and can it be reached from here?"
    } else if error.kind() == ErrorKind::NotFound {
        "something answers there, but it is not this bucket: correct the endpoint in `object_store.options` or the name in `object_store.url`"
    } else {
        "check `object_store.url` and `object_store.options`: credentials, region, endpoint, permissions"
    }
}
