//! The protocols between agents and their hooks: a small file for each, which maps names and decides nothing.

pub mod shape;
pub mod call;
mod claude;
mod codex;
mod gemini;
mod qwen;
mod crush;
mod copilot;

pub use claude::SHAPE as CLAUDE;
pub use codex::SHAPE as CODEX;
pub use copilot::SHAPE as COPILOT;
pub use crush::SHAPE as CRUSH;
pub use gemini::SHAPE as GEMINI;
pub use qwen::SHAPE as QWEN;
