#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod executor;
pub mod execution;
mod registration;
mod call_permit;
pub mod context;
pub mod event;
pub mod hooks;
pub mod publish;
mod pending;
pub mod spans;
mod command;
mod refused_hosts;
mod connections;
mod engine;
mod caller;
mod request;
pub mod work;
pub mod tools;
mod unreported;
mod conclude;
mod guard;
mod call;
mod task;
mod handle;
pub mod service;

pub use call_permit::CallPermits;
pub use command::StdinChunk;
pub use connections::explain;
pub use context::{BatchPlace, CallContext, FoundIn, Invocation, LiveOutput};
pub use engine::Config;
pub use event::{ApprovalQuestion, Body, CallResult, Event};
pub use handle::{Call, CallHandle, Session};
pub use hooks::HookGuard;
pub use pending::ApprovalAnswer;
pub use publish::Subscriber;
pub use refused_hosts::gateway_advice;
pub use registration::{NewTool, Registered, ToolOrigin};
pub use tools::{MemberCall, Tool, Tools, UnknownTool};
pub use work::CallWork;
