//! What does not speak Kafka, or not well, gets a clean close and disturbs nobody.

use std::{
    io::{Read, Write},
    time::Duration,
};

use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::support::*;

/// Sends bytes and waits for the close; returns what came back.
fn talk(b: &Running, bytes: &[u8]) -> Vec<u8> {
    let mut stream = b.connect();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        // The broker closed while bytes of ours were unread.
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => {}
        outcome => assert_eq!(outcome.unwrap(), answer.len()),
    }
    answer
}

fn works(b: &Running, topic: &str) {
    create(&b.bootstrap, topic, 1, &[]);
    send(&producer(&b.bootstrap, &[]), topic, 0..10);
    assert_eq!(ends(&b.bootstrap, topic), (0, 10));
}

#[test]
fn other_protocols_get_a_clean_close() {
    let b = Running::start();
    assert_eq!(talk(&b, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"), b"");
    assert_eq!(talk(&b, &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 0, 0]), b"");
    assert_eq!(talk(&b, b"SSH-2.0-OpenSSH_9\r\n"), b"");
    assert_eq!(talk(&b, &[0xff; 64]), b"");
    // A port scan.
    drop(b.connect());
    works(&b, "t");
}

#[test]
fn an_unknown_version_is_told_the_whole_list() {
    let b = Running::start();
    let mut stream = b.connect();
    // ApiVersions 99, correlation 7, no client id
    stream.write_all(&[0, 0, 0, 10, 0, 18, 0, 99, 0, 0, 0, 7, 0xff, 0xff]).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut body = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut body).unwrap();
    assert_eq!(body[..6], [0, 0, 0, 7, 0, 35]);
    assert_eq!(i32::from_be_bytes([body[6], body[7], body[8], body[9]]), 33, "all APIs");
    // The connection goes on.
    stream.write_all(&[0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 8, 0xff, 0xff]).unwrap();
    stream.read_exact(&mut length).unwrap();
    // An API that is not served closes it: LeaderAndIsr.
    assert_eq!(talk(&b, &[0, 0, 0, 10, 0, 4, 0, 0, 0, 0, 0, 7, 0xff, 0xff]), b"");
}

#[test]
fn promises_of_length_do_not_cost_memory() {
    let b = Running::start();
    // Metadata 1 with an array of two billion topics, with 14 bytes and with a frame that says more than comes.
    assert_eq!(talk(&b, &[0, 0, 0, 14, 0, 3, 0, 1, 0, 0, 0, 7, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]), b"");
    let mut waiting: Vec<_> = (0..200).map(|_| b.connect()).collect();
    for stream in &mut waiting {
        // A Produce of 100 MB that never comes.
        stream.write_all(&[5, 0xf5, 0xe1, 0, 0, 0, 0, 9]).unwrap();
    }
    works(&b, "t");
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status
        .lines()
        .find_map(|l| l.strip_prefix("VmHWM:"))
        .and_then(|l| l.trim().split(' ').next()?.parse::<u64>().ok());
    assert!(peak.is_none_or(|kib| kib < 4_000_000), "{peak:?} KiB");
}

#[test]
fn too_many_connections_are_closed_and_later_ones_served() {
    let b = Running::with(|c| c.max_connections = 20);
    let held: Vec<_> = (0..20).map(|_| b.connect()).collect();
    let mut over = b.connect();
    over.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(over.read(&mut [0; 1]).unwrap(), 0);
    drop(held);
    works(&b, "t");
}

/// Random bytes behind good headers, for every API and version. `BROKER_FUZZ=100000` for a long run.
#[test]
fn random_bodies_do_no_harm() {
    let rounds: u32 = std::env::var("BROKER_FUZZ").map_or(3000, |n| n.parse().unwrap());
    let seed: u64 = std::env::var("BROKER_SEED").map_or_else(|_| rand::random(), |n| n.parse().unwrap());
    eprintln!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let b = Running::start();
    works(&b, "before");
    for _ in 0..rounds {
        let (key, version): (i16, i16) = (random.random_range(0..80), random.random_range(0..17));
        let mut frame = vec![0; 4];
        frame.extend_from_slice(&key.to_be_bytes());
        frame.extend_from_slice(&version.to_be_bytes());
        frame.extend_from_slice(&7i32.to_be_bytes());
        frame.extend_from_slice(&[0xff, 0xff]);
        let n = random.random_range(0..60);
        let small = random.random_bool(0.5);
        frame.extend((0..n).map(|_| if small { random.random_range(0..4u8) } else { random.random::<u8>() }));
        let length = (frame.len() - 4) as u32;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        let mut stream = b.connect();
        stream.write_all(&frame).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        // An answer, a close, or (a group that waits) nothing yet: all are fine.
        drop(stream.read(&mut [0; 64]));
    }
    works(&b, "after");
}
