//! What lazaret does, whatever asks for it and whatever carries it out.

pub mod call;
