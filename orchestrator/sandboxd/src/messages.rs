//! The messages of `proto/process/v1/process.proto`, by their numbers. Names are those of the protocol; what it lets be absent is so here.

use std::collections::HashMap;

/// A command, its variables, and where it starts.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ProcessConfig {
    #[prost(string, repeated, tag = "1")]
    pub command: Vec<String>,
    #[prost(map = "string, string", tag = "2")]
    pub(crate) env_vars: HashMap<String, String>,
    #[prost(string, optional, tag = "3")]
    pub(crate) cwd: Option<String>,
}

/// The size of a terminal.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Pty {
    #[prost(uint32, tag = "1")]
    pub(crate) cols: u32,
    #[prost(uint32, tag = "2")]
    pub rows: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct StartRequest {
    #[prost(message, optional, tag = "1")]
    pub config: Option<ProcessConfig>,
    #[prost(message, optional, tag = "2")]
    pub(crate) pty: Option<Pty>,
}

/// The process's number, by which further requests name it.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct InitEvent {
    #[prost(int32, tag = "1")]
    pub(crate) process_id: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ExitEvent {
    #[prost(int32, tag = "1")]
    pub(crate) exit_code: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct StartResponse {
    #[prost(oneof = "ProcessEvent", tags = "1, 2, 3, 4")]
    pub event: Option<ProcessEvent>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum ProcessEvent {
    #[prost(message, tag = "1")]
    Init(InitEvent),
    #[prost(bytes = "vec", tag = "2")]
    Stdout(Vec<u8>),
    #[prost(bytes = "vec", tag = "3")]
    Stderr(Vec<u8>),
    #[prost(message, tag = "4")]
    Exit(ExitEvent),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ExecuteRequest {
    #[prost(message, optional, tag = "1")]
    pub config: Option<ProcessConfig>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ExecuteResponse {
    #[prost(int32, tag = "1")]
    pub(crate) exit_code: i32,
    #[prost(bytes = "vec", tag = "2")]
    pub stdout: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    pub stderr: Vec<u8>,
}

/// `google.protobuf.Empty`, and each answer that has nothing in it.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct EmptyMessage {}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WriteStdinRequest {
    #[prost(int32, tag = "1")]
    pub(crate) process_id: i32,
    #[prost(oneof = "StdinPayload", tags = "2, 3")]
    pub(crate) payload: Option<StdinPayload>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum StdinPayload {
    #[prost(bytes = "vec", tag = "2")]
    Input(Vec<u8>),
    #[prost(message, tag = "3")]
    Eof(EmptyMessage),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SendSignalRequest {
    #[prost(int32, tag = "1")]
    pub(crate) process_id: i32,
    /// The number that the signal has in Linux.
    #[prost(int32, tag = "2")]
    pub signal: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ResizeTtyRequest {
    #[prost(int32, tag = "1")]
    pub(crate) process_id: i32,
    #[prost(uint32, tag = "2")]
    pub(crate) cols: u32,
    #[prost(uint32, tag = "3")]
    pub rows: u32,
}
