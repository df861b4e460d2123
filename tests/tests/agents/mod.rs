//! What agents of others are given: a shell, hooks, a server, and settings.

mod shell;
mod hook;
mod mcp;
mod install;
mod projects;
mod whole;

use lazaret_tests::suite::Test;

pub fn tests() -> Vec<Test> {
    [
        shell::tests(),
        hook::tests(),
        mcp::tests(),
        install::tests(),
        projects::tests(),
        whole::tests(),
    ]
    .concat()
}
