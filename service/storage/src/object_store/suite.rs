//! What every kind of bucket must do: in memory, in a folder, on an S3 server, and under every decorator. Behind the cargo feature `testing`.
//!
//! Method: each case works in a folder of its own below a prefix that the caller keeps unique. `race` and `manifest_race` take several clients of one
//! bucket. Defends R1, R4.

use std::{collections::BTreeSet, future::Future, sync::Arc};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, future::join_all, stream};
use millstream_types::{
    Classified, Column, ErrorKind, LeaderEpoch, RegionId, Seq, ShardId, SqlType, TableId, TableSchema,
    runtime::SystemClock,
};

use super::{Bucket, PART_BYTES, Put, Slot, Upload, VersionedLog};
use crate::{
    WalBinding,
    manifest::{Action, Edit, Store, StoreContext},
};

/// Runs all cases of one client, one after the other.
///
/// # Panics
/// If the bucket behaves otherwise than [`Bucket`] promises.
pub async fn run(bucket: &Arc<Bucket>, prefix: &str) {
    whole_objects(bucket, &format!("{prefix}/whole")).await;
    the_first_put_stays(bucket, &format!("{prefix}/absent")).await;
    ranges(bucket, &format!("{prefix}/ranges")).await;
    listings(bucket, &format!("{prefix}/list")).await;
    names_are_taken_as_they_are(bucket, &format!("{prefix}/names")).await;
    what_is_missing_is_missing(bucket, &format!("{prefix}/missing")).await;
    uploads(bucket, &format!("{prefix}/uploads")).await;
    more_than_one_page(bucket, &format!("{prefix}/pages")).await;
}

/// An answer that the case cannot do without.
async fn ok<T>(answer: impl Future<Output = Result<T, crate::StorageError>>) -> T {
    answer.await.unwrap_or_else(|e| panic!("{}", millstream_types::error::chain(&e)))
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

async fn names(bucket: &Bucket, folder: &str) -> Vec<String> {
    let mut names: Vec<String> =
        ok(bucket.list(folder)).await.into_iter().map(|o| o.location.as_ref().to_owned()).collect();
    names.sort();
    names
}

async fn whole_objects(bucket: &Bucket, at: &str) {
    let path = format!("{at}/x");
    for content in ["one", "", "three"] {
        ok(bucket.put(&path, bytes(content))).await;
        assert_eq!(ok(bucket.get(&path)).await, Some(bytes(content)), "put replaces");
        assert_eq!(ok(bucket.head(&path)).await.map(|m| m.size), Some(content.len() as u64));
    }
    ok(bucket.delete(&path)).await;
    assert_eq!(ok(bucket.get(&path)).await, None);
}

async fn the_first_put_stays(bucket: &Bucket, at: &str) {
    let path = format!("{at}/x");
    assert_eq!(ok(bucket.put_if_absent(&path, bytes("first"))).await, Put::Won);
    assert_eq!(ok(bucket.put_if_absent(&path, bytes("second"))).await, Put::Exists);
    assert_eq!(ok(bucket.put_if_absent(&path, bytes("first"))).await, Put::Exists, "equal bytes exist, too");
    assert_eq!(ok(bucket.get(&path)).await, Some(bytes("first")));
    ok(bucket.delete(&path)).await;
    assert_eq!(ok(bucket.put_if_absent(&path, bytes("third"))).await, Put::Won, "a deleted name is free");
    assert_eq!(ok(bucket.put_if_absent(&format!("{at}/empty"), Bytes::new())).await, Put::Won);
    assert_eq!(ok(bucket.put_if_absent(&format!("{at}/empty"), bytes("x"))).await, Put::Exists);
}

async fn ranges(bucket: &Bucket, at: &str) {
    let path = format!("{at}/x");
    ok(bucket.put(&path, bytes("0123456789"))).await;
    assert_eq!(ok(bucket.get_range(&path, 0..4)).await, bytes("0123"));
    assert_eq!(ok(bucket.get_range(&path, 9..10)).await, bytes("9"));
    assert_eq!(ok(bucket.get_ranges(&path, &[0..1, 4..6, 5..10])).await, [bytes("0"), bytes("45"), bytes("56789")]);
    let none = bucket.get_range(&format!("{at}/none"), 0..4).await.expect_err("there is no such object");
    assert_eq!(none.kind(), ErrorKind::NotFound, "{none}");
}

async fn listings(bucket: &Bucket, at: &str) {
    for name in ["a/1", "a/2", "a/b/3", "ab/4", "c"] {
        ok(bucket.put(&format!("{at}/{name}"), bytes(name))).await;
    }
    let full = |all: &[&str]| all.iter().map(|n| format!("{at}/{n}")).collect::<Vec<_>>();
    assert_eq!(names(bucket, at).await, full(&["a/1", "a/2", "a/b/3", "ab/4", "c"]));
    assert_eq!(names(bucket, &format!("{at}/a")).await, full(&["a/1", "a/2", "a/b/3"]), "a folder, not a prefix");
    let mut after: Vec<String> = ok(bucket.list_after(&format!("{at}/a"), &format!("{at}/a/1")))
        .await
        .into_iter()
        .map(|o| o.location.as_ref().to_owned())
        .collect();
    after.sort();
    assert_eq!(after, full(&["a/2", "a/b/3"]), "above the offset, without it");
    let mut children = ok(bucket.list_children(at)).await;
    children.sort();
    assert_eq!(children, ["a", "ab", "c"]);
    assert_eq!(ok(bucket.delete_folder(&format!("{at}/a"))).await, 3);
    assert_eq!(names(bucket, at).await, full(&["ab/4", "c"]));
}

/// Our own names are plain; a bucket that is shared has others, and a listing must give names that can be read and deleted.
async fn names_are_taken_as_they_are(bucket: &Bucket, at: &str) {
    let odd = [
        "space and+plus",
        "per%20cent",
        "100%",
        "hash#and?question",
        "amp&lt;<less>",
        "'quotes\"",
        "ünïcødé-鍵",
        "tilde~caret^",
        "[brackets]{braces}",
        "back\\slash",
        "comma,semi;colon:at@equals=dollar$",
        "..dots..",
        "star*pipe|bar",
    ];
    for name in odd {
        let path = format!("{at}/{name}");
        assert_eq!(ok(bucket.put_if_absent(&path, bytes(name))).await, Put::Won, "{name}");
        assert_eq!(ok(bucket.put_if_absent(&path, bytes("other"))).await, Put::Exists, "{name}");
        assert_eq!(ok(bucket.get(&path)).await, Some(bytes(name)), "{name}");
        assert!(ok(bucket.head(&path)).await.is_some(), "{name}");
    }
    let expected: BTreeSet<String> = odd.iter().map(|n| format!("{at}/{n}")).collect();
    assert_eq!(names(bucket, at).await.into_iter().collect::<BTreeSet<_>>(), expected);
    let children: BTreeSet<String> = ok(bucket.list_children(at)).await.into_iter().collect();
    assert_eq!(children, odd.iter().map(|n| (*n).to_owned()).collect());
    ok(bucket.delete(&format!("{at}/100%"))).await;
    assert_eq!(ok(bucket.delete_folder(at)).await, odd.len() - 1);
    assert_eq!(names(bucket, at).await, Vec::<String>::new());
}

async fn what_is_missing_is_missing(bucket: &Bucket, at: &str) {
    let path = format!("{at}/none");
    assert_eq!(ok(bucket.get(&path)).await, None);
    assert!(ok(bucket.head(&path)).await.is_none());
    ok(bucket.delete(&path)).await;
    ok(bucket.delete(&path)).await;
    assert_eq!(ok(bucket.list_children(at)).await, Vec::<String>::new());
    assert_eq!(ok(bucket.delete_folder(at)).await, 0);
    // A name below an object is nothing, too: in a folder the object is a file.
    ok(bucket.put(&format!("{at}/file"), bytes("x"))).await;
    assert_eq!(ok(bucket.get(&format!("{at}/file2"))).await, None);
}

async fn uploads(bucket: &Arc<Bucket>, at: &str) {
    let piece: Vec<u8> = (0..3_000_001u32).map(|i| (i / 7) as u8).collect();
    for (name, size) in [("empty", 0), ("one", 1), ("part", PART_BYTES), ("parts", 2 * PART_BYTES + 5)] {
        let path = format!("{at}/{name}");
        let content: Vec<u8> = piece.iter().copied().cycle().take(size).collect();
        let mut upload = Upload::new(bucket.clone(), path.clone());
        for bytes in content.chunks(piece.len()) {
            ok(upload.write(bytes)).await;
        }
        assert_eq!(ok(upload.finish()).await, size as u64, "{name}");
        let found = ok(bucket.get(&path)).await.expect("it was uploaded");
        assert!(found == content, "{name}: {} bytes differ", found.len());
    }
    // Given up in the middle: no object, in no listing.
    let mut upload = Upload::new(bucket.clone(), format!("{at}/abandoned"));
    for _ in 0..4 {
        ok(upload.write(&piece)).await;
    }
    drop(upload);
    assert!(ok(bucket.head(&format!("{at}/abandoned"))).await.is_none());
    assert_eq!(names(bucket, at).await.len(), 4);
    assert_eq!(ok(bucket.delete_folder(at)).await, 4);
}

/// S3 lists and deletes at most 1,000 names in one request.
async fn more_than_one_page(bucket: &Bucket, at: &str) {
    const OBJECTS: usize = 1_100;
    let path = |i: usize| format!("{at}/{i:06}");
    let put = |i| async move { bucket.put(&format!("{at}/{i:06}"), Bytes::new()).await };
    ok(stream::iter(0..OBJECTS).map(put).buffer_unordered(16).try_collect::<Vec<()>>()).await;
    assert_eq!(names(bucket, at).await, (0..OBJECTS).map(path).collect::<Vec<_>>());
    assert_eq!(ok(bucket.list_after(at, &path(49))).await.len(), OBJECTS - 50);
    assert_eq!(ok(bucket.list_children(at)).await.len(), OBJECTS);
    assert_eq!(ok(bucket.delete_folder(at)).await, OBJECTS);
    assert_eq!(names(bucket, at).await, Vec::<String>::new());
}

/// All clients put each of `races` versions of one log at the same time: exactly one wins, the others are shown its bytes, and those are kept. Holds also when
/// answers are lost on the way.
///
/// # Panics
/// If there is not one winner, or not its bytes.
pub async fn race(clients: &[Arc<Bucket>], prefix: &str, races: u64) {
    for version in 0..races {
        let mine = |w: usize| bytes(&format!("{version} by writer {w}"));
        let puts = clients.iter().enumerate().map(|(w, client)| {
            let log = VersionedLog::new(client.clone(), prefix, ".json");
            let bytes = mine(w);
            tokio::spawn(async move { log.put(version, bytes).await })
        });
        let slots: Vec<Slot> = join_all(puts)
            .await
            .into_iter()
            .map(|slot| slot.expect("a put does not panic").unwrap_or_else(|e| panic!("race {version}: {e}")))
            .collect();
        let winners: Vec<usize> = (0..slots.len()).filter(|w| slots[*w] == Slot::Won).collect();
        let [winner] = winners[..] else { panic!("race {version}: winners {winners:?}") };
        for (w, slot) in slots.iter().enumerate().filter(|(w, _)| *w != winner) {
            assert_eq!(slot, &Slot::Exists(mine(winner)), "race {version}: what writer {w} was shown");
        }
        for client in clients {
            let kept = ok(VersionedLog::new(client.clone(), prefix, ".json").get(version)).await;
            assert_eq!(kept, Some(mine(winner)), "race {version}: what is kept");
        }
    }
    let log = VersionedLog::new(clients[0].clone(), prefix, ".json");
    assert_eq!(ok(log.versions(0)).await, (0..races).collect::<Vec<_>>());
}

/// `rounds` times all clients open the manifest of one region, claim it and put, at the same time: every claim has a leader epoch of its own, an older leader
/// is fenced at its next put, and all read one contiguous history afterwards. How many were fenced.
///
/// # Panics
/// If two of them led at once.
pub async fn manifest_race(clients: &[Arc<Bucket>], region: RegionId, rounds: u64) -> usize {
    let contexts: Vec<StoreContext> = clients
        .iter()
        .enumerate()
        .map(|(w, bucket)| StoreContext {
            bucket: bucket.clone(),
            clock: Arc::new(SystemClock),
            replica: format!("opener-{w}").as_str().into(),
        })
        .collect();
    for created in join_all(contexts.iter().map(|c| Store::create(c, region, first_actions(region)))).await {
        assert_eq!(created.expect("equal content is no conflict").version, 0);
    }
    let (mut epochs, mut accepted, mut fenced) = (BTreeSet::new(), 0, 0);
    for round in 1..=rounds {
        let opened = join_all(contexts.iter().cloned().map(|c| tokio::spawn(open_and_move(c, region)))).await;
        let mut fenced_now = 0;
        for outcome in opened {
            let (epoch, puts, end) = outcome.expect("an opener does not panic");
            assert!(epochs.insert(epoch), "round {round}: two claims of leader epoch {epoch}");
            accepted += puts;
            if let Some(e) = end {
                assert_eq!(e.kind(), ErrorKind::Fenced, "round {round}: {e}");
                fenced_now += 1;
            }
        }
        assert!(fenced_now < clients.len(), "round {round}: the newest leader was fenced");
        fenced += fenced_now;
    }
    let mut states = Vec::new();
    for context in &contexts {
        states.push(ok(Store::load(context, region)).await.expect("the region exists").state().clone());
    }
    assert!(states.windows(2).all(|w| w[0] == w[1]), "openers read different histories");
    let claims = rounds * clients.len() as u64;
    assert_eq!(epochs, (1..=claims).map(LeaderEpoch).collect());
    assert_eq!(states[0].leader_epoch, LeaderEpoch(claims));
    assert_eq!(states[0].version, claims + accepted, "one version for each claim and each accepted put");
    assert_eq!(states[0].flushed, Seq(accepted as i64), "each accepted put moved it by one");
    fenced
}

/// Opens, claims and puts some times: the leader epoch, how many puts were accepted, and what ended them early.
async fn open_and_move(context: StoreContext, region: RegionId) -> (LeaderEpoch, u64, Option<crate::StorageError>) {
    const PUTS: u64 = 6;
    loop {
        let mut store = ok(Store::load(&context, region)).await.expect("the region exists");
        // A claim gives up when others were faster many times; an opener then tries again.
        let epoch = match store.claim().await {
            Ok(epoch) => epoch,
            Err(e) if e.kind() == ErrorKind::Fenced => continue,
            Err(e) => panic!("claim: {e}"),
        };
        for puts in 0..PUTS {
            let at = store.state().flushed;
            let edit = Edit::flush(at, Seq(at.0 + 1), vec![]);
            if let Err(e) = store.put(vec![Action::Edit(edit)]).await {
                return (epoch, puts, Some(e));
            }
            // A leader works between its puts, else nobody could ever read on and claim in time.
            for _ in 0..4 {
                assert_eq!(ok(context.bucket.get("work/between/puts")).await, None);
            }
        }
        return (epoch, PUTS, None);
    }
}

fn first_actions(region: RegionId) -> Vec<Action> {
    let schema =
        TableSchema { id: 1, columns: vec![Column::new(1, "k", SqlType::BigInt).not_null()], primary_key: vec![0] };
    vec![Action::Create { region, schema, wal: WalBinding::Shared { shard: ShardId(0) }, start: Seq(0) }]
}

/// A region that no test data uses.
pub const RACED: RegionId = RegionId { table: TableId(u32::MAX), number: 0 };

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn memory_and_folder_pass_the_suite() {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("file://{}", dir.path().display());
        run(&Bucket::memory(), "suite").await;
        run(&Bucket::open(&url, &[]).unwrap(), "suite").await;

        let shared = Bucket::memory();
        race(&[shared.clone(), shared.clone(), shared.clone(), shared.clone()], "race", 200).await;
        manifest_race(&[shared.clone(), shared], RACED, 20).await;
        let folders: Vec<_> = (0..4).map(|_| Bucket::open(&url, &[]).unwrap()).collect();
        race(&folders, "race", 200).await;
        manifest_race(&folders[..2], RACED, 20).await;
    }
}
