//! End-to-end harness: a broker, a real server process, real clients, and the oracle that ends every scenario.
//!
//! Owns: starting and stopping the parts ([`broker`], [`s3`], [`sandbox`]), generating input with its truth ([`orders`]), talking to the service
//! ([`client`]), and the comparison ([`oracle`]). Not here: any code of the service; the harness sees only what a user sees.

pub mod broker;
pub mod client;
pub mod eventually;
pub mod oracle;
pub mod orders;
pub mod s3;
pub mod sandbox;
pub mod topic;

/// Seed of a random scenario: `MILLSTREAM_SEED` or the clock. The caller prints it first.
pub fn seed() -> u64 {
    std::env::var("MILLSTREAM_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(|| {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64)
    })
}

/// A size times `MILLSTREAM_E2E_SCALE`: 0.2 unless set, 1 is the size that the issues name. With a broker: `Kind::scaled`.
pub fn scaled(n: u64) -> u64 {
    times_scale(n, 0.2)
}

fn times_scale(n: u64, unless_set: f64) -> u64 {
    let scale: f64 = std::env::var("MILLSTREAM_E2E_SCALE").ok().and_then(|s| s.parse().ok()).unwrap_or(unless_set);
    ((n as f64 * scale) as u64).max(1)
}
