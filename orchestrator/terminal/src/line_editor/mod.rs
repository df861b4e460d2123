//! A line editor without a terminal: bytes become keys, keys change a text, the text becomes rows. [`crate::chat_prompt`] does the
//! input and output, so that nothing here waits, and each step can be tested without a terminal.

pub mod keys;
pub mod buffer;
pub mod history;
pub mod layout;
pub mod editor;
