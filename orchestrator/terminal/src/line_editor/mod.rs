//! A line of input that a person edits, without a terminal: bytes become keys, keys change a text, the text becomes rows. Who reads
//! and writes is [`crate::chat_prompt`], so that nothing here waits, and each step can be tested without a terminal.

pub mod keys;
pub mod buffer;
pub mod history;
pub mod layout;
pub mod editor;
