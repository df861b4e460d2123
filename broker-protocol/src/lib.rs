#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod message;
pub mod hello;
pub mod network;
pub mod gateway;
pub mod scope;
pub mod approval;
pub mod request;
pub mod content;
pub mod command;
pub mod service;
pub mod state;
pub mod suite;
pub mod effect;
pub mod ticket;
pub mod reply;
pub mod denial;
pub mod paste;
pub mod finding;
pub mod trace;
pub mod cleanup;
pub mod lease;
pub mod limit;
pub mod digest;
pub mod path;
pub mod chain;
pub mod frame;

pub use approval::{
    Challenge, Channel, Coverage, Decision, Extent, FromApprover, Grant, GrantFault, SessionGrant,
    ToApprover, Ungranted,
};
pub use cleanup::{CLEANED, Cleaned, Cleanup, RemovedCache, Unused};
pub use command::{Bash, Command, Stdin, Terminal};
pub use denial::{Attempt, AttemptKind, Barrier, Denial, Denials, PolicyRule, Remedy};
pub use digest::{Digest, Nonce};
pub use effect::Effect;
pub use finding::{Finding, FindingKind, Findings, FoundObject};
pub use frame::{Decoder, FRAME_MAX, FrameError, encode};
pub use hello::{
    Hello, HelloError, Layer, LayerReport, LayerSet, LayerState, MAGIC, Machine, Open, Opened,
    Tier, VERSION, VERSION_VARIABLE, release,
};
pub use lease::{Lease, Leased, Wants};
pub use limit::TooLarge;
pub use message::{FromBroker, Signal, StdStream, ToBroker};
pub use network::{
    ConnectionReport, ConnectionVerdict, GatewaySupply, HostList, Network, NetworkRequest,
    PublishedPort,
};
pub use path::{PathError, Roots, Zone, ZonePath};
pub use reply::{
    Background, Broken, Bytes, Captured, Changes, Edited, Ended, ErrorKind, Failed, FileAnswer,
    FileChange, FileReply, Grepped, Hunk, InPart, LeftRunning, Limit, Listed, ListedEntry,
    ListedKind, Logged, Match, MatchLine, Outcome, Ran, Read, Refused, Spill, Started, Stderr,
    Truncated, Undone, Unsearched, Usage, Walked, Written,
};
pub use request::{
    BackgroundKill, BackgroundLog, CallId, Edit, FileBytes, FileEdit, FileList, FileRead,
    FileWrite, Glob, Grep, GrepSort, History, Occurrence, Request, Undo,
};
pub use scope::{Permission, Risk, Scope, Trust};
pub use service::{Service, Variable};
pub use state::{State, StateChange, StateTool};
pub use suite::Framework;
pub use trace::{Traced, TracedCall};
