//! Where the output of a command goes, and what became of it.

use crate::shell_directory::WorkingDirectory;
use broker_protocol::StdStream;
use orchestrator_launch::stdio::streams::OutputStream;
use std::io;

/// Where the output goes.
pub(crate) enum Out {
    /// Our own standard streams.
    Here {
        out: OutputStream,
        err: OutputStream,
        /// Why nothing more is written.
        lost: Option<OutputLost>,
        /// Removes the final working directory from standard output.
        reporter: Option<WorkingDirectory>,
    },
    /// The whole output is in the result.
    Nowhere,
}

/// Why output cannot be written.
#[derive(Debug)]
pub(crate) enum OutputLost {
    /// Nobody reads it any more. A reader that has read enough says so in this way, so it is no failure.
    Closed,
    /// The output is incomplete, although somebody wants it.
    Failed {
        /// The name of the stream.
        stream: &'static str,
        /// What the system says.
        error: io::Error,
    },
}

impl OutputLost {
    fn of(stream: StdStream, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Failed {
                stream: match stream {
                    StdStream::Stdout => "standard output",
                    StdStream::Stderr => "standard error",
                },
                error,
            },
        }
    }
}

impl Out {
    /// Our own standard streams. Needs the runtime.
    pub(crate) fn here(reporter: Option<WorkingDirectory>) -> io::Result<Self> {
        Ok(Self::Here {
            out: OutputStream::stdout()?,
            err: OutputStream::stderr()?,
            lost: None,
            reporter,
        })
    }

    /// Why the output is incomplete, if it is.
    pub(crate) fn lost(&self) -> Option<&OutputLost> {
        match self {
            Self::Here { lost, .. } => lost.as_ref(),
            Self::Nowhere => None,
        }
    }

    /// Writes output of the command, unless some was lost before; returns whether all of it so far was written.
    pub(crate) async fn write(&mut self, stream: StdStream, bytes: &[u8]) -> bool {
        let Self::Here {
            out,
            err,
            lost,
            reporter,
        } = self
        else {
            return true;
        };
        if lost.is_none() {
            let written = match (stream, reporter.as_mut()) {
                (StdStream::Stderr, _) => err.write_all(bytes).await,
                (StdStream::Stdout, Some(reporter)) => out.write_all(&reporter.filter(bytes)).await,
                (StdStream::Stdout, None) => out.write_all(bytes).await,
            };
            *lost = written.err().map(|error| OutputLost::of(stream, error));
        }
        lost.is_none()
    }

    /// The command has ended: writes the output that was held back.
    pub(crate) async fn finish(&mut self) {
        if let Self::Here {
            out,
            reporter,
            lost: lost @ None,
            ..
        } = self
            && let Some(reporter) = reporter.take()
        {
            let written = out.write_all(&reporter.finish()).await;
            *lost = written
                .err()
                .map(|error| OutputLost::of(StdStream::Stdout, error));
        }
    }
}
