//! What a client may rely on: tools, scopes, trust and rules, through the real programs.

mod application;
mod approval;
mod policy;
mod tools;
mod web;
mod workspace;

use lazaret_tests::suite::Test;

pub fn tests() -> Vec<Test> {
    [
        application::tests(),
        approval::tests(),
        policy::tests(),
        tools::tests(),
        web::tests(),
        workspace::tests(),
    ]
    .concat()
}
