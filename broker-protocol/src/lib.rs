#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod hello;
pub mod scope;
pub mod approval;
pub mod request;
pub mod suite;
pub mod effect;
pub mod reply;
pub mod attack;
pub mod path;
pub mod chain;
pub mod frame;

pub use approval::{
    Challenge, Channel, Decision, Extent, FromApprover, Grant, GrantFault, Nonce, Standing, ToApprover,
    Ungranted,
};
pub use attack::{AttackReport, Attempt, Holds};
pub use effect::Effect;
pub use frame::{Decoder, FRAME_MAX, FrameError, encode};
pub use hello::{
    Digest, FEATURES, Hello, HelloError, Layer, LayerReport, LayerSet, LayerState, MAGIC, Machine, Open,
    Opened, Tier, VERSION,
};
pub use path::{PathError, Roots, Zone, ZonePath};
pub use reply::{
    Background, Broken, Bytes, Captured, Change, Changes, Edited, Ended, ErrorKind, ErrorLayer, Failed,
    FileAnswer, FileReply, FromBroker, Grepped, Hunk, InPart, Limit, Listed, ListedEntry, ListedKind, Logged,
    Match, MatchLine, Outcome, Ran, Read, Refused, Spill, Started, Truncated, Undone, Unsearched, Usage,
    Walked, Written,
};
pub use request::{
    BackgroundKill, BackgroundLog, Bash, CallId, Command, Edit, FileBytes, FileEdit, FileList, FileRead,
    FileWrite, Glob, Grep, History, Occurrence, Request, Signal, State, StateChange, StateTool, Stdin,
    Terminal, ToBroker, TooLarge, Undo, limit,
};
pub use scope::{Permission, Risk, Scope, Trust};
pub use suite::Framework;
