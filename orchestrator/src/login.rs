//! `lazaret mcp login|logout`: logs in to MCP servers that require an account, and out again.

use crate::server_options::{ServerPlace, row};
use broker_protocol::Failed;
use clap::Args;
use nix::libc::{SIGINT, SIGTERM};
use orchestrator_confine::Needs;
use orchestrator_http::name_any_login;
use orchestrator_launch::exit;
use orchestrator_launch::launch::{FrontEnd, Launch};
use orchestrator_launch::row::CommandRow;
use orchestrator_launch::stdio::line_reader::{NextLine, StdinLines};
use orchestrator_launch::stdio::print;
use orchestrator_launch::stdio::signals::Signals;
use orchestrator_launch::stdio::streams::InputStream;
use orchestrator_mcp_client::address::NamedAddress;
use orchestrator_mcp_client::login::Begun;
use orchestrator_mcp_client::named;
use orchestrator_mcp_client::settings::{ServerAddress, ServerKind, ServerSettings};
use orchestrator_mcp_client::store::{self, ServerFiles};
use orchestrator_web::callback::Callback;
use std::future::pending;
use std::io::{self, IsTerminal};
use std::time::Duration;
use tokio::time::timeout;

/// How long the user may take.
const PERSON: Duration = Duration::from_secs(600);

/// Log in at a server with an address, in a browser of yours
///
/// Prints the address to open, and waits for the browser to come back to this machine. Where the browser is on another one, paste the
/// address that it ended at.
#[derive(Args)]
#[command(after_help = "Examples:
  lazaret mcp login docs
  lazaret mcp login docs && lazaret mcp status

What it gives is kept in the state directory, for you alone, renewed when it
ends, and sent to that server only; `lazaret mcp logout` forgets it.")]
pub(crate) struct Login {
    /// The server's name
    name: String,
    #[command(flatten)]
    place: ServerPlace,
}

/// Forget the login at a server
#[derive(Args)]
pub(crate) struct Logout {
    /// The server's name
    name: String,
    #[command(flatten)]
    place: ServerPlace,
}

impl FrontEnd for Login {
    const ROW: CommandRow = row(
        "mcp login",
        "0; 1 there is no login; 2 wrong arguments; 124 nobody came back within 10 minutes; 125 lazaret failed; 130 cancelled",
    );

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        let prepared = launch.prepare::<Self>(self.place.options())?;
        let project = prepared.options().open()?.open.project;
        let (server, place) = named(prepared.files(), &self.name, &project)?;
        let ServerKind::Address(address) = &server.kind else {
            return Err(Failed::invalid(format!(
                "the server `{}` is a program, and wants no login",
                self.name
            )));
        };
        let unkept = |error: io::Error| Failed::internal(format!("no login can be kept: {error}"));
        let write = vec![
            store::prepare().map_err(unkept)?,
            store::prepare_logins().map_err(unkept)?,
        ];
        name_any_login();
        let callback = Callback::bind(address.login.callback_port).map_err(|error| {
            Failed::internal(format!(
                "a browser cannot come back to this machine: {error}"
            ))
        })?;
        let confined = prepared.confine(Needs {
            web: true,
            write,
            ..Needs::default()
        });
        let proof = confined.proof();
        confined.run(|_| "the login has ended", async {
            let mut signals = Signals::listen(&[SIGINT, SIGTERM], proof)?;
            tokio::select! {
                done = log_in(&server, address, &place, callback) => done,
                number = signals.next() => Ok(exit::SIGNAL + number as u8),
            }
        })
    }
}

async fn log_in(
    server: &ServerSettings,
    address: &ServerAddress,
    place: &ServerFiles,
    callback: Callback,
) -> Result<u8, Failed> {
    let named = NamedAddress::of(address).map_err(Failed::invalid)?;
    let failed = |why: &dyn std::fmt::Display| {
        print::problem(&format!("no login at `{}`: {why}", server.name));
        Ok(exit::FAILED)
    };
    let host = match named.find(server.whose).await {
        Ok(host) => host,
        Err(error) => return failed(&error),
    };
    let mut begun = match Begun::at(&host, &named.login, place, &callback.address()).await {
        Ok(begun) => begun,
        Err(error) => return failed(&error),
    };
    let there = match begun.address().await {
        Ok(there) => there,
        Err(error) => return failed(&error),
    };
    print::result(format!("Open this in a browser, and come back:\n{there}\n").as_bytes())?;
    let page = there.to_string();
    let returned = async {
        tokio::select! {
            returned = callback.returned(&page) => returned,
            pasted = pasted() => pasted,
        }
    };
    let Ok(returned) = timeout(PERSON, returned).await else {
        return Ok(exit::TIMEOUT);
    };
    let returned = returned.map_err(|error| {
        Failed::internal(format!("cannot receive the browser's redirect: {error}"))
    })?;
    match begun.finish(&returned).await {
        Ok(()) => {
            print::result(format!("Logged in at `{}`.\n", server.name).as_bytes())?;
            Ok(exit::OK)
        }
        Err(error) => failed(&error),
    }
}

/// An address that the user pastes; waits for ever if the input has none.
async fn pasted() -> io::Result<String> {
    if io::stdin().is_terminal() {
        let mut lines = StdinLines::new(InputStream::stdin()?);
        while let NextLine::Line(line) = lines.next().await {
            let line = String::from_utf8_lossy(&line).trim().to_owned();
            if !line.is_empty() {
                return Ok(line);
            }
        }
    }
    pending().await
}

impl FrontEnd for Logout {
    const ROW: CommandRow =
        CommandRow::of_files("mcp logout", "0; 2 wrong arguments; 125 lazaret failed");

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        let prepared = launch.prepare::<Self>(self.place.options())?;
        let project = prepared.options().open()?.open.project;
        let (_, place) = named(prepared.files(), &self.name, &project)?;
        place.forget_login();
        Ok(exit::OK)
    }
}
