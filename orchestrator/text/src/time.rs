//! Formats times for people: in UTC, from seconds since 1970.

use jiff::Timestamp;

/// `2026-11-20 10:02:34Z`. A time after the year 9999 becomes the last second of that year.
pub fn utc(seconds: u64) -> String {
    format(seconds, "%Y-%m-%d %H:%M:%SZ")
}

/// `20261120-100234`, for names that sort by time.
pub fn compact(seconds: u64) -> String {
    format(seconds, "%Y%m%d-%H%M%S")
}

/// `2026-11-20T10:02:34.007Z`, from milliseconds since 1970: for programs that merge lines of different sources.
pub fn precise(milliseconds: u64) -> String {
    let moment = i64::try_from(milliseconds)
        .ok()
        .and_then(|moment| Timestamp::from_millisecond(moment).ok());
    moment
        .unwrap_or(Timestamp::MAX)
        .strftime("%Y-%m-%dT%H:%M:%S.%3fZ")
        .to_string()
}

fn format(seconds: u64, form: &str) -> String {
    let moment = i64::try_from(seconds)
        .ok()
        .and_then(|seconds| Timestamp::from_second(seconds).ok());
    moment.unwrap_or(Timestamp::MAX).strftime(form).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments_have_their_names() {
        for (seconds, want) in [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_400, "2000-02-29 00:00:00Z"),
            (1_798_761_599, "2026-12-31 23:59:59Z"),
            (4_107_542_400, "2100-03-01 00:00:00Z"),
            (u64::MAX, "9999-12-30 22:00:00Z"),
        ] {
            assert_eq!(utc(seconds), want);
        }
        assert_eq!(compact(951_782_399), "20000228-235959");
        assert_eq!(precise(951_782_399_007), "2000-02-28T23:59:59.007Z");
        assert_eq!(precise(u64::MAX), "9999-12-30T22:00:00.999Z");
    }
}
