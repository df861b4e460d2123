//! `lazaret sandboxd` with clients of agent-sandbox's protocols: what its reference server promises, in tables; and clients and commands
//! that are hostile. The official client drives it in `tests/sandboxd/run`.

mod client;
mod ends;
mod files;
mod hostile;
mod processes;
