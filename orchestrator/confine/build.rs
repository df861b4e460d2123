//! Compiles the lists of system calls that the orchestrator keeps itself to.

#[allow(
    clippy::disallowed_methods,
    reason = "this builds the program and is no part of it"
)]
#[path = "../../policies/build/seccomp.rs"]
mod seccomp;

fn main() {
    let programs: [(&str, seccomp::Lists); 5] = [
        ("orchestrator", &[&["orchestrator"]]),
        (
            "orchestrator_serve",
            &[&["orchestrator", "orchestrator-serve"]],
        ),
        ("orchestrator_web", &[&["orchestrator", "orchestrator-web"]]),
        (
            "orchestrator_web_unix",
            &[&["orchestrator", "orchestrator-web", "orchestrator-unix"]],
        ),
        ("gateway", &[&["gateway"]]),
    ];
    seccomp::write(&programs, "seccompiler::sock_filter");
}
