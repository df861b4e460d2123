//! Limits the rate of requests: each address has a token bucket, and a second one for unauthorised requests, so that a client
//! without the token cannot use up the requests of those that have it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::Instant;

/// Burst size, as a multiple of the requests per second.
const BURST: f64 = 4.0;
/// Maximum number of addresses. Full buckets are dropped first: a new bucket is full too.
const ADDRESSES_MAX: usize = 1024;

/// Whether a request is authorised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Requester {
    /// It had the token and came from an allowed source.
    Known,
    /// It was refused, or requests something that needs no token.
    Stranger,
}

/// The buckets of all addresses.
#[derive(Debug)]
pub(crate) struct Rates {
    per_second: f64,
    buckets: RefCell<HashMap<(Option<IpAddr>, Requester), Bucket>>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    filled: Instant,
}

impl Rates {
    /// Allows `per_second` requests a second for each address, and four times as many in a burst.
    pub(crate) fn new(per_second: u32) -> Self {
        Self {
            per_second: f64::from(per_second.max(1)),
            buckets: RefCell::default(),
        }
    }

    /// Counts a request of `address`, which is `None` on a Unix socket.
    ///
    /// # Errors
    /// How long to wait before the next request, if there were too many.
    pub(crate) fn take(
        &self,
        address: Option<IpAddr>,
        requester: Requester,
    ) -> Result<(), Duration> {
        let now = Instant::now();
        let mut buckets = self.buckets.borrow_mut();
        if buckets.len() >= ADDRESSES_MAX {
            buckets.retain(|_, bucket| self.filled(bucket, now) < self.size());
        }
        if buckets.len() >= ADDRESSES_MAX {
            buckets.clear();
        }
        let full = Bucket {
            tokens: self.size(),
            filled: now,
        };
        let bucket = buckets.entry((address, requester)).or_insert(full);
        *bucket = Bucket {
            tokens: self.filled(bucket, now),
            filled: now,
        };
        if bucket.tokens < 1.0 {
            return Err(Duration::from_secs_f64(
                (1.0 - bucket.tokens) / self.per_second,
            ));
        }
        bucket.tokens -= 1.0;
        Ok(())
    }

    fn size(&self) -> f64 {
        self.per_second * BURST
    }

    fn filled(&self, bucket: &Bucket, now: Instant) -> f64 {
        let since = now.duration_since(bucket.filled).as_secs_f64();
        (bucket.tokens + since * self.per_second).min(self.size())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn rate_limit_delays_only_its_own_requester() {
        let rates = Rates::new(10);
        let address = Some(IpAddr::from([127, 0, 0, 1]));
        for _ in 0..40 {
            assert_eq!(rates.take(address, Requester::Stranger), Ok(()));
        }
        let wait = rates.take(address, Requester::Stranger).unwrap_err();
        assert!(wait <= Duration::from_millis(100), "{wait:?}");
        assert_eq!(
            rates.take(address, Requester::Known),
            Ok(()),
            "a right has a bucket of its own"
        );
        assert_eq!(rates.take(None, Requester::Stranger), Ok(()));
        tokio::time::advance(wait).await;
        assert_eq!(rates.take(address, Requester::Stranger), Ok(()));
        assert!(rates.take(address, Requester::Stranger).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn many_addresses_take_no_memory_without_bound() {
        let rates = Rates::new(1);
        for number in 0..(3 * ADDRESSES_MAX as u32) {
            let _ = rates.take(
                Some(IpAddr::from(number.to_be_bytes())),
                Requester::Stranger,
            );
        }
        assert!(rates.buckets.borrow().len() <= ADDRESSES_MAX);
    }
}
