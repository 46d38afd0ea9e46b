//! Goal: one bad record never harms its neighbours. Garbage, wrong types, null keys, huge and deep values, extremes: exact count of rejects, others intact.

use std::time::Duration;

use millstream_e2e::{
    broker::{Broker, Kind},
    eventually::eventually,
    sandbox::{Options, Sandbox},
    topic::{self, Feed},
};
use rand::{Rng, SeedableRng, rngs::StdRng};

async fn garbage_among_good_records_is_counted_exactly(kind: Kind) {
    let broker = Broker::start(kind);
    let b = broker.bootstrap().to_owned();
    let mixed = broker.name("mixed");
    topic::create(&b, &mixed, 2, &[("max.message.bytes", "4000000")]).await;
    let sandbox = Sandbox::new(&Options::new(&broker, "bad"));
    let client = sandbox.start().await;
    client
        .sql(&format!("CREATE TABLE mixed (id BIGINT NOT NULL, n BIGINT, d DECIMAL(38,10), s VARCHAR, ok BOOLEAN, PRIMARY KEY (id)) WITH (topic = '{mixed}', 'value.format' = 'json', 'key.format' = 'json')"))
        .await;
    let feed = Feed::new(&b);
    let mut rng = StdRng::seed_from_u64(7);
    let mut bad = 0;
    let mut good = 0;
    let key = |id: i64| format!("{{\"id\":{id}}}").into_bytes();
    let deep = format!("{{\"id\":1,\"x\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    for round in 0..200i64 {
        let id = round * 10;
        // Good ones, extremes included.
        for (i, value) in [
            format!("{{\"id\":{id},\"n\":9223372036854775807,\"d\":9999999999999999999999999999.9999999999,\"s\":\"x\",\"ok\":true}}"),
            format!("{{\"id\":{},\"n\":-9223372036854775808,\"d\":\"-0.0000000001\",\"s\":null}}", id + 1),
            format!("{{\"id\":{},\"unused\":123456789012345678901234567890,\"s\":\"\\u00e9\\ud83d\\ude00\"}}", id + 2),
        ]
        .iter()
        .enumerate()
        {
            feed.send(&mixed, (round % 2) as i32, Some(&key(id + i as i64)), Some(value.as_bytes()));
            good += 1;
        }
        // Bad ones between them.
        let mut garbage = vec![0u8; rng.random_range(1..200)];
        rng.fill(&mut garbage[..]);
        garbage[0] = 0xff;
        for value in [
            garbage.as_slice(),
            b"{\"id\":1,\"n\":",
            b"{\"id\":5,\"n\":9223372036854775808}",
            b"{\"id\":5,\"n\":\"wibble\"}",
            b"{\"id\":5,\"d\":10000000000000000000000000000}",
            b"{\"id\":5} {\"id\":6}",
            b"[1,2]",
            b"\"text\"",
            deep.as_bytes(),
        ] {
            feed.send(&mixed, (round % 2) as i32, Some(&key(5)), Some(value));
            bad += 1;
        }
        feed.send(&mixed, (round % 2) as i32, None, Some(b"{\"n\":1}"));
        feed.send(&mixed, (round % 2) as i32, None, None);
        bad += 2;
    }
    let long = "y".repeat(1 << 20);
    feed.send(&mixed, 0, Some(&key(1_000_000)), Some(format!("{{\"id\":1000000,\"s\":\"{long}\"}}").as_bytes()));
    good += 1;
    feed.flush();

    eventually(Duration::from_secs(60), "all good records are rows", || async {
        let n = client.number("SELECT count(*) FROM mixed").await;
        if n == good { Ok(()) } else { Err((n, good)) }
    })
    .await;
    assert_eq!(client.number("SELECT count(*) FROM mixed WHERE n = 9223372036854775807 AND d = 9999999999999999999999999999.9999999999").await, 200);
    assert_eq!(client.number("SELECT count(*) FROM mixed WHERE n = -9223372036854775808").await, 200);
    assert_eq!(client.number("SELECT length(s) FROM mixed WHERE id = 1000000").await, 1 << 20);
    let rejected: u64 = client
        .metrics()
        .await
        .lines()
        .filter(|l| l.starts_with("millstream_bad_records_total{") && l.contains("table=\"mixed\""))
        .filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok())
        .sum::<f64>() as u64;
    assert_eq!(rejected, bad, "rejected records");
    let errors = client.get("/v1/tables/mixed/errors").await.expect("errors are listed").to_string();
    assert!(
        errors.contains("offset") && errors.contains("malformed"),
        "the last errors have coordinates: {}",
        &errors[..errors.len().min(500)]
    );
}

millstream_e2e::on_each_broker!(
    alone:
    garbage_among_good_records_is_counted_exactly,
);
