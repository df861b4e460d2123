//! Runs a suite of tests, each once or in every place of this machine. The place is part of the test's name, so it can be selected:
//! `cargo test -p lazaret-tests --test suites flat/ordinary::escapes`.
//!
//! A test registers itself, by `place_test!` or `once_test!` above its function. One that does not is dead code to the compiler.

use crate::gate::Gate;
use crate::leftovers;
use crate::not_run::{self, NotRun};
use crate::place::{Place, User};
use crate::programs;
use crate::slowest;
use broker_protocol::Tier;
use libtest_mimic::{Arguments, Failed, Trial};
use nix::unistd::geteuid;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::thread;

#[doc(hidden)]
pub use inventory::submit;

/// A test of a suite.
#[derive(Clone, Copy)]
pub struct Test {
    /// The path of the function in its crate, the suite.
    path: &'static str,
    run: Run,
    own_process: bool,
    /// For a test that mounts, or acts as users other than its place's.
    needs_root: bool,
    /// The only tier and the only kind of user that the test is for, if it is not for all.
    tier: Option<Tier>,
    user: Option<User>,
}

#[derive(Clone, Copy)]
enum Run {
    Once(fn()),
    InEach(fn(Place)),
}

inventory::collect!(Test);

impl Test {
    const fn new(path: &'static str, run: Run) -> Self {
        Self {
            path,
            run,
            own_process: false,
            needs_root: false,
            tier: None,
            user: None,
        }
    }

    /// A test that does not depend on the place.
    pub const fn once(path: &'static str, test: fn()) -> Self {
        Self::new(path, Run::Once(test))
    }

    /// A test that runs in each place.
    pub const fn in_each(path: &'static str, test: fn(Place)) -> Self {
        Self::new(path, Run::InEach(test))
    }

    /// Runs only in the flat tier: for effects that namespaces would hide.
    pub const fn flat_only(mut self) -> Self {
        self.tier = Some(Tier::Flat);
        self
    }

    /// Runs only in the namespaced tier.
    pub const fn namespaced_only(mut self) -> Self {
        self.tier = Some(Tier::Namespaced);
        self
    }

    /// Runs only as an ordinary user.
    pub const fn ordinary_only(mut self) -> Self {
        self.user = Some(User::Ordinary);
        self
    }

    /// Runs only as root.
    pub const fn root_only(mut self) -> Self {
        self.user = Some(User::Root);
        self
    }

    /// Runs, as any user, only where root runs the tests.
    pub const fn needs_root(mut self) -> Self {
        self.needs_root = true;
        self
    }

    /// Runs in a process of its own: for a test that exhausts or changes what threads share.
    pub const fn own_process(mut self) -> Self {
        self.own_process = true;
        self
    }

    fn trials(self, gate: Option<&Arc<Gate>>) -> Vec<Trial> {
        let name = self.name();
        match self.run {
            Run::Once(test) => vec![self.trial(name.to_owned(), gate, test)],
            Run::InEach(test) => {
                let chosen = |place: &Place| {
                    self.tier.is_none_or(|tier| tier == place.tier)
                        && self.user.is_none_or(|user| user == place.user)
                };
                let places = Place::all().into_iter().filter(chosen);
                places
                    .map(|place| self.trial(format!("{place}::{name}"), gate, move || test(place)))
                    .collect()
            }
        }
    }

    /// The path without the crate.
    fn name(&self) -> &'static str {
        self.path
            .split_once("::")
            .map_or(self.path, |(_, rest)| rest)
    }

    fn trial(
        &self,
        name: String,
        gate: Option<&Arc<Gate>>,
        test: impl Fn() + Send + 'static,
    ) -> Trial {
        let alone = self.own_process && std::env::var_os(OWN_PROCESS).is_none();
        let needs_root = self.needs_root;
        let (thread, gate) = (name.clone(), gate.cloned());
        Trial::test(name, move || {
            let _begun = gate.as_ref().map(|gate| gate.enter());
            if needs_root && !geteuid().is_root() {
                not_run::count(thread, "only root can do this");
                Ok(())
            } else {
                slowest::timed(thread.clone(), || match alone {
                    true => run_alone(&thread),
                    false => in_own_thread(thread, test),
                })
            }
        })
    }
}

/// Set in a process that runs a single test.
const OWN_PROCESS: &str = "LAZARET_OWN_PROCESS";
/// The exit code of such a process whose test was not run.
const NOT_RUN_CODE: u8 = 77;

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
    if output.status.code() == Some(NOT_RUN_CODE.into()) {
        not_run::count(name.to_owned(), errors.trim());
        Ok(())
    } else if output.status.success() {
        Ok(())
    } else {
        Err(format!("{}\n{out}{errors}", output.status).into())
    }
}

/// The thread has the test's name, which a panic prints with its location in the code.
fn in_own_thread(name: String, test: impl Fn() + Send + 'static) -> Result<(), Failed> {
    let thread = thread::Builder::new()
        .name(name.clone())
        .spawn(move || catch_unwind(AssertUnwindSafe(test)))
        .map_err(|error| error.to_string())?;
    let Err(panic) = thread.join().expect("the panic was caught") else {
        return Ok(());
    };
    match panic.downcast::<NotRun>() {
        Ok(reason) => {
            not_run::count(name, reason.0);
            Ok(())
        }
        Err(panic) => Err(message(&*panic).into()),
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied())
        .unwrap_or("it panicked")
}

/// The `main` of a suite.
pub fn main() -> ExitCode {
    leftovers::watch(|| start("", &Arguments::from_args(), None))
}

/// The same for tests that mostly wait, for programs to start or for time limits: more of them than there are processors run at
/// once, and still more while the processors are idle. Not for tests that exhaust what all processes of a user share. Tests whose
/// name begins with `first` begin first: if they take minutes, they would run on alone.
pub fn main_of_waiting(first: &str) -> ExitCode {
    const USUAL: usize = 6;
    const MAX: usize = 20;
    let mut arguments = Arguments::from_args();
    // Whoever gives a number gets it.
    let gate = arguments
        .test_threads
        .is_none()
        .then(|| Arc::new(Gate::new(USUAL)));
    arguments.test_threads.get_or_insert(MAX);
    leftovers::watch(|| start(first, &arguments, gate.as_ref()))
}

fn start(first: &str, arguments: &Arguments, gate: Option<&Arc<Gate>>) -> ExitCode {
    // A program started by a test works where the test specifies, not in the project in which the suite was started.
    std::env::set_current_dir("/").expect("the root can be entered");
    crate::sys::return_freed_memory();
    programs::mount_memory();
    let mut tests: Vec<&Test> = inventory::iter::<Test>.into_iter().collect();
    // The linker's order is none to rely on.
    tests.sort_by_key(|test| (!test.name().starts_with(first), test.path));
    let trials = tests
        .into_iter()
        .flat_map(|test| test.trials(gate))
        .collect();
    let conclusion = libtest_mimic::run(arguments, trials);
    slowest::list();
    let alone = std::env::var_os(OWN_PROCESS).is_some();
    if not_run::list() > 0 && alone && !conclusion.has_failed() {
        return ExitCode::from(NOT_RUN_CODE);
    }
    conclusion.exit_code()
}

/// Registers a function that takes a [`Place`] as a test that runs in every place, or in those that its options choose:
/// `place_test!(name, flat_only, own_process)`.
#[macro_export]
macro_rules! place_test {
    ($name:ident $(, $option:ident)* $(,)?) => {
        $crate::suite::submit! {
            $crate::suite::Test::in_each(concat!(module_path!(), "::", stringify!($name)), $name)
                $(.$option())*
        }
    };
}

/// Registers a function without parameters as a test that runs once.
#[macro_export]
macro_rules! once_test {
    ($name:ident $(, $option:ident)* $(,)?) => {
        $crate::suite::submit! {
            $crate::suite::Test::once(concat!(module_path!(), "::", stringify!($name)), $name)
                $(.$option())*
        }
    };
}
