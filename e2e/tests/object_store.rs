//! Goal: on a real S3 server a bucket behaves as in memory and in a folder, put-if-absent has one winner also when answers are lost, and `millstream check`
//! tells what is wrong with a bucket and what to do, soon.
#![expect(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use millstream_e2e::{
    broker::{Broker, Kind, free_port},
    eventually::eventually,
    s3::S3,
    sandbox::binary,
    scaled, seed,
};
use millstream_storage::object_store::{Bucket, RetryPolicy, Upload, probe, remedy, suite};
use millstream_types::{Classified, ErrorKind};
use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

fn client(s3: &S3, prefix: &str) -> Arc<Bucket> {
    Bucket::open(&s3.url(prefix), &s3.options()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_s3_server_passes_the_suite_of_buckets() {
    let Some(s3) = S3::start() else { return };
    for prefix in ["", "some/prefix"] {
        suite::run(&client(&s3, prefix), "suite").await;
    }
    probe(&client(&s3, "p")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_writers_through_separate_clients_one_wins() {
    let Some(s3) = S3::start() else { return };
    let clients: Vec<_> = (0..4).map(|_| client(&s3, "race")).collect();
    let races = scaled(2500);
    let start = Instant::now();
    suite::race(&clients, "log", races).await;
    println!("{races} races of 4 writers: one winner each, {:?}", start.elapsed());
    let start = Instant::now();
    let rounds = scaled(250);
    let fenced = suite::manifest_race(&clients[..2], suite::RACED, rounds).await;
    assert!(fenced > 0, "the openers never met");
    println!("{rounds} rounds of 2 openers of one manifest: {fenced} fenced, {:?}", start.elapsed());
}

/// Each lost answer leaves a writer that does not know whether it won. It must find out, and never answer wrongly.
#[tokio::test(flavor = "multi_thread")]
async fn lost_answers_make_no_second_winner() {
    let seed = seed();
    println!("seed {seed}");
    let Some(s3) = S3::start() else { return };
    let lossy = Lossy::start(s3.address().to_owned(), seed).await;
    let mut options = s3.options();
    options[0].1 = format!("http://{}", lossy.address);
    let fast = RetryPolicy { first: Duration::from_millis(1), ..RetryPolicy::default() };
    let open = || Bucket::open_with(&s3.url("lossy"), &options, fast.clone()).unwrap();
    let clients: Vec<_> = (0..4).map(|_| open()).collect();
    suite::race(&clients, "log", scaled(500)).await;
    let fenced = suite::manifest_race(&clients[..2], suite::RACED, scaled(100)).await;
    // The start-up check runs a race again when it has no outcome.
    probe(&open()).await.unwrap();
    // 9 MiB: two parts, any of whose answers may be lost, and that of the completion.
    let content: Vec<u8> = (0..9_437_184u32).map(|i| (i / 11) as u8).collect();
    for i in 0..scaled(20) {
        let mut upload = Upload::new(open(), format!("uploads/{i}"));
        upload.write(&content).await.unwrap();
        upload.finish().await.unwrap();
    }
    let lost = lossy.lost.load(Ordering::Relaxed);
    println!("{lost} answers lost, {fenced} openers fenced");
    assert!(lost > 50, "the proxy lost only {lost} answers");
}

/// Hands bytes to a server and back, except for every eighth answer, which it throws away with the connection.
struct Lossy {
    address: SocketAddr,
    lost: Arc<AtomicUsize>,
}

impl Lossy {
    async fn start(upstream: String, seed: u64) -> Lossy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let lost = Arc::new(AtomicUsize::new(0));
        let counter = lost.clone();
        tokio::spawn(async move {
            let mut rng = StdRng::seed_from_u64(seed);
            while let Ok((down, _)) = listener.accept().await {
                let up = TcpStream::connect(&upstream).await.unwrap();
                tokio::spawn(pass(down, up, StdRng::seed_from_u64(rng.random()), counter.clone()));
            }
        });
        Lossy { address, lost }
    }
}

async fn pass(down: TcpStream, up: TcpStream, mut rng: StdRng, lost: Arc<AtomicUsize>) {
    let (mut from_client, mut to_client) = down.into_split();
    let (mut from_server, mut to_server) = up.into_split();
    let requests = tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
    let mut buffer = vec![0; 64 << 10];
    while let Ok(n @ 1..) = from_server.read(&mut buffer).await {
        if rng.random_range(0..8) == 0 {
            lost.fetch_add(1, Ordering::Relaxed);
            break;
        }
        if to_client.write_all(&buffer[..n]).await.is_err() {
            break;
        }
    }
    requests.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_is_given_up_leaves_nothing_on_the_server() {
    let Some(s3) = S3::start() else { return };
    let mut upload = Upload::new(client(&s3, ""), "given/up".to_owned());
    upload.write(&vec![7; 20 << 20]).await.unwrap();
    assert!(files(&s3.folder()).len() >= 2, "two parts are there");
    drop(upload);
    eventually(Duration::from_secs(30), "the parts are gone", || async {
        let left = files(&s3.folder());
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await;
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() { found.extend(files(&entry.path())) } else { found.push(entry.path()) }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_goes_away_is_never_taken_for_an_empty_one() {
    let Some(mut s3) = S3::start() else { return };
    let quick = RetryPolicy { total: Duration::from_secs(1), ..RetryPolicy::default() };
    let bucket = Bucket::open_with(&s3.url(""), &s3.options(), quick).unwrap();
    bucket.put("x", "1".into()).await.unwrap();
    s3.kill();
    assert_eq!(bucket.get("x").await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(bucket.put_if_absent("y", "1".into()).await.unwrap_err().kind(), ErrorKind::Unknown);
    s3.restart();
    assert_eq!(bucket.get("x").await.unwrap(), Some("1".into()));
    assert_eq!(bucket.get("y").await.unwrap(), None);
    std::fs::remove_dir_all(s3.folder()).unwrap();
    for error in [
        bucket.get("x").await.map(|_| ()).unwrap_err(),
        bucket.put_if_absent("x", "1".into()).await.map(|_| ()).unwrap_err(),
        bucket.list("").await.map(|_| ()).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(remedy(&error).starts_with("create the bucket"), "{}", remedy(&error));
    }
}

/// Runs `millstream check` and answers its lines about the bucket, and how long it took.
fn check(bootstrap: &str, url: &str, options: &[(String, String)]) -> (bool, String, Duration) {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("millstream.yaml");
    let options: String = options.iter().map(|(name, value)| format!("    {name}: {value:?}\n")).collect();
    let yaml = format!(
        "version: 1\nkafka:\n  bootstrap_servers: {bootstrap}\n  prefix: check\nobject_store:\n  url: {url}\n  options:\n{options}"
    );
    std::fs::write(&config, yaml).unwrap();
    let start = Instant::now();
    let out = Command::new(binary()).args(["check", "--config"]).arg(&config).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let line =
        text.lines().find(|l| l.contains("bucket: ")).unwrap_or_else(|| panic!("no line on the bucket:\n{text}"));
    (out.status.success(), line.to_owned(), start.elapsed())
}

#[tokio::test(flavor = "multi_thread")]
async fn check_tells_what_is_wrong_with_a_bucket_and_what_to_do() {
    let Some(s3) = S3::start() else { return };
    let broker = Broker::own(Kind::Embedded);
    let with = |name: &str, value: &str| {
        let mut options = s3.options();
        options.retain(|(n, _)| n != name);
        options.push((name.to_owned(), value.to_owned()));
        options
    };
    let nowhere = format!("http://127.0.0.1:{}", free_port());
    let url = s3.url("data");
    let cases = [
        ("good", url.as_str(), s3.options(), vec!["ok ", "only one wins"]),
        (
            "no such bucket",
            "s3://no-such-bucket/data",
            s3.options(),
            vec!["FAILED", "NoSuchBucket", "create the bucket"],
        ),
        (
            "wrong secret",
            &url,
            with("aws_secret_access_key", "wrong"),
            vec!["FAILED", "SignatureDoesNotMatch", "correct key and secret"],
        ),
        (
            "wrong key",
            &url,
            with("aws_access_key_id", "who"),
            vec!["FAILED", "No user exists", "correct key and secret"],
        ),
        (
            "nothing listens",
            &url,
            with("aws_endpoint", &nowhere),
            vec!["FAILED", nowhere.as_str(), "refused", "does it run at this address"],
        ),
        ("no TLS allowed", &url, with("aws_allow_http", "false"), vec!["FAILED", "aws_allow_http"]),
        (
            "misspelt option",
            &url,
            with("aws_endpiont", "x"),
            vec!["FAILED", "`aws_endpiont`", "correct section `object_store`"],
        ),
    ];
    for (name, url, options, says) in cases {
        let (good, line, took) = check(broker.bootstrap(), url, &options);
        println!("{name} ({took:?}): {line}");
        assert_eq!(good, name == "good", "{name}: {line}");
        assert!(says.iter().all(|s| line.contains(s)), "{name} should say {says:?}: {line}");
        assert!(took < Duration::from_secs(20), "{name} took {took:?}");
    }
}

/// An S3 service that answers 200 to every put: its `If-None-Match` has no effect.
#[tokio::test(flavor = "multi_thread")]
async fn check_refuses_a_store_that_lets_two_writers_win() {
    let Some(s3) = S3::start() else { return };
    let broker = Broker::own(Kind::Embedded);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let upstream = s3.address().to_owned();
    tokio::spawn(async move {
        while let Ok((down, _)) = listener.accept().await {
            tokio::spawn(unconditional(down, upstream.clone()));
        }
    });
    let mut options = s3.options();
    options[0].1 = format!("http://{address}");
    let (bootstrap, url) = (broker.bootstrap().to_owned(), s3.url("broken"));
    let (good, line, took) = tokio::task::spawn_blocking(move || check(&bootstrap, &url, &options)).await.unwrap();
    println!("{took:?}: {line}");
    assert!(!good);
    for says in ["FAILED", "put-if-absent let 4 concurrent writers win", "use another store"] {
        assert!(line.contains(says), "{line}");
    }
}

/// Turns each answer "412 precondition failed" into success.
async fn unconditional(down: TcpStream, upstream: String) {
    let up = TcpStream::connect(upstream).await.unwrap();
    let (mut from_client, mut to_client) = down.into_split();
    let (mut from_server, mut to_server) = up.into_split();
    let requests = tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
    let mut buffer = vec![0; 64 << 10];
    while let Ok(n @ 1..) = from_server.read(&mut buffer).await {
        const REFUSED: &[u8] = b"HTTP/1.1 412 Precondition Failed";
        let answer = if buffer.starts_with(REFUSED) {
            [b"HTTP/1.1 200 OK\r\netag: \"x\"", &buffer[REFUSED.len()..n]].concat()
        } else {
            buffer[..n].to_vec()
        };
        if to_client.write_all(&answer).await.is_err() {
            break;
        }
        buffer.fill(0);
    }
    requests.abort();
}
