//! Times as AWS writes them.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY: u64 = 24 * 3600;

/// Seconds since the beginning of 1970, in UTC.
pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// A day of the Gregorian calendar as `YYYYMMDD`, and the whole time with `THHMMSSZ`.
pub(crate) fn stamp(seconds: u64) -> (String, String) {
    let (year, month, day) = date(seconds / DAY);
    let of_day = seconds % DAY;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let day = format!("{year:04}{month:02}{day:02}");
    let whole = format!("{day}T{hour:02}{minute:02}{second:02}Z");
    (day, whole)
}

/// Year, month and day so many days after the first of 1970. Years begin in March here, so that a leap day is the last of its year.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month < 3), month, day)
}

/// The days from the first of 1970 to this date, which is the inverse of [`date`].
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let year = year.checked_sub(u64::from(month < 3))?;
    let month = if month < 3 { month + 9 } else { month - 3 };
    let (era, year) = (year / 400, year % 400);
    let of_year = (153 * month + 2) / 5 + day.checked_sub(1)?;
    (era * 146_097 + 365 * year + year / 4 - year / 100 + of_year).checked_sub(719_468)
}

/// Seconds since 1970 of a time as RFC 3339 has it.
pub(crate) fn read(text: &str) -> Option<u64> {
    let number = |from: usize, to: usize| -> Option<u64> {
        let digits = text.get(from..to)?;
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse().ok())?
    };
    let is = |at: usize, marks: &[u8]| text.as_bytes().get(at).is_some_and(|b| marks.contains(b));
    let is_formed = is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":");
    let (month, day) = (number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let is_time = (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_formed || !is_time || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let local = days(number(0, 4)?, month, day)? * DAY + hour * 3600 + minute * 60 + second;
    let rest = text.get(19..)?;
    let zone = rest.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    if matches!(zone, "Z" | "z") {
        return Some(local);
    }
    let at = text.len().checked_sub(6)?;
    let east = number(at + 1, at + 3)? * 3600 + number(at + 4, at + 6)? * 60;
    match (zone.len(), text.as_bytes()[at], is(at + 3, b":")) {
        (6, b'+', true) => local.checked_sub(east),
        (6, b'-', true) => local.checked_add(east),
        (_, _, _) => None,
    }
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
