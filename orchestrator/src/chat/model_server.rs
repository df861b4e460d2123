//! A model's server on this machine, such as Ollama: where the user's settings name its command, and nobody listens, the executor
//! starts it. It is the user's server, outside any cell, and outlives us.

use crate::chat::config::ProviderConfig;
use broker_protocol::Failed;
use orchestrator_agent::providers::{Vendor, local_address};
use orchestrator_confine::Files;
use orchestrator_launch::start;
use orchestrator_launch::stdio::print;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// How long a server may take until it listens.
const START: Duration = Duration::from_secs(20);
/// How long to wait for a connection.
const CONNECT: Duration = Duration::from_millis(500);
/// How long to wait between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// Starts the server of `vendor` if its settings say how, and nobody listens at its address.
///
/// # Errors
/// The settings are invalid, or the executor cannot be started. A server that does not listen in time is reported when it is used.
pub(crate) fn ensure_available(
    files: &Files,
    vendor: Vendor,
    config: &ProviderConfig,
    executor: Option<&Path>,
) -> Result<(), Failed> {
    let Some(program) = config.start.first() else {
        return Ok(());
    };
    let invalid = |what: &str| {
        let name = vendor.name();
        Failed::invalid(format!("agent.toml: providers.{name}.start: {what}"))
    };
    if !Path::new(program).is_absolute() {
        return Err(invalid("the program needs its full path"));
    }
    let Some(address) = local_address(vendor, config.base_url.as_deref()) else {
        return Err(invalid("its base_url is not of this machine"));
    };
    if listens(address) {
        return Ok(());
    }
    start::start_server(files, executor, &config.start)
        .map_err(|error| Failed::internal(format!("cannot start {program}: {error}")))?;
    let until = Instant::now() + START;
    while Instant::now() < until {
        if listens(address) {
            print::note(&format!("started {program}"));
            return Ok(());
        }
        thread::sleep(PAUSE);
    }
    print::problem(&format!(
        "started {program}, and nobody listens at {address} after {} s",
        START.as_secs()
    ));
    Ok(())
}

fn listens(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, CONNECT).is_ok()
}
