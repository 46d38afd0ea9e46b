//! Requests that are well-formed but mad, and damaged ones, for every API and version, through the frame decoder and the handlers: no panic, no endless
//! wait, no memory that grows faster than what was sent, and the lengths that `shape.rs` believes in are those that the codecs read. Method: bodies drawn
//! from the shape table, with small alphabets so that names and ids meet; then the bytes are damaged. Allocations are counted, which is exact only if no other
//! test runs beside: `BROKER_FUZZ_SECONDS=600 cargo test -p millstream-broker --lib mad_requests -- --test-threads 1 --nocapture`.

use std::{
    alloc::System,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::FutureExt;
use kafka_protocol::messages::ApiKey;
use rand::{Rng, SeedableRng, rngs::StdRng};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use super::*;
use crate::{
    config::{BrokerConfig, Fsync},
    protocol::{frame::Frames, shape::tests::random_body},
    topics::config::Overrides,
};

#[global_allocator]
static MEMORY: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// What one request may allocate, all of it together: a part for the state that it may ask for, and a part for each byte of its own.
const ALLOWED: usize = 8 << 20;
const ALLOWED_PER_BYTE: usize = 1000;

/// With its length in front.
fn frame(api: ApiKey, version: i16, body: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 4];
    out.extend_from_slice(&(api as i16).to_be_bytes());
    out.extend_from_slice(&version.to_be_bytes());
    out.extend_from_slice(&7i32.to_be_bytes());
    out.extend_from_slice(&[0, 1, b'c']);
    if api.request_header_version(version) >= 2 {
        out.push(0);
    }
    out.extend_from_slice(body);
    let length = (out.len() - 4) as u32;
    out[..4].copy_from_slice(&length.to_be_bytes());
    out
}

struct Fuzz {
    random: StdRng,
    client: Client,
    node: Arc<Node>,
    dir: tempfile::TempDir,
    /// Only if nothing else runs in this process.
    count_memory: bool,
    most: usize,
}

impl Fuzz {
    fn node() -> (tempfile::TempDir, Arc<Node>) {
        let dir = tempfile::tempdir().unwrap();
        let config = BrokerConfig { fsync: Fsync::Never, max_partitions: 64, ..BrokerConfig::new(dir.path()) };
        let node = Arc::new(Node::open(config).unwrap());
        node.topics.create("t", 2, Overrides::new(), false).unwrap();
        node.topics.create("c", 1, Overrides::from([("cleanup.policy".into(), "compact".into())]), false).unwrap();
        (dir, node)
    }

    fn new(seed: u64, count_memory: bool) -> Self {
        let client = Client::new(SocketAddr::from(([127, 0, 0, 1], 1)), ("localhost".to_owned(), 9092));
        let (dir, node) = Self::node();
        Self { random: StdRng::seed_from_u64(seed), client, node, dir, count_memory, most: 0 }
    }

    /// State of requests before must not hide what one request costs.
    fn start_again(&mut self) {
        self.node.close().unwrap();
        (self.dir, self.node) = Self::node();
    }

    /// Sends bytes as a connection would see them. Returns what became of the last request in them.
    fn send(&mut self, bytes: &[u8]) -> Option<Outcome> {
        let memory = Region::new(MEMORY);
        let mut frames = Frames::new(bytes);
        let mut last = None;
        while let Some(Ok(Some(frame))) = frames.next().now_or_never() {
            // One poll: what waits for others is dropped, as if the client had gone.
            last = serve(&self.node, &mut self.client, frame).now_or_never();
            if matches!(last, Some(Outcome::Close(_))) {
                break;
            }
        }
        let change = memory.change();
        let used = change.bytes_allocated + usize::try_from(change.bytes_reallocated).unwrap_or(0);
        if self.count_memory {
            self.most = self.most.max(used);
            assert!(used <= ALLOWED + ALLOWED_PER_BYTE * bytes.len(), "{used} bytes for {}: {bytes:?}", bytes.len());
        }
        last
    }

    /// Changes some bytes: to anything, to the numbers that hurt, or cuts, doubles, or moves a piece.
    fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..self.random.random_range(1..4) {
            if bytes.len() < 5 {
                return;
            }
            let at = self.random.random_range(0..bytes.len());
            let to = self.random.random_range(at..=bytes.len());
            match self.random.random_range(0..6) {
                0 | 1 => bytes[at] = self.random.random(),
                2 => {
                    let n = [i32::MAX, i32::MIN, -1, 0x00ff_ffff, 0x0010_0000][self.random.random_range(0..5)];
                    let end = (at + 4).min(bytes.len());
                    bytes[at..end].copy_from_slice(&n.to_be_bytes()[..end - at]);
                }
                3 => bytes.truncate(at),
                4 => {
                    let piece = bytes[at..to].to_vec();
                    bytes.splice(at..at, piece);
                }
                _ => bytes[at..to].rotate_left((to - at) / 2),
            }
        }
        // Mostly the length stays right, so that the damage gets behind the frame decoder.
        if bytes.len() >= 12 && self.random.random_bool(0.8) {
            let length = (bytes.len() - 4) as u32;
            bytes[..4].copy_from_slice(&length.to_be_bytes());
        }
    }

    fn round(&mut self) -> u64 {
        let (api, low, high) = versions::SERVED[self.random.random_range(0..versions::SERVED.len())];
        let version = self.random.random_range(low..=high);
        if api == ApiKey::Produce && version < 3 {
            return 0;
        }
        let body = random_body(api, version, &mut self.random);
        let mut bytes = frame(api, version, &body);
        if let Some(Outcome::Close(why)) = self.send(&bytes) {
            panic!("{api:?} {version} was closed: {why}; {body:?}");
        }
        self.damage(&mut bytes);
        self.send(&bytes);
        let noise: Vec<u8> = (0..self.random.random_range(0..64)).map(|_| self.random.random()).collect();
        self.send(&noise);
        3
    }
}

#[tokio::test]
async fn mad_requests_do_no_harm() {
    let seconds: Option<u64> = std::env::var("BROKER_FUZZ_SECONDS").ok().map(|n| n.parse().unwrap());
    let seed: u64 = std::env::var("BROKER_SEED").map_or_else(|_| rand::random(), |n| n.parse().unwrap());
    eprintln!("seed {seed}");
    let mut fuzz = Fuzz::new(seed, seconds.is_some());
    let begin = Instant::now();
    let (mut rounds, mut requests) = (0u64, 0u64);
    let goes_on = |rounds| match seconds {
        Some(n) => begin.elapsed() < Duration::from_secs(n),
        None => rounds < 20_000,
    };
    while goes_on(rounds) {
        requests += fuzz.round();
        rounds += 1;
        if rounds.is_multiple_of(5000) {
            fuzz.start_again();
        }
    }
    fuzz.node.close().unwrap();
    eprintln!("{requests} requests in {:?}; most memory of one: {} bytes", begin.elapsed(), fuzz.most);
}

/// Metadata of one topic, asked for as often as a request can.
#[tokio::test]
async fn a_repeated_name_does_not_multiply_the_answer() {
    let mut fuzz = Fuzz::new(1, false);
    let body = |times: i32| [&times.to_be_bytes()[..], &[0, 1, b't'].repeat(times as usize), &[0]].concat();
    let mut lengths = [1, 1000].map(|times| match fuzz.send(&frame(ApiKey::Metadata, 4, &body(times))) {
        Some(Outcome::Reply(reply)) => reply.size(),
        other => panic!("{other:?}"),
    });
    lengths.sort_unstable();
    assert_eq!(lengths[0], lengths[1]);
}
