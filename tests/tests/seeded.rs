//! The stable part of fuzzing: the same cases in every run, made from a fixed seed. `LAZARET_SEED` sets another,
//! `LAZARET_CASE` picks one case.
//!
//! A failure names the seed and the case and prints the input; `cargo run -p lazaret-tests --bin fuzz -- TARGET FILE`
//! gives a target one input again.
#![allow(clippy::unwrap_used)]

use lazaret_tests::fuzz::{TARGETS, Target, conversation, mutate};
use lazaret_tests::{Chance, Place, World, world};
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Any number but 0 would do.
const SEED: u64 = 0x1a2a_2e7f_0052_2d01;
/// Conversations with a real broker.
const CONVERSATIONS: u64 = 300;
/// CPU time that no case comes near: the bounds are counted in the crates' own tests, this ends what has none.
const CASE: Duration = Duration::from_secs(20);

#[test]
fn decoder() {
    seeded("decoder", 60_000);
}

#[test]
fn answer() {
    seeded("answer", 60_000);
}

#[test]
fn path() {
    seeded("path", 30_000);
}

#[test]
fn policy() {
    seeded("policy", 1000);
}

#[test]
fn names() {
    seeded("names", 15_000);
}

/// The longest paths there are, on patterns that invite to look back.
#[test]
fn a_hostile_path_costs_no_more_than_its_length() {
    let (_, names) = TARGETS.iter().find(|(name, _)| *name == "names").unwrap();
    for pattern in [
        ".git/modules/**/hooks",
        "hooks/**/hooks",
        "*a*a*a*a*a*a*a*a*b",
        "{a,b}*{a,b}*{a,b}*c",
    ] {
        for name in ["hooks/", "a", "a/", "ab", "\u{e9}/", "\u{17f}"] {
            let path = name.repeat(4095 / name.len());
            let started = cpu_time();
            names(format!("{pattern}\0{path}").as_bytes());
            let took = cpu_time() - started;
            assert!(
                took < CASE,
                "{pattern} on {name:?} again and again took {took:?}"
            );
        }
    }
}

/// The run can fail: a target that does not like one byte is caught, with its input.
#[test]
fn a_broken_promise_is_seen() {
    let summary = run(
        "path",
        |data| assert!(!data.contains(&b'~'), "a tilde"),
        SEED,
        1000,
    );
    let summary = summary.unwrap_err();
    assert!(
        summary.contains("case ") && summary.contains("7e"),
        "{summary}"
    );
}

/// Every place in turn. The ledger's own tests show that it can say no.
#[test]
fn session() {
    let worlds: Vec<World> = Place::all().into_iter().map(World::new).collect();
    worlds
        .iter()
        .for_each(|world| drop(world.put("a", "x\nxx\n")));
    let (mut total, started) = (conversation::Summary::default(), Instant::now());
    for number in cases(CONVERSATIONS) {
        let world = &worlds[number as usize % worlds.len()];
        let marker = world::long_sleep();
        let summary = conversation::hold(world, &marker, &mut chance(seed(), number));
        let summary = summary.unwrap_or_else(|wrong| {
            panic!(
                "seed {}, conversation {number} in {}: {wrong}",
                seed(),
                world.place
            )
        });
        total.frames += summary.frames;
        total.done += summary.done;
        total.faults += summary.faults;
        total.peak_kib = total.peak_kib.max(summary.peak_kib);
    }
    let talks = cases(CONVERSATIONS).count() as u64;
    println!(
        "{talks} conversations in {:?}: {total:?}",
        started.elapsed()
    );
    assert!(
        talks == 1 || total.done > talks && total.faults > talks / 4,
        "nothing much was said: {total:?}"
    );
}

/// Runs a target on its cases; says which one it did not stand.
fn seeded(name: &str, cases: u64) {
    let (_, target) = TARGETS.iter().find(|(target, _)| *target == name).unwrap();
    let started = Instant::now();
    run(name, *target, seed(), cases).unwrap_or_else(|summary| panic!("{summary}"));
    println!("{name}: {cases} cases in {:?}", started.elapsed());
}

fn run(name: &str, target: Target, seed: u64, cases: u64) -> Result<(), String> {
    for number in self::cases(cases) {
        let data = mutate::case(name, &mut chance(seed, number));
        let started = cpu_time();
        let held = catch_unwind(AssertUnwindSafe(|| target(&data))).is_ok();
        let took = cpu_time() - started;
        if !held || took > CASE {
            return Err(format!(
                "{name}, seed {seed}, case {number}, {took:?}: {}",
                hex(&data)
            ));
        }
    }
    Ok(())
}

/// Each case has a chance of its own, so that one can be run again without those before it.
fn chance(seed: u64, number: u64) -> Chance {
    let mut chance = Chance((seed ^ (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)).max(1));
    // Neighbours begin alike.
    (0..4).for_each(|_| {
        chance.below(2);
    });
    chance
}

fn seed() -> u64 {
    number("LAZARET_SEED").unwrap_or(SEED)
}

/// The numbers of the cases to run: all, or the one of `LAZARET_CASE`.
fn cases(count: u64) -> std::ops::Range<u64> {
    number("LAZARET_CASE").map_or(0..count, |one| one..one + 1)
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable} is a number, not {text}")),
    )
}

/// CPU time of this thread: the machine may be busy with others.
fn cpu_time() -> Duration {
    use nix::sys::resource::{UsageWho, getrusage};
    let used = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
    let time = |part: nix::sys::time::TimeVal| {
        Duration::new(part.tv_sec() as u64, part.tv_usec() as u32 * 1000)
    };
    time(used.user_time()) + time(used.system_time())
}

fn hex(data: &[u8]) -> String {
    data.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}
