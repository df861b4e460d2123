//! Times as AWS writes them.

use jiff::Timestamp;
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since the beginning of 1970, in UTC.
pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// A day of the Gregorian calendar as `YYYYMMDD`, and the whole time with `THHMMSSZ`.
pub(crate) fn stamp(seconds: u64) -> (String, String) {
    let moment = i64::try_from(seconds).ok();
    let moment = moment.and_then(|seconds| Timestamp::from_second(seconds).ok());
    let moment = moment.unwrap_or(Timestamp::MAX);
    let written = |form: &str| moment.strftime(form).to_string();
    (written("%Y%m%d"), written("%Y%m%dT%H%M%SZ"))
}

/// Seconds since 1970 of a time as RFC 3339 has it: whole to the second, with the zone `Z` or `+HH:MM`. The library reads other forms too.
pub(crate) fn read(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    let is = |at: usize, marks: &[u8]| bytes.get(at).is_some_and(|byte| marks.contains(byte));
    let has_time = is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":");
    let has_zone =
        bytes.ends_with(b"Z") || bytes.ends_with(b"z") || bytes.iter().nth_back(2) == Some(&b':');
    let moment: Timestamp = text.parse().ok().filter(|_| has_time && has_zone)?;
    moment.as_second().try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_and_read() {
        for (seconds, stamped, text) in [
            (0, "19700101T000000Z", "1970-01-01T00:00:00Z"),
            (951_782_400, "20000229T000000Z", "2000-02-29T00:00:00Z"),
            (
                951_868_799,
                "20000229T235959Z",
                "2000-02-29T23:59:59.9+00:00",
            ),
            (
                1_440_938_160,
                "20150830T123600Z",
                "2015-08-30T14:36:00+02:00",
            ),
            (
                4_107_542_400,
                "21000301T000000Z",
                "2100-02-28T23:00:00-01:00",
            ),
        ] {
            assert_eq!(stamp(seconds).1, stamped);
            assert_eq!(read(text), Some(seconds), "{text}");
        }
        for text in [
            "",
            "2015-08-30",
            "2015-08-30T12:36:00",
            "2015-13-30T12:36:00Z",
            "2015-08-30T12:36:00+0200",
            "1969-01-01T00:00:00Z",
            "2015-08-30T1é:36:00Z",
            "in an hour, say, or two",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
