//! `without-supervision CMD…` becomes a command on a machine where another supervisor is above it, so that no filter may
//! have a listener; `without-supervision --looking CMD…` on one where nobody may look into another process; with
//! `--answering` on one whose listeners are of before Linux 5.14.

use lazaret_tests::filter;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1).peekable();
    let machine = if words.next_if(|word| word == "--looking").is_some() {
        filter::without_looking()
    } else if words.next_if(|word| word == "--answering").is_some() {
        filter::without_descriptors()
    } else {
        filter::without_listeners()
    };
    filter::become_on(
        &machine,
        "without-supervision [--looking | --answering] CMD…",
        words,
    )
}
