//! Compiles the executor's lists of system calls.

#[path = "../../policies/build/seccomp.rs"]
mod seccomp;

/// In the order in which a cell meets them.
const PROGRAMS: [(&str, seccomp::Lists<'static>); 10] = [
    ("session", &[&["modes"], &["session"]]),
    (
        "session_flat",
        &[&["modes"], &["answered"], &["flat"], &["session"]],
    ),
    ("cell", &[&["clone3"], &["cell"]]),
    ("names", &[&["absent"], &["terminal"], &["names"]]),
    (
        "supervised",
        &[
            &["absent"],
            &["terminal"],
            &["supervised", "reads", "answered"],
        ],
    ),
    (
        "changes",
        &[&["absent"], &["terminal"], &["supervised", "answered"]],
    ),
    (
        "names_kept",
        &[&["absent"], &["terminal"], &["names", "kept"]],
    ),
    (
        "supervised_kept",
        &[
            &["absent"],
            &["terminal"],
            &["supervised", "reads", "answered", "kept"],
        ],
    ),
    (
        "changes_kept",
        &[
            &["absent"],
            &["terminal"],
            &["supervised", "answered", "kept"],
        ],
    ),
    ("worker", &[&["worker"]]),
];

fn main() {
    seccomp::write(&PROGRAMS, "libc::sock_filter");
}
