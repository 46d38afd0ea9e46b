//! Paces backfill scans: rows per second of one input, shared by its regions. Rows count when they were emitted; live rows never do.
//!
//! A token bucket that may go into debt: a chunk is let through when any token is there, and pays for all its rows. So a rate of 1 with a chunk of two
//! rows (an update pair) is exact over time. Not here: waiting, which the driver races with the next barrier.

/// What the next chunk has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permit {
    /// At most this many rows.
    Rows(usize),
    /// Nothing before so many milliseconds have passed.
    WaitMs(u64),
    /// Rate 0: nothing until the rate changes.
    Hold,
}

#[derive(Debug)]
pub struct Limiter {
    rate: Option<u64>,
    /// Rows that may go now; negative = debt.
    tokens: f64,
    at_ms: u64,
    chunk_rows: usize,
}

impl Limiter {
    pub fn new(rate: Option<u64>, chunk_rows: usize, now_ms: u64) -> Self {
        Self { rate, tokens: 0.0, at_ms: now_ms, chunk_rows }
    }

    pub fn rate(&self) -> Option<u64> {
        self.rate
    }

    /// The new rate counts from now on; time before counts with the old one.
    pub fn set_rate(&mut self, rate: Option<u64>, now_ms: u64) {
        if rate != self.rate {
            self.refill(now_ms);
            self.rate = rate;
            if rate.is_none() {
                self.tokens = 0.0;
            }
        }
    }

    /// Largest chunk at this rate: a tenth of a second's rows, so that a slow rate does not come in bursts.
    pub fn chunk_rows(&self) -> usize {
        match self.rate {
            None => self.chunk_rows,
            Some(rate) => usize::try_from(rate / 10).unwrap_or(usize::MAX).clamp(1, self.chunk_rows),
        }
    }

    /// May be asked any number of times; only [`Limiter::take`] pays.
    pub fn permit(&mut self, now_ms: u64) -> Permit {
        match self.rate {
            None => Permit::Rows(self.chunk_rows),
            Some(0) => Permit::Hold,
            Some(rate) => {
                self.refill(now_ms);
                // Less than a row short counts as a row: clocks tick in milliseconds.
                if self.tokens >= 1.0 - 1e-9 {
                    Permit::Rows(self.chunk_rows())
                } else {
                    Permit::WaitMs((((1.0 - self.tokens) * 1000.0 / rate as f64).ceil() as u64).max(1))
                }
            }
        }
    }

    pub fn take(&mut self, rows: usize) {
        if self.rate.is_some_and(|r| r > 0) {
            self.tokens -= rows as f64;
        }
    }

    fn refill(&mut self, now_ms: u64) {
        let elapsed = now_ms.saturating_sub(self.at_ms);
        self.at_ms = now_ms;
        if let Some(rate) = self.rate {
            // What was not used within a second is lost: no burst after a pause.
            self.tokens = (self.tokens + elapsed as f64 * rate as f64 / 1000.0).min((rate as f64).max(1.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows_in(limiter: &mut Limiter, from_ms: u64, for_ms: u64) -> u64 {
        let (mut now, mut rows) = (from_ms, 0);
        while now < from_ms + for_ms {
            match limiter.permit(now) {
                Permit::Rows(n) => {
                    limiter.take(n);
                    rows += n as u64;
                }
                Permit::WaitMs(ms) => now += ms,
                Permit::Hold => return rows,
            }
        }
        rows
    }

    #[test]
    fn a_rate_is_kept_within_five_percent() {
        for rate in [1, 2, 10, 999, 50_000] {
            let mut l = Limiter::new(Some(rate), 8192, 0);
            let rows = rows_in(&mut l, 0, 60_000) as f64;
            let wanted = rate as f64 * 60.0;
            assert!((rows - wanted).abs() <= (wanted * 0.05).max(1.0), "rate {rate}: {rows} of {wanted} rows");
        }
    }

    #[test]
    fn rate_zero_holds_until_it_is_raised() {
        let mut l = Limiter::new(Some(0), 8192, 0);
        assert_eq!(l.permit(10_000), Permit::Hold);
        l.set_rate(Some(100), 10_000);
        assert_eq!(rows_in(&mut l, 10_000, 1_000).div_ceil(10), 10, "held time gives no burst");
        l.set_rate(None, 20_000);
        assert_eq!(l.permit(20_000), Permit::Rows(8192));
    }

    #[test]
    fn a_pair_at_rate_one_is_paid_later() {
        let mut l = Limiter::new(Some(1), 8192, 0);
        assert_eq!(l.permit(1_000), Permit::Rows(1));
        l.take(2);
        assert_eq!(l.permit(2_000), Permit::WaitMs(1_000));
        assert_eq!(l.permit(3_000), Permit::Rows(1));
    }
}
