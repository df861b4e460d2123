//! What an attack brings back.

use std::io;

/// A detail for `GOT`, or why not.
pub type Outcome = io::Result<String>;

/// A number given as a word.
pub fn number(word: &str) -> io::Result<i64> {
    word.parse()
        .map_err(|_| io::Error::other(format!("{word:?} is no number")))
}

/// An answer that is no system error.
pub fn denied(why: &str) -> io::Error {
    io::Error::other(why.to_owned())
}
