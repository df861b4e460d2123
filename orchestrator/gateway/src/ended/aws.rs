//! Signatures of AWS (Signature Version 4): a request that its program has signed with the placeholder is signed again with the key.
//!
//! The program's own signature is not verified: whoever can send a request here can read the placeholder too.

mod asked;
mod key;
mod operations;
mod sign;
mod time;

pub use asked::{SignFault, SigningScope, asked, stated_payload};
pub use key::{KeyParts, read_key};
pub use operations::{Operations, is_s3};
pub use sign::{digest, sign};
pub use time::now;
