//! The gateway of a command with a network: started and told what it serves before this process gives up files and programs.

use crate::start::start_gateway;
use crate::stdio::print;
use orchestrator_confine::Files;
use policies::web::WebTable;
use std::io;
use std::os::unix::net::UnixStream;

/// Tells a gateway what it serves: the hosts that settings have named, and policies with these tables.
pub type BeginNetwork = fn(UnixStream, Vec<WebTable>) -> io::Result<()>;

/// Starts it, for the hosts that settings have named so far and for policies with these tables. If it cannot be started, the command
/// goes on, and each request says that there is no network.
pub(crate) fn begin(
    files: &Files,
    begin: Option<BeginNetwork>,
    webs: impl FnOnce() -> Vec<WebTable>,
) {
    let Some(begin) = begin else { return };
    let begun = start_gateway(files).and_then(|control| begin(control, webs()));
    if let Err(error) = begun {
        print::problem(&format!(
            "there is no network, because `lazaret-gateway` cannot be started: {error}; install it beside `lazaret`"
        ));
    }
}
