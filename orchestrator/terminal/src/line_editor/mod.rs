//! A line editor without a terminal: bytes become keys, keys change a text, the text becomes rows. [`crate::chat_prompt`] does the
//! input and output, so that nothing here waits, and each step can be tested without a terminal.

pub(crate) mod keys;
pub(crate) mod buffer;
pub(crate) mod history;
pub(crate) mod layout;
pub(crate) mod editor;
