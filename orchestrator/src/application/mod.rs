//! What lazaret does, whatever asks for it and whatever carries it out.

pub mod call;
#[cfg_attr(
    not(test),
    allow(dead_code, reason = "tools come here with the clients and servers that bring them")
)]
pub mod registry;
pub mod batch;
mod small;
