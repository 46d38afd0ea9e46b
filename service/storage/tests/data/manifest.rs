//! Manifests under lost answers, rivals and clean-up. Defends R1, R3, R4 and pitfalls 65 to 67.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use millstream_storage::{
    StorageError, WalBinding,
    manifest::{
        Action, Edit, EditReason, FileEntry, FlushRange, Gap, ManifestVersion, State, Store, StoreContext, codec,
    },
    object_store::{Bucket, Upload, VersionedLog, paths, probe, remedy},
};
use millstream_types::{Classified, ErrorKind, Key, LeaderEpoch, Seq, ShardId, runtime::ManualClock};
use proptest::prelude::*;

use super::{
    faulty::{Verb, When, faulty, unconditional},
    rig::{REGION, schema},
};

fn context(bucket: &Arc<Bucket>, replica: &str) -> (Arc<ManualClock>, StoreContext) {
    let clock = Arc::new(ManualClock::new(1_000_000));
    (clock.clone(), StoreContext { bucket: bucket.clone(), clock, replica: replica.into() })
}

fn create() -> Vec<Action> {
    let wal = WalBinding::Shared { shard: ShardId(4) };
    vec![Action::Create { region: REGION, schema: schema(true).as_ref().clone(), wal, start: Seq(10) }]
}

fn file(name: &str, from: i64, end: i64) -> FileEntry {
    FileEntry {
        name: name.to_owned(),
        origin: REGION,
        size: 100,
        rows: 10,
        deletes: 1,
        from: Seq(from),
        end: Seq(end),
        key: Some((Key(vec![1, 0xab]), Key(vec![2]))),
        schema: 1,
        run: end as u64,
        single_version: true,
        written_ms: 5,
    }
}

fn flush(from: i64, to: i64) -> Vec<Action> {
    vec![Action::Edit(Edit::flush(Seq(from), Seq(to), vec![file(&format!("f{to}"), from, to)]))]
}

async fn claimed(context: &StoreContext) -> Store {
    Store::create(context, REGION, create()).await.unwrap();
    let mut store = Store::load(context, REGION).await.unwrap().unwrap();
    store.claim().await.unwrap();
    store
}

fn names(state: &State) -> Vec<&str> {
    state.files.iter().map(|f| f.name.as_str()).collect()
}

#[tokio::test]
async fn put_unknown_both_ways() {
    for when in [When::Before, When::After] {
        let (store, bucket) = faulty();
        let (_, context) = context(&bucket, "a");
        let mut manifest = claimed(&context).await;
        store.fail(Verb::Put, "00000000000000000002.json", when, 3);
        store.fail(Verb::Get, "00000000000000000002.json", When::Before, 2);
        manifest.put(flush(10, 20)).await.unwrap();
        assert_eq!((manifest.state().version, manifest.state().flushed), (2, Seq(20)));
        let again = Store::load(&context, REGION).await.unwrap().unwrap();
        assert_eq!(again.state(), manifest.state());
        assert_eq!(store.left(), if when == When::After { 2 } else { 0 });
    }
}

#[tokio::test]
async fn a_retried_flush_lists_files_once() {
    let (store, bucket) = faulty();
    let (_, context) = context(&bucket, "a");
    let mut manifest = claimed(&context).await;
    store.fail(Verb::Put, "00000000000000000002.json", When::After, 1);
    manifest.put(flush(10, 20)).await.unwrap();
    // The flush task believes that it failed and comes again, with the same and with new names.
    let error = manifest.put(flush(10, 20)).await.unwrap_err();
    assert!(matches!(error, StorageError::Broken(_)), "{error}");
    let error =
        manifest.put(vec![Action::Edit(Edit::flush(Seq(10), Seq(20), vec![file("other", 10, 20)]))]).await.unwrap_err();
    assert!(matches!(error, StorageError::Broken(_)), "{error}");
    manifest.put(flush(20, 30)).await.unwrap();
    assert_eq!(names(Store::load(&context, REGION).await.unwrap().unwrap().state()), ["f20", "f30"]);
}

#[tokio::test]
async fn a_zombie_cannot_commit_after_fencing() {
    let bucket = Bucket::memory();
    let (_, a) = context(&bucket, "a");
    let (_, b) = context(&bucket, "b");
    let mut zombie = claimed(&a).await;
    zombie.put(flush(10, 20)).await.unwrap();
    let mut leader = Store::load(&b, REGION).await.unwrap().unwrap();
    assert_eq!(leader.claim().await.unwrap(), LeaderEpoch(2));
    let error = zombie.put(flush(20, 25)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    assert!(error.to_string().contains("belongs to leader epoch 2, ours is 1"), "{error}");
    leader.put(flush(20, 30)).await.unwrap();
    assert!(zombie.put(flush(20, 25)).await.is_err());
    assert_eq!(names(Store::load(&a, REGION).await.unwrap().unwrap().state()), ["f20", "f30"]);
}

#[tokio::test]
async fn zombie_collides_after_cleanup() {
    let bucket = Bucket::memory();
    let (_, a) = context(&bucket, "a");
    let (clock, b) = context(&bucket, "b");
    let mut zombie = claimed(&a).await;
    zombie.put(flush(10, 20)).await.unwrap();
    let slot = zombie.state().version + 1;
    let mut leader = Store::load(&b, REGION).await.unwrap().unwrap();
    leader.claim().await.unwrap();
    for i in 2..60 {
        leader.put(flush(i * 10, i * 10 + 10)).await.unwrap();
        clock.advance(Duration::from_secs(20 * 60));
        leader.maintain().await.unwrap();
    }
    let log = VersionedLog::new(bucket.clone(), paths::manifest(REGION), ".json");
    let left = log.versions(0).await.unwrap();
    assert!(left.len() < 30, "clean-up leaves {left:?}");
    assert!(left.contains(&slot) && left.contains(&(slot - 1)) && left.contains(&0));
    assert_eq!(zombie.put(flush(20, 25)).await.unwrap_err().kind(), ErrorKind::Fenced);
    // A follower that slept as long goes on from a checkpoint, and a new reader sees all.
    let mut follower = Store::load(&a, REGION).await.unwrap().unwrap();
    assert_eq!(follower.state(), leader.state());
    zombie.refresh().await.unwrap();
    assert_eq!(zombie.state(), leader.state());
    assert!(!follower.refresh().await.unwrap());
}

#[tokio::test]
async fn stale_hint() {
    let bucket = Bucket::memory();
    let (clock, a) = context(&bucket, "a");
    let mut leader = claimed(&a).await;
    let hint = format!("{}/_last.json", paths::manifest(REGION));
    let mut old = None;
    for i in 1..45 {
        leader.put(flush(i * 10, i * 10 + 10)).await.unwrap();
        clock.advance(Duration::from_secs(20 * 60));
        leader.maintain().await.unwrap();
        if old.is_none() {
            old = bucket.get(&hint).await.unwrap();
        }
    }
    // Naming a checkpoint that is cleaned up, unreadable, gone.
    bucket.put(&hint, old.unwrap()).await.unwrap();
    assert_eq!(Store::load(&a, REGION).await.unwrap().unwrap().state(), leader.state());
    bucket.put(&hint, Bytes::from_static(b"{}")).await.unwrap();
    assert_eq!(Store::load(&a, REGION).await.unwrap().unwrap().state(), leader.state());
    bucket.delete(&hint).await.unwrap();
    assert_eq!(Store::load(&a, REGION).await.unwrap().unwrap().state(), leader.state());
}

#[tokio::test]
async fn cleanup_delete_fails() {
    let (store, bucket) = faulty();
    let (clock, a) = context(&bucket, "a");
    let mut leader = claimed(&a).await;
    store.fail(Verb::Delete, "0005.json", When::Before, 1);
    let mut errors = 0;
    for i in 1..45 {
        leader.put(flush(i * 10, i * 10 + 10)).await.unwrap();
        clock.advance(Duration::from_secs(20 * 60));
        errors += usize::from(leader.maintain().await.is_err());
    }
    assert!(errors > 0);
    assert_eq!(Store::load(&a, REGION).await.unwrap().unwrap().state(), leader.state());
}

#[tokio::test]
async fn create_is_idempotent_and_never_overwrites() {
    let bucket = Bucket::memory();
    let (_, a) = context(&bucket, "a");
    let (_, b) = context(&bucket, "b");
    assert!(Store::load(&a, REGION).await.unwrap().is_none());
    let first = Store::create(&a, REGION, create()).await.unwrap();
    assert_eq!(Store::create(&b, REGION, create()).await.unwrap(), first);
    let other = |start, keyed| {
        vec![Action::Create {
            region: REGION,
            schema: schema(keyed).as_ref().clone(),
            wal: WalBinding::Shared { shard: ShardId(4) },
            start: Seq(start),
        }]
    };
    let error = Store::create(&b, REGION, other(10, false)).await.unwrap_err();
    assert_eq!(error.to_string(), "region 7-3 exists with a different schema");
    assert_eq!(Store::create(&b, REGION, other(11, true)).await.unwrap_err().kind(), ErrorKind::Conflict);
    let path = format!("{}/{:020}.json", paths::manifest(REGION), 0);
    for junk in [
        &b"junk"[..],
        br#"{"format":2,"crc32c":"00000000","body":{}}"#,
        br#"{"format":1,"crc32c":"00000000","body":{}}"#,
    ] {
        bucket.put(&path, Bytes::from_static(junk)).await.unwrap();
        assert_eq!(Store::create(&a, REGION, create()).await.unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(Store::load(&a, REGION).await.unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(bucket.get(&path).await.unwrap().unwrap(), junk);
    }
}

#[tokio::test]
async fn leadership_is_the_epoch_not_the_group() {
    let bucket = Bucket::memory();
    let (_, a) = context(&bucket, "a");
    Store::create(&a, REGION, create()).await.unwrap();
    let claims = (0..5).map(|_| {
        let a = a.clone();
        async move {
            let mut store = Store::load(&a, REGION).await.unwrap().unwrap();
            store.claim().await.unwrap();
            store
        }
    });
    let mut stores = futures::future::join_all(claims).await;
    stores.sort_by_key(|s| s.state().leader_epoch);
    assert_eq!(stores.iter().map(|s| s.state().leader_epoch.0).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    stores.pop().unwrap().put(flush(10, 20)).await.unwrap();
    for mut older in stores {
        assert_eq!(older.put(flush(10, 15)).await.unwrap_err().kind(), ErrorKind::Fenced);
    }
}

#[tokio::test]
async fn a_bucket_that_lets_two_writers_win_is_refused() {
    probe(&Bucket::memory()).await.unwrap();
    let error = probe(&unconditional()).await.unwrap_err();
    assert!(error.to_string().contains("let 4 concurrent writers win"), "{error}");
    assert!(remedy(&error).contains("use another store"), "{}", remedy(&error));
    let dir = tempfile::tempdir().unwrap();
    probe(&Bucket::open(&format!("file://{}", dir.path().join("bucket").display()), &[]).unwrap()).await.unwrap();
}

/// A lost answer says nothing about the bucket: the check runs another race, and gives up with the cause when none comes to an end.
#[tokio::test]
async fn the_check_of_a_bucket_outlives_lost_answers() {
    for when in [When::Before, When::After] {
        let (store, bucket) = faulty();
        store.fail(Verb::Put, "probe/", when, 5);
        probe(&bucket).await.unwrap();
        assert_eq!(store.left(), 0);
        assert_eq!(bucket.list("probe").await.unwrap().len(), 0, "scratch objects are deleted");
    }
    let (store, bucket) = faulty();
    store.fail(Verb::Put, "probe/", When::Before, usize::MAX);
    let error = probe(&bucket).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown);
    assert!(remedy(&error).contains("does it run"), "{}", remedy(&error));
}

/// The object is there though the answer to the completion was lost: no failed flush, no orphan.
#[tokio::test]
async fn a_lost_completion_of_an_upload_is_read_back() {
    let (store, bucket) = faulty();
    let bytes = vec![7; 9 << 20];
    for (when, arrives) in [(When::After, true), (When::Before, false)] {
        let name = format!("{when:?}");
        store.fail(Verb::Complete, &name, when, 1);
        let mut upload = Upload::new(bucket.clone(), name.clone());
        upload.write(&bytes).await.unwrap();
        assert_eq!(upload.finish().await.is_ok(), arrives, "{name}");
        assert_eq!(bucket.head(&name).await.unwrap().is_some(), arrives, "{name}");
    }
}

#[tokio::test]
async fn a_throttling_bucket_only_slows_us() {
    let (store, bucket) = faulty();
    bucket.put("x", Bytes::from_static(b"1")).await.unwrap();
    store.fail(Verb::Get, "x", When::Before, 6);
    assert_eq!(bucket.get("x").await.unwrap().unwrap(), "1");
    store.fail(Verb::Get, "x", When::Before, usize::MAX);
    let error = bucket.get("x").await.unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Unavailable, "object store: get x"));
}

/// Every format that a release wrote stays readable. `MILLSTREAM_WRITE_SAMPLES=1` writes the samples of the format in force.
#[test]
fn old_format_samples_load() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/v1");
    let versions = sample();
    let state = versions[1..].iter().fold(State::first(&versions[0]).unwrap(), |s, v| s.apply(v).unwrap());
    let stored = |name: &str, bytes: Bytes| {
        let path = dir.join(name);
        if std::env::var_os("MILLSTREAM_WRITE_SAMPLES").is_some() {
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(&path, &bytes).unwrap();
        }
        std::fs::read(&path).unwrap()
    };
    for version in &versions {
        let bytes = stored(&format!("manifest-{}.json", version.version), codec::seal(version).unwrap());
        assert_eq!(&codec::unseal::<ManifestVersion>("sample", &bytes).unwrap(), version);
    }
    let bytes = stored("checkpoint.json", codec::seal(&state).unwrap());
    assert_eq!(codec::unseal::<State>("sample", &bytes).unwrap(), state);
}

fn sample() -> Vec<ManifestVersion> {
    let mut next = schema(true).as_ref().clone();
    next.id = 2;
    let edit = Edit {
        reason: EditReason::Compact,
        range: None,
        add: vec![file("f30", 10, 30)],
        remove: vec!["f20".to_owned()],
        history_from: Some(Seq(15)),
        applied_at: Some((7, Seq(30))),
    };
    let gap = Gap { from: Seq(30), to: Seq(40), kind: "retention".to_owned(), policy: "continue".to_owned(), at_ms: 9 };
    let steps = [
        create(),
        vec![Action::Claim { leader_epoch: LeaderEpoch(1), replica: "a".to_owned() }],
        flush(10, 20),
        vec![Action::Edit(edit)],
        vec![Action::Change { schema: next, at: Seq(20) }, Action::Gap(gap)],
        vec![Action::Purged { files: vec!["f20".to_owned()] }],
    ];
    let version = |(i, actions): (usize, Vec<Action>)| ManifestVersion {
        version: i as u64,
        leader_epoch: LeaderEpoch(u64::from(i > 0)),
        writer: format!("a/0123/{i}"),
        at_ms: 1000 + i as u64,
        actions,
    };
    steps.into_iter().enumerate().map(version).collect()
}

/// What the model does: files by name, and three numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Model {
    files: BTreeMap<String, (i64, i64)>,
    removed: Vec<String>,
    flushed: i64,
    epoch: u64,
}

#[derive(Debug, Clone)]
enum Step {
    /// The epoch written with, relative to the state's.
    Claim(i64),
    Flush {
        from: i64,
        by: i64,
        name: u8,
    },
    Compact {
        remove: Vec<u8>,
        name: u8,
    },
    Purge(Vec<u8>),
    /// Version number relative to the next one.
    Skip(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..3i64).prop_map(Step::Claim),
        (-1..2i64, 0..5i64, 0..20u8).prop_map(|(from, by, name)| Step::Flush { from, by, name }),
        (0..20u8, 0..20u8).prop_map(|(name, by)| Step::Flush { from: 0, by: i64::from(by % 4) + 1, name }),
        (proptest::collection::vec(0..20u8, 0..3), 0..20u8).prop_map(|(remove, name)| Step::Compact { remove, name }),
        proptest::collection::vec(0..20u8, 0..5).prop_map(Step::Purge),
        (-1..2i64).prop_map(Step::Skip),
    ]
}

impl Model {
    /// The actions of a step, the epoch, and whether it is allowed.
    fn play(&mut self, step: &Step) -> (Vec<Action>, u64, bool) {
        let before = self.clone();
        let new = |model: &Model, name: &String| !model.files.contains_key(name) && !model.removed.contains(name);
        let (actions, epoch, right) = match step {
            Step::Claim(by) => {
                let epoch = self.epoch + *by as u64;
                let right = *by == 1;
                self.epoch = epoch;
                (vec![Action::Claim { leader_epoch: LeaderEpoch(epoch), replica: "r".to_owned() }], epoch, right)
            }
            Step::Flush { from, by, name } => {
                let name = format!("n{name}");
                let from = self.flushed + from;
                let to = from + by;
                let right = from == self.flushed && new(self, &name) && *by > 0;
                self.files.insert(name.clone(), (from, to));
                self.flushed = to;
                let mut edit = Edit::flush(Seq(from), Seq(to), vec![file(&name, from, to)]);
                if *by == 0 {
                    // A flush of nothing adds no file.
                    edit.add.clear();
                    self.files.remove(&name);
                    *self = before.clone();
                    let right = from == self.flushed;
                    let range = FlushRange { from: Seq(from), flushed: Seq(to) };
                    let edit = Edit { reason: EditReason::Position, range: Some(range), ..edit };
                    return (vec![Action::Edit(edit)], self.epoch, right);
                }
                (vec![Action::Edit(edit)], self.epoch, right)
            }
            Step::Compact { remove, name } => {
                let name = format!("n{name}");
                let mut remove: Vec<String> = remove.iter().map(|r| format!("n{r}")).collect();
                remove.dedup();
                let listed = remove.iter().all(|r| self.files.contains_key(r));
                let gone: Vec<(i64, i64)> = remove.iter().filter_map(|r| self.files.remove(r)).collect();
                let listed = listed && gone.len() == remove.len();
                self.removed.extend(remove.iter().cloned());
                let (from, end) = (gone.iter().map(|g| g.0).min(), gone.iter().map(|g| g.1).max());
                let mut right = listed;
                let mut add = Vec::new();
                if let Some((from, end)) = from.zip(end) {
                    right &= new(self, &name) && self.files.values().all(|(f, e)| *e <= from || *f >= end);
                    add.push(file(&name, from, end));
                    self.files.insert(name, (from, end));
                }
                (vec![Action::Edit(Edit::compact(remove, add))], self.epoch, right)
            }
            Step::Purge(files) => {
                let files: Vec<String> = files.iter().map(|f| format!("n{f}")).collect();
                self.removed.retain(|r| !files.contains(r));
                (vec![Action::Purged { files }], self.epoch, true)
            }
            Step::Skip(by) => (vec![], self.epoch, *by == 0),
        };
        if !right {
            *self = before;
        }
        (actions, epoch, right)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn apply_matches_model(steps in proptest::collection::vec(step(), 1..60)) {
        let first = sample().swap_remove(0);
        let mut state = State::first(&first).unwrap();
        let mut model = Model { flushed: 10, ..Model::default() };
        for step in &steps {
            let (actions, epoch, right) = model.play(step);
            let skip = if let Step::Skip(by) = step { *by } else { 0 };
            let version = (state.version as i64 + 1 + skip) as u64;
            let next = ManifestVersion { version, leader_epoch: LeaderEpoch(epoch), writer: "w".to_owned(), at_ms: 1, actions };
            let applied = state.apply(&next);
            prop_assert_eq!(applied.is_ok(), right, "{:?}: {:?}", step, applied.err());
            if let Ok(applied) = applied {
                state = applied;
            }
            let files: BTreeMap<String, (i64, i64)> = state.files.iter().map(|f| (f.name.clone(), (f.from.0, f.end.0))).collect();
            prop_assert_eq!(&files, &model.files);
            prop_assert_eq!((state.flushed.0, state.leader_epoch.0), (model.flushed, model.epoch));
            prop_assert_eq!(state.removed.iter().map(|r| r.name.clone()).collect::<Vec<_>>(), model.removed.clone());
            let ordered = state.files.windows(2).all(|w| w[0].end <= w[1].from);
            prop_assert!(ordered);
        }
    }
}
