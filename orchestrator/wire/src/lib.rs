#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod approval;
pub mod client_tool;
pub mod json;
pub mod approver;
pub mod session_command;
pub mod ready;
pub mod event_line;
pub mod usage;
pub mod chat_event;
pub mod chat_command;
pub mod server_message;
#[cfg(feature = "schema")]
pub mod schema;
pub use orchestrator_results::error_body as error;

#[cfg(test)]
mod tests {
    use crate::error::ErrorCode;

    #[test]
    fn each_code_is_documented() {
        let page = include_str!("../README.md");
        for code in ErrorCode::ALL {
            let name = code.name();
            assert!(
                page.contains(&format!("`{name}`")),
                "{name} is not in the README"
            );
        }
    }
}
