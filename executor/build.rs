//! Compiles the executor's lists of system calls.

#[path = "../policies/build/seccomp.rs"]
mod seccomp;

/// The programs, in the order in which a cell meets them.
const PROGRAMS: [(&str, seccomp::Lists); 6] = [
    ("session", &[&["session"]]),
    ("cell", &[&["clone3"], &["cell"]]),
    ("cell_flat", &[&["clone3"], &["flat"], &["cell"]]),
    ("names", &[&["absent"], &["terminal"], &["names"]]),
    ("supervised", &[&["absent"], &["terminal"], &["supervised"]]),
    ("worker", &[&["worker"]]),
];

fn main() {
    seccomp::write(&PROGRAMS, "libc::sock_filter");
}
