//! Makes many mixed calls in one session after another, while parts of the session are killed at random moments.
//!
//! The right answer of each call is known. A kill may make a call fail, but never make it succeed wrongly, and without a kill it
//! may not fail. Between rounds no call is in progress: then processes, descriptors, memory, mounts and files are counted, and must
//! not have grown.

use clap::Parser;
use lazaret_tests::process::{self, Process};
use lazaret_tests::world::long_sleep;
use lazaret_tests::{Chance, Place, Session, World};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Makes many mixed calls while parts of the session are killed. Ends with 0 when nothing was wrong.
#[derive(Parser)]
struct Options {
    /// Calls in each place
    #[arg(default_value_t = 20_000)]
    calls: u64,
    /// Where chance begins
    #[arg(default_value_t = 0x50ac, value_parser = clap::value_parser!(u64).range(1..))]
    seed: u64,
    /// A tier and a user, such as `flat/root` [default: both tiers as the ordinary user]
    #[arg(long)]
    place: Option<Place>,
}

/// Calls under way at once.
const AT_ONCE: usize = 4;
/// Rounds of a run: between two of them no call is in progress.
const ROUNDS: u64 = 10;
/// One kill in this many calls, on average.
const KILL_EVERY: u64 = 200;
/// How long any answer may take.
const ANSWER: Duration = Duration::from_secs(30);
/// How long a process may take to disappear after it was killed or has ended.
const SECOND: Duration = Duration::from_secs(1);
/// A call that begins within this time after a kill may still meet the killed process.
const NOTICED: Duration = Duration::from_millis(250);
/// Processes of an idle session: `lazaret`, spawner, broker, warden, worker, and a cell with the process that is to become its
/// program.
const PROCESSES: usize = 7;
/// Permitted growth over the first round's figures, for caches and allocators: KiB and descriptors.
const MEMORY_SLACK: u64 = 8 * 1024;
const DESCRIPTOR_SLACK: u64 = 4;

fn main() -> ExitCode {
    let Options { calls, seed, place } = Options::parse();
    let places = place.map_or_else(Place::ordinary, |place| vec![place]);
    let complaints: Vec<String> = places
        .into_iter()
        .flat_map(|place| soak(place, calls, seed))
        .collect();
    if complaints.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!(
        "\n{} complaints:\n  {}",
        complaints.len(),
        complaints.join("\n  ")
    );
    ExitCode::FAILURE
}

/// A whole run in one place; returns what was wrong.
fn soak(place: Place, calls: u64, seed: u64) -> Vec<String> {
    let started = Instant::now();
    let world = World::new(place);
    let mut soak = Soak::new(&world, seed);
    println!(
        "\n{place}: {calls} calls, {AT_ONCE} at once, seed {seed}\n{}",
        Figures::HEAD
    );
    let mut first = None;
    for round in 1..=ROUNDS {
        soak.round(calls / ROUNDS);
        let figures = soak.count();
        println!(
            "{}",
            figures.row(soak.tally.calls, soak.tally.kills.values().sum())
        );
        let first = first.get_or_insert_with(|| figures.clone());
        soak.wrong.extend(
            figures
                .grown(first)
                .into_iter()
                .map(|what| format!("round {round}: {what}")),
        );
    }
    soak.end();
    println!(
        "{}{:.0} s",
        soak.tally.text(),
        started.elapsed().as_secs_f64()
    );
    soak.wrong
        .into_iter()
        .map(|what| format!("{place}: {what}"))
        .collect()
}

/// The right answer of a call.
#[derive(Clone, Debug, PartialEq)]
enum Right {
    /// Success with this text, ignoring blanks at its ends.
    Text(String),
    /// Success with a text that contains this.
    Contains(String),
    /// Success, whatever the text.
    Success,
    /// The file of the slot: one of its possible contents.
    File,
    /// An error of this kind.
    Kind(&'static str),
}

/// A sequence of calls with a file of its own.
struct Slot {
    file: String,
    /// Possible contents of the file: several after a write that was disturbed.
    contents: Vec<String>,
    /// Number of kills when the session last read the file.
    known_at: u64,
    call: Option<Call>,
}

struct Call {
    id: String,
    tool: &'static str,
    right: Right,
    /// The content of its file if it succeeds.
    writes: Option<String>,
    started: Instant,
}

/// What was done and seen.
#[derive(Default)]
struct Tally {
    calls: u64,
    tools: BTreeMap<&'static str, u64>,
    failed: u64,
    kills: BTreeMap<&'static str, u64>,
    sessions: u64,
}

impl Tally {
    fn text(&self) -> String {
        let list = |map: &BTreeMap<&str, u64>| {
            map.iter()
                .map(|(name, count)| format!("{count} {name}"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        format!(
            "  {} calls ({})\n  {} kills ({})\n  {} calls failed by a kill, {} sessions of lazaret, ",
            self.calls,
            list(&self.tools),
            self.kills.values().sum::<u64>(),
            list(&self.kills),
            self.failed,
            self.sessions
        )
    }
}

struct Soak<'w> {
    world: &'w World,
    session: Session,
    slots: Vec<Slot>,
    chance: Chance,
    marker: String,
    next: u64,
    kills: u64,
    last_kill: Option<Instant>,
    tally: Tally,
    wrong: Vec<String>,
}

impl<'w> Soak<'w> {
    fn new(world: &'w World, seed: u64) -> Self {
        let slot = |number: usize| {
            let (file, content) = (format!("slot-{number}.txt"), "word first\n".to_owned());
            world.put(&file, &content);
            Slot {
                file,
                contents: vec![content],
                known_at: 0,
                call: None,
            }
        };
        Self {
            world,
            session: Session::open(world),
            slots: (0..AT_ONCE).map(slot).collect(),
            chance: Chance(seed),
            marker: long_sleep(),
            next: 0,
            // No slot has read its file yet.
            kills: 1,
            last_kill: None,
            tally: Tally {
                sessions: 1,
                ..Tally::default()
            },
            wrong: Vec::new(),
        }
    }

    /// Makes `calls` calls and waits for all of them.
    fn round(&mut self, calls: u64) {
        let mut left = calls;
        loop {
            for slot in 0..AT_ONCE {
                if self.slots[slot].call.is_none() && left > 0 {
                    self.start(slot);
                    left -= 1;
                }
            }
            if left == 0 && self.slots.iter().all(|slot| slot.call.is_none()) {
                return;
            }
            if self.chance.below(KILL_EVERY) == 0 {
                self.kill();
            }
            self.hear();
        }
    }

    /// Starts a random call.
    fn start(&mut self, slot: usize) {
        self.next += 1;
        let number = self.next;
        let known = self.slots[slot].known_at == self.kills;
        let file = self.slots[slot].file.clone();
        let marker = &self.marker;
        let shell = |text: String| json!({ "command": text });
        let mut writes = None;
        let (tool, input, right) = match self.chance.below(100) {
            0..25 => (
                "bash",
                shell(format!("echo {number}")),
                Right::Text(number.to_string()),
            ),
            25..30 => ("bash", shell("exit 7".into()), Right::Kind("exit_nonzero")),
            30..35 => {
                let text = format!("setsid sleep {marker} & sleep {marker} & echo {number}");
                ("bash", shell(text), Right::Text(number.to_string()))
            }
            35..38 => (
                "bash",
                shell("head -c 300000 /dev/zero | tr '\\0' x".into()),
                Right::Success,
            ),
            38..41 => (
                "bash",
                shell(format!("sleep {marker}")),
                Right::Kind("cancelled"),
            ),
            41 => (
                "bash",
                json!({"command": format!("sleep {marker}"), "timeout": 1}),
                Right::Kind("timeout"),
            ),
            42..47 => ("bash", shell(format!("cat {file}")), Right::File),
            47..62 if known => {
                let content = format!(
                    "word {number}\n{}",
                    "line\n".repeat(self.chance.below(4000) as usize)
                );
                writes = Some(content.clone());
                (
                    "file_write",
                    json!({"path": file, "content": content}),
                    Right::Success,
                )
            }
            62..70 if known => {
                let old = self.slots[slot].contents[0].clone();
                let first = old.lines().next().unwrap_or_default().to_owned();
                let new = format!("word {number}");
                writes = Some(old.replacen(&first, &new, 1));
                let edit = json!({"old": first, "new": new});
                (
                    "file_edit",
                    json!({"path": file, "edits": [edit]}),
                    Right::Success,
                )
            }
            47..85 => ("file_read", json!({"path": file}), Right::File),
            85..90 => (
                "glob",
                json!({"pattern": "slot-*.txt"}),
                Right::Contains(file),
            ),
            90..95 => (
                "grep",
                json!({"pattern": "word", "path": file}),
                Right::Contains(file),
            ),
            _ => ("file_list", json!({"path": "."}), Right::Contains(file)),
        };
        let id = number.to_string();
        let cancelled = right == Right::Kind("cancelled");
        let call = Call {
            id: id.clone(),
            tool,
            right,
            writes,
            started: Instant::now(),
        };
        self.slots[slot].call = Some(call);
        *self.tally.tools.entry(tool).or_default() += 1;
        self.tally.calls += 1;
        self.say(&json!({"id": id, "tool": tool, "input": input}));
        if cancelled {
            self.say(&json!({"id": id, "cancel": true}));
        }
    }

    fn say(&mut self, line: &Value) {
        if let Err(error) = self.session.try_send(line) {
            self.wrong
                .push(format!("lazaret session takes no line: {error}"));
        }
    }

    /// Takes one event, and judges the call if the event ends it.
    fn hear(&mut self) {
        let event = self.session.line(Duration::from_millis(200));
        let late = |slot: &Slot| {
            slot.call
                .as_ref()
                .is_some_and(|call| call.started.elapsed() > ANSWER)
        };
        let Some(event) = event else {
            for slot in self.slots.iter_mut().filter(|slot| late(slot)) {
                let call = slot.call.take();
                let call = call.map(|call| format!("{} {} has no answer", call.tool, call.id));
                self.wrong.extend(call);
            }
            return;
        };
        if event["event"] != "result" {
            return;
        }
        let id = event["id"].as_str().unwrap_or_default();
        let slot = self
            .slots
            .iter()
            .position(|slot| slot.call.as_ref().is_some_and(|call| call.id == id));
        match slot {
            Some(slot) => self.judge(slot, &event),
            None => self
                .wrong
                .push(format!("a result nobody waits for: {event}")),
        }
    }

    fn judge(&mut self, slot: usize, event: &Value) {
        let slot = &mut self.slots[slot];
        let Some(call) = slot.call.take() else { return };
        let disturbed = self
            .last_kill
            .is_some_and(|kill| kill + NOTICED > call.started);
        match verdict(&call.right, &slot.contents, event) {
            Ok(()) => {}
            Err(_) if disturbed && event["status"] == "error" => self.tally.failed += 1,
            Err(what) => {
                self.wrong.push(format!(
                    "{} {}: {what}: {}",
                    call.tool,
                    call.id,
                    short(&event.to_string())
                ));
            }
        }
        match (call.writes, event["status"] == "success") {
            (Some(content), true) => slot.contents = vec![content],
            (Some(content), false) => slot.contents.push(content),
            (None, true) if call.right == Right::File => {
                // The shell's answer lacks the final line break; it must still be one of the contents.
                let seen = event["result"].as_str().unwrap_or_default().trim_end();
                slot.contents.retain(|content| content.trim_end() == seen);
                slot.contents.truncate(1);
            }
            (None, _) => return,
        }
        // Only a file tool makes the file known to the session, and only while the session lives.
        if event["status"] == "success" && call.tool != "bash" && !disturbed {
            slot.known_at = self.kills;
        }
    }

    /// Kills one random part.
    fn kill(&mut self) {
        let tree = process::tree(self.session.pid());
        let (part, name) = match self.chance.below(20) {
            0..8 => ("cell", "lazaret-cell"),
            8..14 => ("worker", "lazaret-worker"),
            14..17 => ("warden", "lazaret-warden"),
            17..19 => ("broker", "lazaret-executo"),
            _ => return self.kill_orchestrator(&tree),
        };
        let candidates: Vec<&Process> =
            tree.iter().filter(|process| process.name == name).collect();
        if candidates.is_empty() {
            return;
        }
        candidates[self.chance.below(candidates.len() as u64) as usize].kill();
        self.kills += 1;
        self.last_kill = Some(Instant::now());
        *self.tally.kills.entry(part).or_default() += 1;
    }

    /// The calls of `lazaret session`, and all that it started, end with it.
    fn kill_orchestrator(&mut self, tree: &[Process]) {
        let _ = self.session.child.kill();
        self.kills += 1;
        self.last_kill = Some(Instant::now());
        *self.tally.kills.entry("orchestrator").or_default() += 1;
        self.judge_end(tree, "a killed orchestrator");
        for slot in &mut self.slots {
            if let Some(content) = slot.call.take().and_then(|call| call.writes) {
                slot.contents.push(content);
            }
        }
        self.session = Session::open(self.world);
        self.tally.sessions += 1;
    }

    fn judge_end(&mut self, tree: &[Process], what: &str) {
        let left = process::left_after(tree, SECOND);
        left.iter().for_each(Process::kill);
        self.wrong.extend(
            left.iter()
                .map(|process| format!("left by {what}: {process:?}")),
        );
    }

    /// Counts while no call is in progress.
    fn count(&mut self) -> Figures {
        let marker = format!("sleep {}", self.marker);
        process::until(SECOND, || process::with_marker(&marker).is_empty());
        let stray = process::with_marker(&marker);
        stray.iter().for_each(Process::kill);
        self.wrong.extend(
            stray
                .iter()
                .map(|process| format!("outlived its call: {process:?}")),
        );
        // A cell that is ending must not be counted.
        process::until(SECOND, || {
            process::tree(self.session.pid()).len() <= PROCESSES
        });
        let tree = process::tree(self.session.pid());
        let of = |name: &str| {
            tree.iter()
                .filter(|process| process.name == name)
                .map(|process| process.pid)
                .next()
        };
        let (broker, warden) = (of("lazaret-executo"), of("lazaret-warden"));
        let all = [Some(self.session.pid()), broker, warden];
        let descriptors = all.map(|pid| pid.map_or(0, descriptors));
        let memory = all.map(|pid| {
            pid.and_then(|pid| process::figure(pid, "status", "VmRSS"))
                .unwrap_or(0)
        });
        let leftovers = fs::read_dir(&self.world.project)
            .into_iter()
            .flatten()
            .flatten();
        let leftovers = leftovers
            .filter(|entry| !entry.file_name().to_string_lossy().starts_with("slot-"))
            .count();
        let mounts =
            fs::read_to_string("/proc/self/mountinfo").map_or(0, |text| text.lines().count());
        Figures {
            processes: tree.len(),
            descriptors,
            memory,
            mounts,
            leftovers,
        }
    }

    /// Ends the last session normally; nothing of the run may be left.
    fn end(&mut self) {
        let tree = process::tree(self.session.pid());
        let last = std::mem::replace(&mut self.session, Session::open(self.world));
        if !last.close(ANSWER).success() {
            self.wrong.push("the last session did not end well".into());
        }
        self.judge_end(&tree, "an orderly end");
        let names: Vec<String> = fs::read_dir(&self.world.project)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| !name.starts_with("slot-"))
            .collect();
        self.wrong.extend(
            names
                .iter()
                .map(|name| format!("left in the project: {name}")),
        );
        for slot in &self.slots {
            let now = String::from_utf8_lossy(&self.world.get(&slot.file)).into_owned();
            if !slot.contents.contains(&now) {
                self.wrong.push(format!(
                    "{} holds what nobody wrote: {}",
                    slot.file,
                    short(&now)
                ));
            }
        }
    }
}

/// Checks whether an answer is right.
fn verdict(right: &Right, contents: &[String], event: &Value) -> Result<(), String> {
    let text = event["result"].as_str().unwrap_or_default();
    let kind = event["error"]["code"].as_str().unwrap_or_default();
    let good = match right {
        Right::Kind(expected) => kind == *expected,
        _ if event["status"] != "success" => false,
        Right::Text(expected) => text.trim() == expected,
        Right::Contains(part) => text.contains(part),
        Right::File => contents
            .iter()
            .any(|content| content.trim_end() == text.trim_end()),
        Right::Success => true,
    };
    if good {
        Ok(())
    } else {
        Err(format!("not {right:?}"))
    }
}

fn short(text: &str) -> String {
    let mut short: String = text.chars().take(300).collect();
    if short.len() < text.len() {
        let _ = write!(short, "… ({} bytes)", text.len());
    }
    short
}

fn descriptors(pid: i32) -> u64 {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |entries| entries.count() as u64)
}

/// Figures while no call is in progress: of `lazaret session`, the broker and the warden.
#[derive(Clone)]
struct Figures {
    processes: usize,
    descriptors: [u64; 3],
    memory: [u64; 3],
    mounts: usize,
    leftovers: usize,
}

impl Figures {
    const HEAD: &str =
        "   calls kills  processes  descriptors   memory (KiB)         mounts  litter";

    fn row(&self, calls: u64, kills: u64) -> String {
        let ([a, b, c], [d, e, f]) = (self.descriptors, self.memory);
        format!(
            "{calls:>8} {kills:>5} {:>10}  {a:>3} {b:>3} {c:>3}  {d:>6} {e:>6} {f:>6} {:>7} {:>7}",
            self.processes, self.mounts, self.leftovers
        )
    }

    /// The figures that have grown.
    fn grown(&self, first: &Figures) -> Vec<String> {
        let mut grown = Vec::new();
        let mut compare = |what: &str, now: u64, then: u64, slack: u64| {
            if now > then + slack {
                grown.push(format!("{what} have grown from {then} to {now}"));
            }
        };
        compare("processes", self.processes as u64, PROCESSES as u64, 0);
        for (part, name) in ["lazaret", "the broker", "the warden"].iter().enumerate() {
            let what = format!("descriptors of {name}");
            compare(
                &what,
                self.descriptors[part],
                first.descriptors[part],
                DESCRIPTOR_SLACK,
            );
            let what = format!("KiB of {name}");
            compare(&what, self.memory[part], first.memory[part], MEMORY_SLACK);
        }
        compare(
            "mounts of the host",
            self.mounts as u64,
            first.mounts as u64,
            0,
        );
        // Each kill may leave one temporary file until the next session.
        compare("files in the project", self.leftovers as u64, 3, 0);
        grown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_answer_is_seen() {
        let contents = ["a\n".to_owned(), "b\n".to_owned()];
        let success = |text: &str| json!({"status": "success", "result": text});
        let error = |kind: &str| json!({"status": "error", "error": {"code": kind}});
        let right = |right: Right, event: &Value| verdict(&right, &contents, event).is_ok();
        assert!(right(Right::Text("5".into()), &success("5\n")));
        assert!(!right(Right::Text("5".into()), &success("6\n")));
        assert!(!right(Right::Success, &error("internal")));
        assert!(right(Right::File, &success("b")) && !right(Right::File, &success("c")));
        assert!(
            right(Right::Kind("timeout"), &error("timeout"))
                && !right(Right::Kind("timeout"), &success(""))
        );
        assert!(!right(Right::Contains("x".into()), &success("y")));
    }

    #[test]
    fn growth_is_detected() {
        let first = Figures {
            processes: 5,
            descriptors: [9; 3],
            memory: [5000; 3],
            mounts: 30,
            leftovers: 0,
        };
        assert!(first.grown(&first).is_empty());
        let more: [fn(&mut Figures); 5] = [
            |now| now.processes = 8,
            |now| now.descriptors[1] += DESCRIPTOR_SLACK + 1,
            |now| now.memory[0] += MEMORY_SLACK + 1,
            |now| now.mounts += 1,
            |now| now.leftovers = 4,
        ];
        for change in more {
            let mut now = first.clone();
            change(&mut now);
            assert_eq!(now.grown(&first).len(), 1);
        }
    }
}
