//! Parts that the flat tier alone needs, where no namespace separates the call.

pub(crate) mod hosts_file;
pub(crate) mod interfaces;
pub(crate) mod ipc_calls;
pub mod ipc_objects;
pub(crate) mod loopback;
pub mod loopback_line;
pub(crate) mod masked;
pub(crate) mod netlink;
pub(crate) mod netlink_sockets;
pub(crate) mod private_tmp;
pub mod pty;
pub(crate) mod segment_calls;
pub(crate) mod shared_segments;
pub(crate) mod terminals;
