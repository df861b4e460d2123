//! From the command line to the disk and back, as a user would see it, in every place of this machine.
#![allow(clippy::unwrap_used)]

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

fn main() -> std::process::ExitCode {
    lazaret_tests::suite::main_of_waiting(
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
        .concat(),
    )
}
