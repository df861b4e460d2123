//! Resource limits: as a policy file writes them, and as a session has them.

use crate::error::PolicyError;
use broker_protocol::{FRAME_MAX, limit};
use serde::de::{Deserializer, Error, Unexpected, Visitor};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Maximum bytes of captured output: a frame, less room for the rest of an outcome.
pub(crate) const CAPTURE_MAX: u64 = FRAME_MAX as u64 - 64 * 1024;

/// A limit as it is written: an absent key is `None`, `"none"` is `Some(None)`.
type WrittenLimit = Option<Option<u64>>;

/// Defines each limit once: its field in `Limits` and its key in `LimitsTable`, with the function that reads the key.
macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $read:literal,)*) => {
        /// Resource limits of a call, and of a session where it says so. None but `undo` is 0.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize)]
        pub struct Limits {
            $($(#[$doc])* pub $name: $type,)*
        }

        /// Limits as a file writes them. Each key is the field of its name in [`Limits`]; an absent one changes nothing.
        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct LimitsTable {
            $(#[serde(deserialize_with = $read)] pub $name: WrittenLimit,)*
        }

        impl LimitsTable {
            fn fields(&mut self) -> Vec<&mut WrittenLimit> {
                vec![$(&mut self.$name,)*]
            }

            fn limits(&self, profile: &str) -> Result<Limits, PolicyError> {
                let missing = |limit| PolicyError::NoLimit { profile: profile.to_owned(), limit };
                Ok(Limits {
                    $($name: <$type>::of(self.$name.flatten()).ok_or_else(|| missing(stringify!($name)))?,)*
                })
            }
        }
    };
}

limits! {
    /// Wall seconds of a command that asks for nothing else; not more than `timeout_max_s`. `None`: no limit.
    timeout_s: Option<u32> = "seconds_or_none",
    /// Maximum wall seconds a command may ask for; `None`: any number, or no limit at all.
    timeout_max_s: Option<u32> = "seconds_or_none",
    /// As `timeout_s`, for a command that a person has started (`lazaret run`). A file that sets only `timeout_s` sets both.
    /// `None`: no limit, and any that is asked for.
    attended_timeout_s: Option<u32> = "seconds_or_none",
    /// Bytes of a command's output kept in its result, half from the beginning and half from the end; at most
    /// [`CAPTURE_MAX`].
    capture: u64 = "capture",
    /// Bytes of a command's output written to its spill file.
    spill: u64 = "size",
    /// Bytes of output after which a command is ended; `None`: no limit.
    output: Option<u64> = "size_or_none",
    /// Processes and threads of a call, sampled ten times a second; and of a session (`RLIMIT_NPROC`, a quarter above; `pids.max`).
    processes: Option<u64> = "count_or_none",
    /// Bytes of resident memory of a call that are no file's, sampled ten times a second; of private memory of each process
    /// (`RLIMIT_DATA`); of a session's memory (`memory.max`) where there is a cgroup.
    memory: Option<u64> = "size_or_none",
    /// Percent of the machine's memory (`MemTotal`) that a call may hold, memory that is shared counted too, once; sampled ten
    /// times a second.
    memory_share: Option<u64> = "percent_or_none",
    /// CPU seconds of each process.
    cpu_s: Option<u64> = "count_or_none",
    /// Bytes of one file that a cell writes.
    file_size: Option<u64> = "size_or_none",
    /// Bytes that the processes of a call write together, to files and pipes; sampled ten times a second.
    written: Option<u64> = "size_or_none",
    /// Percent of the space that is free on the file systems of both roots when a call begins, which may be used up while it runs,
    /// in whatever way; sampled ten times a second.
    disk_share: Option<u64> = "percent_or_none",
    /// Open descriptors of each process.
    open_files: Option<u64> = "count_or_none",
    /// Bytes of the session's private `/tmp`, home and `/dev/shm` together.
    scratch: u64 = "size",
    /// Bytes on the disk of what is kept to undo the changes of file tools; the oldest is dropped. 0, where a profile that
    /// starts from nothing does not set it: then nothing is kept.
    undo: u64 = "size",
}

/// The types of limits: what each makes of a number, or of none.
trait LimitValue: Sized {
    fn of(number: Option<u64>) -> Option<Self>;
}

impl LimitValue for Option<u32> {
    fn of(number: Option<u64>) -> Option<Self> {
        number.map(u32::try_from).transpose().ok()
    }
}

impl LimitValue for u64 {
    fn of(number: Option<u64>) -> Option<Self> {
        number
    }
}

impl LimitValue for Option<u64> {
    fn of(number: Option<u64>) -> Option<Self> {
        Some(number)
    }
}

impl LimitsTable {
    /// Takes over the keys of `later`.
    pub(crate) fn set(&mut self, later: &LimitsTable) {
        let mut later = later.clone();
        // Who writes a limit for all commands means a person's too.
        later.attended_timeout_s = later.attended_timeout_s.or(later.timeout_s);
        for (own, later) in self.fields().into_iter().zip(later.fields()) {
            *own = later.or(*own);
        }
    }

    /// The limits of `profile`, lowered to every ceiling; no limit is above every ceiling.
    pub(crate) fn complete<'c>(
        mut self,
        profile: &str,
        ceilings: impl Iterator<Item = &'c LimitsTable>,
    ) -> Result<Limits, PolicyError> {
        self.undo.get_or_insert(Some(0));
        // None is written, and never what was forgotten.
        for (limit, written) in [
            ("timeout_s", self.timeout_s),
            ("timeout_max_s", self.timeout_max_s),
        ] {
            written.ok_or_else(|| PolicyError::NoLimit {
                profile: profile.to_owned(),
                limit,
            })?;
        }
        let Limits {
            timeout_s,
            timeout_max_s,
            ..
        } = self.limits(profile)?;
        if let Some(max_s) = timeout_max_s
            && timeout_s.is_none_or(|timeout_s| timeout_s > max_s)
        {
            return Err(PolicyError::Timeout {
                profile: profile.to_owned(),
                timeout_s: seconds_text(timeout_s),
                max_s,
            });
        }
        for ceiling in ceilings {
            let mut ceiling = ceiling.clone();
            ceiling.attended_timeout_s = ceiling.attended_timeout_s.or(ceiling.timeout_max_s);
            for (own, ceiling) in self.fields().into_iter().zip(ceiling.fields()) {
                let lowered = [own.flatten(), ceiling.flatten()]
                    .into_iter()
                    .flatten()
                    .min();
                *own = Some(lowered);
            }
        }
        let limits = self.limits(profile)?;
        let shorter = [limits.timeout_s, limits.timeout_max_s]
            .into_iter()
            .flatten()
            .min();
        Ok(Limits {
            timeout_s: shorter,
            ..limits
        })
    }
}

/// A number of seconds as a file has it.
fn seconds_text(seconds: Option<u32>) -> String {
    seconds.map_or_else(|| "\"none\"".to_owned(), |seconds| seconds.to_string())
}

/// Wall seconds, at most [`TIMEOUT_S`](limit::TIMEOUT_S).
pub(crate) fn seconds<'de, D: Deserializer<'de>>(input: D) -> Result<WrittenLimit, D::Error> {
    const SECONDS: Number = Number {
        expected: "seconds, 1 to 86400",
        max: limit::TIMEOUT_S as u64,
        ..Number::COUNT
    };
    input.deserialize_any(SECONDS)
}

fn seconds_or_none<'de, D: Deserializer<'de>>(input: D) -> Result<WrittenLimit, D::Error> {
    const SECONDS: Number = Number {
        expected: "seconds, 1 to 86400, or \"none\"",
        max: limit::TIMEOUT_S as u64,
        none: true,
        ..Number::COUNT
    };
    input.deserialize_any(SECONDS)
}

fn capture<'de, D: Deserializer<'de>>(input: D) -> Result<WrittenLimit, D::Error> {
    const CAPTURE: Number = Number {
        expected: "a size of at most 960 KiB, such as \"100 KiB\"",
        max: CAPTURE_MAX,
        ..Number::SIZE
    };
    input.deserialize_any(CAPTURE)
}

fn size<'de, D: Deserializer<'de>>(input: D) -> Result<WrittenLimit, D::Error> {
    input.deserialize_any(Number::SIZE)
}

fn size_or_none<'de, D: Deserializer<'de>>(input: D) -> Result<WrittenLimit, D::Error> {
    const SIZE: Number = Number {
        expected: "a size such as \"64 MiB\", or \"none\"",
        none: true,
        ..Number::SIZE
    };
    input.deserialize_any(SIZE)
}

fn count_or_none<'de, D: Deserializer<'de>>(input: D) -> Result<WrittenLimit, D::Error> {
    const COUNT: Number = Number {
        expected: "a number from 1, or \"none\"",
        none: true,
        ..Number::COUNT
    };
    input.deserialize_any(COUNT)
}

fn percent_or_none<'de, D: Deserializer<'de>>(input: D) -> Result<WrittenLimit, D::Error> {
    const PERCENT: Number = Number {
        expected: "percent, 1 to 100, or \"none\"",
        max: 100,
        none: true,
        ..Number::COUNT
    };
    input.deserialize_any(PERCENT)
}

/// Numbers that a key takes. Every one is at least 1.
#[derive(Clone, Copy)]
struct Number {
    expected: &'static str,
    max: u64,
    /// Whether a string with a unit is taken.
    sized: bool,
    none: bool,
}

impl Number {
    const COUNT: Number = Number {
        expected: "a number from 1",
        max: i64::MAX as u64,
        sized: false,
        none: false,
    };
    const SIZE: Number = Number {
        expected: "a size such as \"64 MiB\"",
        sized: true,
        ..Number::COUNT
    };

    fn checked(&self, number: u64) -> Option<WrittenLimit> {
        (1..=self.max)
            .contains(&number)
            .then_some(Some(Some(number)))
    }
}

impl Visitor<'_> for Number {
    type Value = WrittenLimit;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<WrittenLimit, E> {
        let checked = u64::try_from(number)
            .ok()
            .and_then(|number| self.checked(number));
        checked.ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<WrittenLimit, E> {
        self.checked(number)
            .ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<WrittenLimit, E> {
        if self.none && text == "none" {
            return Ok(Some(None));
        }
        let checked = bytes(text)
            .filter(|_| self.sized)
            .and_then(|bytes| self.checked(bytes));
        checked.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

/// `64 MiB` as bytes. `MB` is refused: it means two different numbers.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim_start_matches(' ') {
        "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> LimitsTable {
        toml::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn numbers_are_read_with_their_units() {
        for (text, want) in [
            ("timeout_s = 1", Some(1)),
            ("timeout_s = 86400", Some(86_400)),
            ("scratch = 7", Some(7)),
            ("scratch = '7 B'", Some(7)),
            ("scratch = '64MiB'", Some(64 << 20)),
            ("scratch = '2 TiB'", Some(2 << 40)),
            ("memory = 'none'", None),
            ("memory = '1 GiB'", Some(1 << 30)),
            ("processes = 'none'", None),
            ("memory_share = 100", Some(100)),
            ("disk_share = 'none'", None),
            ("capture = '960 KiB'", Some(CAPTURE_MAX)),
        ] {
            let written: Vec<Option<u64>> = table(text)
                .fields()
                .into_iter()
                .filter_map(|limit| *limit)
                .collect();
            assert_eq!(written, [want], "{text}");
        }
        assert!(table("").fields().into_iter().all(|limit| limit.is_none()));
    }

    #[test]
    fn numbers_out_of_range_or_ambiguous_are_refused() {
        for text in [
            "timeout_s = 0",
            "timeout_s = -1",
            "timeout_s = 86401",
            "timeout_s = '60'",
            "timeout_s = 1.5",
            "scratch = 0",
            "scratch = '64 MB'",
            "scratch = '64M'",
            "scratch = 'MiB'",
            "scratch = '-1 MiB'",
            "scratch = '99999999999 TiB'",
            "scratch = '64 MiB '",
            "scratch = 'none'",
            "scratch = true",
            "capture = 983041",
            "processes = '64 KiB'",
            "processes = 0",
            "memory_share = 101",
            "disk_share = '90%'",
        ] {
            assert!(toml::from_str::<LimitsTable>(text).is_err(), "{text}");
        }
    }
}
