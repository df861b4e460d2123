//! A world with servers in its settings, and what is asked there.

use lazaret_tests::process::Finished;
pub use lazaret_tests::remote_server::{dressed, servers, settings};
use lazaret_tests::{LIMIT, Place, Session, World, run};
use serde_json::{Value, json};

pub const SERVER: &str = include_str!("../../fixtures/mcp_server.py");

/// A world with a server in its project, and these settings of servers.
pub fn world(place: Place, servers: Value) -> World {
    let world = World::new(place);
    world.put("server.py", SERVER);
    settings(&world, servers);
    world
}

/// The fixture in this mode, with what is ours of its settings.
pub fn server(words: &[&str], ours: Value) -> Value {
    let args: Vec<_> = ["server.py"].iter().chain(words).collect();
    json!({ "command": "python3", "args": args, "lazaret": ours })
}

pub fn friendly() -> Value {
    server(&["friendly"], json!({}))
}

pub fn call(world: &World, tool: &str, input: Value) -> Finished {
    run(&mut dressed(world, world.lazaret_call(tool, &input)), LIMIT)
}

/// The output of a call that works, without the end of its last line.
#[track_caller]
pub fn answer_of(world: &World, tool: &str, input: Value) -> String {
    call(world, tool, input).success().trim_end().to_owned()
}

/// The result of a call as JSON.
pub fn result(world: &World, tool: &str, input: Value) -> Value {
    let mut command = dressed(world, world.lazaret_call(tool, &input));
    let finished = run(command.arg("--json"), LIMIT);
    let errors = finished.errors();
    serde_json::from_str(&finished.text()).unwrap_or_else(|_| panic!("{}{errors}", finished.text()))
}

pub fn mcp(world: &World, words: &[&str]) -> Finished {
    run(servers(world).args(words), LIMIT)
}

pub fn session(world: &World, options: &[&str]) -> Session {
    Session::start(dressed(world, world.lazaret("session")).args(options))
}

pub fn names(world: &World) -> Vec<String> {
    let listed = run(dressed(world, world.lazaret("tools")).arg("--json"), LIMIT).success();
    let tools: Value = serde_json::from_str(&listed).unwrap();
    tools
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}
