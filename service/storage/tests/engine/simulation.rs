//! Random operations with crashes at random moments against a model. One number gives one run; it is printed when the run fails.
//!
//! After each step and after each restart: content = model at `applied`; every pinned sequence reads as it did then.

use std::{collections::BTreeMap, sync::Arc};

use millstream_storage::{Pin, PinOwner, Region, RegionSpec, Storage};
use millstream_types::{InputId, JobId, Op, Seq, ShardId, testing::CommitFault};
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::env::{
    Env, Part, append_schema, appended, as_of, commit_only, content, epoch_batch, job_writer, keyed_schema,
    shared_spec, small, topic_spec, write,
};
use crate::data::faulty::{Verb, When};

/// What the regions should hold.
#[derive(Default)]
struct Model {
    view: BTreeMap<i64, i64>,
    progress: i64,
    table: Vec<i64>,
    topic: BTreeMap<i64, i64>,
    pinned: Option<(Seq, BTreeMap<i64, i64>)>,
}

struct Run {
    env: Env,
    rng: StdRng,
    model: Model,
    specs: [RegionSpec; 4],
    epoch: u64,
    write_id: u128,
}

const JOB: u64 = 5;

impl Run {
    async fn new(seed: u64) -> Run {
        let mut config = small();
        config.compaction.automatic = seed.is_multiple_of(2);
        config.compaction.min_runs = 2;
        let env = Env::with(config).await;
        env.log.create_topic("in", 1);
        let topic = topic_spec(&env, 4, "in", keyed_schema()).await;
        let specs =
            [shared_spec(1, keyed_schema()), shared_spec(2, keyed_schema()), shared_spec(3, append_schema()), topic];
        for spec in &specs {
            env.create_open(spec).await;
        }
        Run { env, rng: StdRng::seed_from_u64(seed), model: Model::default(), specs, epoch: 0, write_id: 0 }
    }

    fn region(&self, i: usize) -> Arc<dyn Region> {
        self.env.engine.region(self.specs[i].id).unwrap()
    }

    fn rows(&mut self) -> Vec<(i64, Option<i64>)> {
        let n = self.rng.random_range(1..6);
        (0..n)
            .map(|_| (self.rng.random_range(0..8), self.rng.random_bool(0.7).then(|| self.rng.random_range(0..100))))
            .collect()
    }

    async fn step(&mut self) {
        match self.rng.random_range(0..100) {
            0..30 => self.checkpoint().await,
            30..50 => self.insert().await,
            50..65 => self.produce().await,
            65..75 => self.flush().await,
            75..80 => {
                let i = self.rng.random_range(0..4);
                self.region(i).compact().await.unwrap();
            }
            80..85 => self.pin().await,
            85..90 => self.env.engine.prune().await,
            90..93 => {
                let verb = if self.rng.random_bool(0.5) { Verb::Put } else { Verb::Get };
                let when = if self.rng.random_bool(0.5) { When::Before } else { When::After };
                self.env.store.fail(verb, "regions/", when, 1);
            }
            _ => self.crash().await,
        }
        self.check().await;
    }

    /// One epoch of the job, with every outcome of its commit.
    async fn checkpoint(&mut self) {
        self.epoch += 1;
        let rows = self.rows();
        let (view, progress) = (self.region(0), self.region(1));
        let mut writer = job_writer(&self.env, JOB).await;
        let progress_rows = [(0, Some(self.epoch as i64))];
        let parts: [Part<'_>; 2] = [(&view, &rows), (&progress, &progress_rows)];
        let committed = match self.rng.random_range(0..4) {
            0 => {
                let committed = self.rng.random_bool(0.5);
                self.env.log.fail_next_commit(CommitFault::Unknown { committed });
                let batch = epoch_batch(JOB, self.epoch, &parts);
                let outcome = writer.commit(std::slice::from_ref(batch.out_batch())).await;
                assert!(matches!(outcome, millstream_types::CommitOutcome::Unknown(_)));
                writer.init().await.unwrap();
                self.env
                    .engine
                    .replay_shard(ShardId(0), JobId(JOB), &[self.specs[0].id, self.specs[1].id])
                    .await
                    .unwrap();
                committed
            }
            1 => {
                // Committed, and the process dies before it is applied.
                commit_only(&mut writer, JOB, self.epoch, &parts).await;
                self.note_epoch(&rows);
                return self.crash().await;
            }
            _ => {
                let (batch, offsets) = commit_only(&mut writer, JOB, self.epoch, &parts).await;
                batch.apply(&*self.env.engine, &offsets).await.unwrap();
                true
            }
        };
        if committed {
            self.note_epoch(&rows);
        }
    }

    fn note_epoch(&mut self, rows: &[(i64, Option<i64>)]) {
        put_all(&mut self.model.view, rows);
        self.model.progress = self.epoch as i64;
    }

    async fn insert(&mut self) {
        self.write_id += 1;
        let value = self.write_id as i64;
        let fault = match self.rng.random_range(0..6) {
            0 => Some(CommitFault::Unknown { committed: true }),
            1 => Some(CommitFault::Unknown { committed: false }),
            2 => Some(CommitFault::Aborted),
            _ => None,
        };
        fault.into_iter().for_each(|f| self.env.log.fail_next_commit(f));
        let done = write(&self.region(2), &[(0, Some(value))], self.write_id).await;
        let expected = matches!(fault, None | Some(CommitFault::Unknown { committed: true }));
        assert_eq!(done.is_ok(), expected, "{fault:?}: {done:?}");
        if expected {
            self.model.table.push(value);
        }
        if self.rng.random_bool(0.2) {
            let again = write(&self.region(2), &[(0, Some(value))], self.write_id).await.unwrap();
            if let Ok(first) = done {
                assert_eq!(again, first);
            } else {
                self.model.table.push(value);
            }
        }
    }

    async fn produce(&mut self) {
        let rows = self.rows();
        for (id, v) in &rows {
            self.env.log.put("in", 0, Some(&id.to_string()), v.map(|v| v.to_string()).as_deref());
        }
        put_all(&mut self.model.topic, &rows);
    }

    async fn flush(&mut self) {
        let i = self.rng.random_range(0..4);
        // A failing bucket may refuse it once; the memtable stays.
        let mut left = 5;
        while self.region(i).flush().await.is_err() {
            left -= 1;
            assert!(left > 0, "flush fails for ever");
        }
    }

    async fn pin(&mut self) {
        let (view, seq) = (self.region(0), self.region(0).applied());
        let owner = PinOwner { job: JobId(JOB), input: InputId(0) };
        let pin = if self.rng.random_bool(0.5) {
            Pin { exact: vec![seq], floor: None }
        } else {
            Pin { exact: vec![], floor: Some(seq) }
        };
        view.pin(owner, pin).await.unwrap();
        self.model.pinned = Some((seq, self.model.view.clone()));
    }

    async fn crash(&mut self) {
        if self.rng.random_bool(0.3) {
            let i = self.rng.random_range(0..4);
            let region = self.region(i);
            let flushing = tokio::spawn(async move { region.flush().await });
            for _ in 0..self.rng.random_range(0..30) {
                tokio::task::yield_now().await;
            }
            flushing.abort();
        }
        self.env.crash().await;
        for (id, opened) in self.env.engine.open_regions(self.specs.to_vec()).await {
            if let Err(e) = opened {
                panic!("{id}: {}", millstream_types::error::chain(&e));
            }
        }
        job_writer(&self.env, JOB).await;
        self.env.engine.replay_shard(ShardId(0), JobId(JOB), &[self.specs[0].id, self.specs[1].id]).await.unwrap();
    }

    async fn check(&mut self) {
        assert_eq!(content(&self.region(0)).await, self.model.view, "view");
        let progress = content(&self.region(1)).await;
        assert_eq!(progress.get(&0).copied().unwrap_or(0), self.model.progress, "progress");
        assert_eq!(appended(&self.region(2)).await, self.model.table, "table");
        let end = self.env.log.ends(&millstream_types::TopicPartition::new("in", 0)).unwrap().stable;
        self.region(3).wait_applied(end.into()).await.unwrap();
        assert_eq!(content(&self.region(3)).await, self.model.topic, "topic");
        if let Some((seq, map)) = &self.model.pinned {
            assert_eq!(&as_of(&self.region(0), *seq).await, map, "as of pin {seq}");
            let now = self.region(0).applied();
            let mut replayed = map.clone();
            for (op, id, v) in
                super::env::scanned(&self.region(0), millstream_storage::ScanRequest::changes(*seq, now)).await.unwrap()
            {
                match op {
                    Op::Insert | Op::UpdateInsert => replayed.insert(id, v.unwrap()),
                    Op::Delete | Op::UpdateDelete => replayed.remove(&id),
                };
            }
            assert_eq!(replayed, self.model.view, "changes since pin {seq}");
        }
    }
}

fn put_all(map: &mut BTreeMap<i64, i64>, rows: &[(i64, Option<i64>)]) {
    for (id, v) in rows {
        match v {
            Some(v) => map.insert(*id, *v),
            None => map.remove(id),
        };
    }
}

/// Prints the number of the run that fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("simulation seed {} failed; run it alone with MILLSTREAM_SEED={}", self.0, self.0);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sim_regions_hold_their_model_through_crashes() {
    let only = std::env::var("MILLSTREAM_SEED").ok().and_then(|s| s.parse::<u64>().ok());
    let runs = std::env::var("MILLSTREAM_RUNS").ok().and_then(|s| s.parse::<u64>().ok()).unwrap_or(40);
    for seed in only.map_or(0..runs, |s| s..s + 1) {
        let _seed = Seed(seed);
        let mut run = Run::new(seed).await;
        for _ in 0..40 {
            run.step().await;
        }
        run.env.engine.kill().await;
    }
}
