//! Requests that are well-formed but mad, for every API and version: no panic, no endless wait, and the lengths that `shape.rs` believes in are those that
//! the codecs read. Method: bodies drawn from the shape table, with small alphabets so that names and ids meet.

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use futures::FutureExt;
use kafka_protocol::messages::ApiKey;
use rand::{SeedableRng, rngs::StdRng};

use super::*;
use crate::{
    config::{BrokerConfig, Fsync},
    protocol::shape::tests::random_body,
    topics::config::Overrides,
};

fn frame(api: ApiKey, version: i16, body: &[u8]) -> Bytes {
    let mut out = Vec::new();
    out.extend_from_slice(&(api as i16).to_be_bytes());
    out.extend_from_slice(&version.to_be_bytes());
    out.extend_from_slice(&7i32.to_be_bytes());
    out.extend_from_slice(&[0, 1, b'c']);
    if api.request_header_version(version) >= 2 {
        out.push(0);
    }
    out.extend_from_slice(body);
    out.into()
}

#[tokio::test]
async fn mad_requests_do_no_harm() {
    let rounds: u32 = std::env::var("BROKER_FUZZ").map_or(20_000, |n| n.parse().unwrap());
    let seed: u64 = std::env::var("BROKER_SEED").map_or_else(|_| rand::random(), |n| n.parse().unwrap());
    eprintln!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let dir = tempfile::tempdir().unwrap();
    let config = BrokerConfig { fsync: Fsync::Never, ..BrokerConfig::new(dir.path()) };
    let node = Arc::new(Node::open(config).unwrap());
    node.topics.create("t", 2, Overrides::new(), false).unwrap();
    let mut client = Client::new(SocketAddr::from(([127, 0, 0, 1], 1)), ("localhost".to_owned(), 9092));
    for round in 0..rounds {
        let (api, low, high) = versions::SERVED[rand::Rng::random_range(&mut random, 0..versions::SERVED.len())];
        let version = rand::Rng::random_range(&mut random, low..=high);
        if api == ApiKey::Produce && version < 3 {
            continue;
        }
        let body = random_body(api, version, &mut random);
        // One poll: what waits for others is dropped, as if the client had gone.
        let outcome = serve(&node, &mut client, frame(api, version, &body)).now_or_never();
        if let Some(Outcome::Close(why)) = outcome {
            panic!("round {round}: {api:?} {version} was closed: {why}; {body:?}");
        }
        // The same with damage: anything but a panic.
        let mut damaged = body;
        for _ in 0..rand::Rng::random_range(&mut random, 1..4) {
            if !damaged.is_empty() {
                let at = rand::Rng::random_range(&mut random, 0..damaged.len());
                damaged[at] = rand::Rng::random(&mut random);
            }
        }
        drop(serve(&node, &mut client, frame(api, version, &damaged)).now_or_never());
    }
    node.close().unwrap();
}
