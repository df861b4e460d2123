#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod asked;
mod copied;
mod key;
mod operations;
mod sign;
mod time;

pub use asked::{SIGNED_BODY, SignFault, SigningScope, asked, stated_payload};
pub use copied::{CopySource, copy_source};
pub use key::{AwsKeyError, KeyParts, read_key};
pub use operations::{Operations, is_s3};
pub use sign::{digest, sign};
pub use time::now;
