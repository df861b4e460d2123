//! The state of the small tools: one file for each kind of state, read and replaced like any other file.
//!
//! The file is chosen here and not by the request. Its content is not trusted: a command may have written it.

use crate::error::WorkError;
use crate::worker::FileCall;
use broker_protocol::{FileRead, FileReply, FileWrite, State};

impl FileCall<'_> {
    /// Answers the request of a small tool.
    pub(crate) fn state(&self, request: &State) -> Result<FileReply, WorkError> {
        let path = request.path();
        match &request.change {
            None => self
                .read(&FileRead {
                    path,
                    offset: None,
                    limit: None,
                })
                .map(FileReply::Read),
            Some(change) => {
                let (content, expected_sha256) = (change.content.clone(), change.expected_sha256);
                let overwrite = expected_sha256.is_some();
                self.write(&FileWrite {
                    path,
                    content,
                    overwrite,
                    expected_sha256,
                })
                .map(FileReply::Written)
            }
        }
    }
}
