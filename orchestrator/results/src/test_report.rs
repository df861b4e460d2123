//! Counts in the output of a test runner. Success depends on the exit code; the counts come from an untrusted program.

use serde::Serialize;

/// How many tests had which result, according to the runner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub passed: u64,
    pub failed: u64,
    pub skipped: u64,
}

impl Counts {
    /// Reads the counts from the end of an output; `None` if no runner printed any.
    pub fn read(output: &str) -> Option<Self> {
        let mut sum: Option<Self> = None;
        // Whether the last line read gave only the number of tests, and not yet their results.
        let mut ran = false;
        for line in output.lines() {
            if let Some(count) = unittest(line) {
                (sum, ran) = (
                    Some(Counts {
                        passed: count,
                        ..Counts::default()
                    }),
                    true,
                );
            } else if let (true, Some(counts), Some(rest)) = (ran, &mut sum, not_passed(line)) {
                let passed = counts
                    .passed
                    .saturating_sub(rest.failed)
                    .saturating_sub(rest.skipped);
                (*counts, ran) = (Counts { passed, ..rest }, false);
            } else if let Some(counts) = cargo(line) {
                sum = Some(sum.unwrap_or_default() + counts);
            } else if let Some(counts) = pytest(line).or_else(|| table(line)) {
                sum = Some(counts);
            } else if let Some((which, count)) = node_or_mocha(line) {
                let counts = sum.get_or_insert_default();
                match which {
                    Count::Passed => counts.passed = count,
                    Count::Failed => counts.failed = count,
                    Count::Skipped => counts.skipped = count,
                }
            }
        }
        sum
    }
}

impl std::ops::Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            passed: self.passed.saturating_add(other.passed),
            failed: self.failed.saturating_add(other.failed),
            skipped: self.skipped.saturating_add(other.skipped),
        }
    }
}

enum Count {
    Passed,
    Failed,
    Skipped,
}

/// `test result: ok. 2 passed; 0 failed; 1 ignored; …`: one for each program of tests.
fn cargo(line: &str) -> Option<Counts> {
    let (_, counts) = line
        .trim()
        .strip_prefix("test result: ")?
        .split_once(". ")?;
    Some(words(counts, ';'))
}

/// `== 1 failed, 2 passed, 1 skipped in 0.12s ==`, with or without the signs.
fn pytest(line: &str) -> Option<Counts> {
    let (counts, time) = line.trim().trim_matches('=').trim().rsplit_once(" in ")?;
    let seconds = time
        .split('s')
        .next()
        .is_some_and(|number| number.parse::<f64>().is_ok());
    let first = counts
        .split(' ')
        .next()
        .is_some_and(|number| number.parse::<u64>().is_ok());
    (seconds && first).then(|| words(counts, ','))
}

/// Unittest's `Ran 3 tests in 0.001s`.
fn unittest(line: &str) -> Option<u64> {
    let (count, rest) = line.strip_prefix("Ran ")?.split_once(' ')?;
    rest.starts_with("test").then(|| count.parse().ok())?
}

/// Unittest's next line, about tests that did not pass: `FAILED (failures=1, errors=2, skipped=1)`, `OK (skipped=1)`.
fn not_passed(line: &str) -> Option<Counts> {
    let counts = line
        .strip_prefix("FAILED (")
        .or_else(|| line.strip_prefix("OK ("))?
        .strip_suffix(')')?;
    let mut rest = Counts::default();
    for (name, count) in counts.split(", ").filter_map(|part| part.split_once('=')) {
        let place = match name {
            "failures" | "errors" | "unexpected successes" => &mut rest.failed,
            "skipped" | "expected failures" => &mut rest.skipped,
            _ => continue,
        };
        *place = place.saturating_add(count.parse().ok()?);
    }
    Some(rest)
}

/// Jest's `Tests:  1 failed, 2 passed, 3 total` and Vitest's `Tests  1 failed | 2 passed (3)`.
fn table(line: &str) -> Option<Counts> {
    let counts = line
        .trim()
        .strip_prefix("Tests")?
        .trim_start_matches(':')
        .trim();
    counts
        .starts_with(|c: char| c.is_ascii_digit())
        .then(|| words(&counts.replace('|', ","), ','))
}

/// Node's `# pass 3` or `ℹ pass 3`, and Mocha's `3 passing`.
fn node_or_mocha(line: &str) -> Option<(Count, u64)> {
    let line = line.trim();
    let node = line.strip_prefix("# ").or_else(|| line.strip_prefix("ℹ "));
    let (name, number) = match node {
        Some(rest) => rest.split_once(' ')?,
        None => line
            .split_once(' ')
            .map(|(number, rest)| (rest.split(' ').next().unwrap_or(""), number))?,
    };
    let which = match (node.is_some(), name) {
        (true, "pass") | (false, "passing") => Count::Passed,
        (true, "fail") | (false, "failing") => Count::Failed,
        (true, "skipped") | (false, "pending") => Count::Skipped,
        _ => return None,
    };
    Some((which, number.parse().ok()?))
}

/// `1 failed, 2 passed`: repeated pairs of a number and a word.
fn words(text: &str, between: char) -> Counts {
    let mut counts = Counts::default();
    for part in text.split(between) {
        let mut words = part.split_whitespace();
        let (Some(Ok(count)), Some(name)) = (words.next().map(str::parse::<u64>), words.next())
        else {
            continue;
        };
        let place = match name {
            "passed" | "xpassed" => &mut counts.passed,
            "failed" | "error" | "errors" => &mut counts.failed,
            "skipped" | "ignored" | "xfailed" | "todo" => &mut counts.skipped,
            _ => continue,
        };
        *place = place.saturating_add(count);
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_runner_is_understood() {
        let cases = [
            (
                "running 3 tests\ntest result: FAILED. 2 passed; 1 failed; 4 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\ntest result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
                Some((7, 1, 4)),
            ),
            (
                "..F\n=== 1 failed, 2 passed, 1 skipped, 3 warnings in 0.12s ===",
                Some((2, 1, 1)),
            ),
            ("2 passed in 0.01s", Some((2, 0, 0))),
            (
                "1 failed, 1 error, 2 xfailed in 61.20s (0:01:01)",
                Some((0, 2, 2)),
            ),
            (
                "Tests:       1 failed, 1 skipped, 2 passed, 4 total\nTime: 1 s",
                Some((2, 1, 1)),
            ),
            ("      Tests  1 failed | 2 passed (3)", Some((2, 1, 0))),
            (
                "# tests 3\n# pass 2\n# fail 1\n# cancelled 0\n# skipped 0",
                Some((2, 1, 0)),
            ),
            ("ℹ pass 3\nℹ fail 0\nℹ skipped 1", Some((3, 0, 1))),
            (
                "  3 passing (12ms)\n  1 pending\n  2 failing",
                Some((3, 2, 1)),
            ),
            (
                ".F.s\nRan 4 tests in 0.001s\n\nFAILED (failures=1, skipped=1)",
                Some((2, 1, 1)),
            ),
            ("Ran 1 test in 0.000s\n\nOK", Some((1, 0, 0))),
            ("no tests here\nin 3s\nTests are good\n5 of 6", None),
            ("", None),
            (
                "test result: ok. 99999999999999999999 passed; 1 failed",
                Some((0, 1, 0)),
            ),
        ];
        for (output, want) in cases {
            let got =
                Counts::read(output).map(|counts| (counts.passed, counts.failed, counts.skipped));
            assert_eq!(got, want, "{output}");
        }
    }
}
