//! What lazaret does, whatever asks for it and whatever carries it out.

pub mod call;
#[cfg_attr(not(test), allow(dead_code, reason = "servers come here with the client that speaks to them"))]
pub mod registry;
pub mod batch;
mod small;
