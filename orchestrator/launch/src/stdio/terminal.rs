//! The user's terminal while a command has a terminal of its own: every key is passed on unchanged, and the terminal's mode is
//! always restored afterwards.

use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use std::io::{self, IsTerminal};
use std::sync::Mutex;
use terminal_size::{Height, Width, terminal_size_of};

/// The terminal's earlier mode, also for the panic hook: this program aborts on a panic, so no guard is dropped.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The terminal of our standard input, in raw mode until this value is dropped.
pub struct Raw {
    before: Termios,
    mode: Termios,
}

impl Raw {
    pub fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut mode = before.clone();
        cfmakeraw(&mut mode);
        if let Ok(mut slot) = BEFORE.lock() {
            *slot = Some(before.clone());
        }
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            hook(panic);
        }));
        let raw = Self { before, mode };
        raw.reenter()?;
        Ok(raw)
    }

    /// Restores the terminal's mode, until [`Self::reenter`].
    pub fn give_back(&self) -> io::Result<()> {
        Ok(tcsetattr(io::stdin(), SetArg::TCSADRAIN, &self.before)?)
    }

    /// Enters raw mode again after a stop: shells set their own mode then.
    pub fn reenter(&self) -> io::Result<()> {
        Ok(tcsetattr(io::stdin(), SetArg::TCSADRAIN, &self.mode)?)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    let before = BEFORE.try_lock().ok().and_then(|mut slot| slot.take());
    if let Some(before) = before {
        // A terminal that is gone needs no mode.
        let _ = tcsetattr(io::stdin(), SetArg::TCSADRAIN, &before);
    }
}

/// Discards input that was not read yet: a key pressed before a question is no answer to it.
pub fn discard_input() {
    // Only terminals have such input.
    let _ =
        tcgetattr(io::stdin()).and_then(|mode| tcsetattr(io::stdin(), SetArg::TCSAFLUSH, &mode));
}

/// Rows and columns of the terminal; without one, those of a VT100.
pub fn size() -> (u16, u16) {
    let known = terminal_size_of(io::stdout()).or_else(|| terminal_size_of(io::stdin()));
    known.map_or((24, 80), |(Width(columns), Height(rows))| (rows, columns))
}

/// Columns of the terminal that standard output is; `None` if it is none.
pub fn output_columns() -> Option<usize> {
    io::stdout().is_terminal().then(|| usize::from(size().1))
}

/// The terminal's type, if the value of `TERM` is valid.
pub fn term() -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+-._".contains(&byte);
    let usable = |term: &String| !term.is_empty() && term.len() <= 64 && term.bytes().all(plain);
    std::env::var("TERM")
        .ok()
        .filter(usable)
        .unwrap_or_else(|| "dumb".to_owned())
}
