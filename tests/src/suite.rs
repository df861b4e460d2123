//! Runs a suite of tests, each once or in every place of this machine. The place is part of the test's name, so it can be selected:
//! `cargo test -p lazaret-tests --test suites flat/ordinary::escapes`.
//!
//! The lists in a suite's `main` cannot omit a function: one that is in no list is dead code to the compiler.

use crate::place::Place;
use crate::programs;
use broker_protocol::Tier;
use libtest_mimic::{Arguments, Failed, Trial};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitCode};
use std::thread;

/// A test of a suite.
#[derive(Clone, Copy)]
pub struct Test {
    /// The path of the function in its crate, the suite.
    path: &'static str,
    run: Run,
    own_process: bool,
}

#[derive(Clone, Copy)]
enum Run {
    Once(fn()),
    InEach(fn(Place), fn(&Place) -> bool),
}

impl Test {
    /// A test that does not depend on the place.
    pub fn once(path: &'static str, test: fn()) -> Self {
        Self {
            path,
            run: Run::Once(test),
            own_process: false,
        }
    }

    /// A test that runs in each place.
    pub fn in_each(path: &'static str, test: fn(Place)) -> Self {
        Self {
            path,
            run: Run::InEach(test, |_| true),
            own_process: false,
        }
    }

    fn trials(self) -> Vec<Trial> {
        let name = self
            .path
            .split_once("::")
            .map_or(self.path, |(_, rest)| rest);
        match self.run {
            Run::Once(test) => vec![self.trial(name.to_owned(), test)],
            Run::InEach(test, chosen) => {
                let places = Place::all().into_iter().filter(chosen);
                places
                    .map(|place| self.trial(format!("{place}::{name}"), move || test(place)))
                    .collect()
            }
        }
    }

    fn trial(&self, name: String, test: impl Fn() + Send + 'static) -> Trial {
        let alone = self.own_process && std::env::var_os(OWN_PROCESS).is_none();
        let thread = name.clone();
        Trial::test(name, move || {
            if alone {
                run_alone(&thread)
            } else {
                in_own_thread(thread, test)
            }
        })
    }
}

/// Set in a process that runs a single test.
const OWN_PROCESS: &str = "LAZARET_OWN_PROCESS";

fn run_alone(name: &str) -> Result<(), Failed> {
    let mut command = Command::new(std::env::current_exe().expect("a running program has a path"));
    command.args(["--exact", name, "--test-threads", "1"]);
    command
        .env(OWN_PROCESS, "1")
        .env("LAZARET_BIN", programs::folder());
    let output = command
        .output()
        .map_err(|error| format!("it does not start: {error}"))?;
    let (out, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("{}\n{out}{errors}", output.status).into())
    }
}

/// The thread has the test's name, which a panic prints with its location in the code.
fn in_own_thread(name: String, test: impl Fn() + Send + 'static) -> Result<(), Failed> {
    let run =
        move || catch_unwind(AssertUnwindSafe(test)).map_err(|panic| message(&*panic).to_owned());
    let thread = thread::Builder::new()
        .name(name)
        .spawn(run)
        .map_err(|error| error.to_string())?;
    Ok(thread.join().expect("the panic was caught")?)
}

fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied())
        .unwrap_or("it panicked")
}

/// The same tests only in the flat tier: for effects that namespaces would hide.
pub fn flat_only(mut tests: Vec<Test>) -> Vec<Test> {
    for test in &mut tests {
        if let Run::InEach(_, chosen) = &mut test.run {
            *chosen = |place| place.tier == Tier::Flat;
        }
    }
    tests
}

/// The same tests, each in a process of its own: for those that exhaust or change what threads share.
pub fn in_own_process(mut tests: Vec<Test>) -> Vec<Test> {
    tests.iter_mut().for_each(|test| test.own_process = true);
    tests
}

/// The `main` of a suite.
pub fn main(tests: Vec<Test>) -> ExitCode {
    start(tests, &Arguments::from_args())
}

/// The same for tests that mostly wait, for programs to start or for time limits: more of them than there are processors run at
/// once. Not for tests that exhaust what all processes of a user share.
pub fn main_of_waiting(tests: Vec<Test>) -> ExitCode {
    const AT_ONCE: usize = 6;
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_ONCE);
    start(tests, &arguments)
}

fn start(tests: Vec<Test>, arguments: &Arguments) -> ExitCode {
    // A program started by a test works where the test specifies, not in the project in which the suite was started.
    std::env::set_current_dir("/").expect("the root can be entered");
    crate::sys::return_freed_memory();
    let trials = tests.into_iter().flat_map(Test::trials).collect();
    libtest_mimic::run(arguments, trials).exit_code()
}

/// Tests of this module that take a [`Place`]; each runs in every place.
#[macro_export]
macro_rules! in_each_place {
    ($($name:ident),* $(,)?) => {
        vec![$($crate::suite::Test::in_each(concat!(module_path!(), "::", stringify!($name)), $name)),*]
    };
}

/// Tests of this module that run once.
#[macro_export]
macro_rules! once {
    ($($name:ident),* $(,)?) => {
        vec![$($crate::suite::Test::once(concat!(module_path!(), "::", stringify!($name)), $name)),*]
    };
}
