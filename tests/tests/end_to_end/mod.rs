//! From the command line to the disk and back, as a user would see it, in every place of this machine.

mod bash;
mod command_line;
mod files;
mod undo;
mod background;
mod protected;
mod secrets;
mod limits;
mod projects;
mod machines;
mod git;
mod repositories;
mod interactive;

use lazaret_tests::suite::Test;

pub fn tests() -> Vec<Test> {
    [
        bash::tests(),
        command_line::tests(),
        files::tests(),
        undo::tests(),
        background::tests(),
        protected::tests(),
        secrets::tests(),
        limits::tests(),
        projects::tests(),
        machines::tests(),
        git::tests(),
        repositories::tests(),
        interactive::tests(),
    ]
    .concat()
}
