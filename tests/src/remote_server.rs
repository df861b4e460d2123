//! A server of MCP with an address, the settings that name it, and a person who logs in there.
#![allow(clippy::unwrap_used)]

use crate::process::{Finished, Running};
use crate::{LIMIT, World};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const SERVER: &str = include_str!("../fixtures/mcp_http.py");

/// A server on loopback; ended when dropped.
pub struct RemoteServer {
    child: Child,
    pub port: u16,
    log: PathBuf,
}

impl RemoteServer {
    pub fn start(world: &World, mode: &str) -> Self {
        Self::beside(world, mode, "")
    }

    pub fn beside(world: &World, mode: &str, other: &str) -> Self {
        let number = std::fs::read_dir(world.base()).unwrap().count();
        let log = world.base().join(format!("{mode}-{number}.log"));
        std::fs::write(&log, "").unwrap();
        let mut command = Command::new("python3");
        command.args(["-c", SERVER, mode]).arg(&log).arg(other);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        Self {
            child,
            port: line.trim().parse().unwrap(),
            log,
        }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    pub fn entry(&self) -> Value {
        json!({ "type": "http", "url": self.url() })
    }

    /// The requests that it was sent. The last may still be being written.
    pub fn requests(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.log).unwrap();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    pub fn was_asked(&self, method: &str, part: &str) -> bool {
        let is = |one: &Value| one["method"] == method && one.to_string().contains(part);
        self.requests().iter().any(is)
    }
}

impl Drop for RemoteServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn settings(world: &World, servers: Value) {
    let text = json!({ "mcpServers": servers }).to_string();
    world.write(&world.home.join("settings/lazaret/mcp.json"), text);
}

pub fn dressed(world: &World, mut command: Command) -> Command {
    command
        .env("XDG_CONFIG_HOME", world.home.join("settings"))
        .env("XDG_DATA_HOME", world.home.join("data"));
    command
}

/// `lazaret mcp` for a command about servers.
pub fn servers(world: &World) -> Command {
    let mut command = dressed(world, world.program("lazaret"));
    command.arg("mcp").current_dir(&world.project);
    command
}

/// Logs in as a person would: opens the address, and follows it back. What `lazaret mcp login` printed in the end.
pub fn log_in(world: &World) -> Finished {
    answered(world).finish(LIMIT)
}

/// A login whose answer has come back.
pub fn answered(world: &World) -> Running {
    answered_by(&mut servers(world))
}

/// A login by `command`, which has what it needs besides.
pub fn answered_by(command: &mut Command) -> Running {
    let mut login = Running::start(command.args(["login", "there"]));
    let printed = String::from_utf8(login.wait_for("/authorize?", LIMIT)).unwrap();
    let address = printed
        .lines()
        .find(|line| line.starts_with("http"))
        .unwrap()
        .to_owned();
    let page = get(&address);
    let back = page
        .lines()
        .find_map(|line| line.strip_prefix("Location: "))
        .unwrap()
        .to_owned();
    get(&back);
    login
}

/// The answer to a request, whole.
fn get(address: &str) -> String {
    let rest = address.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
