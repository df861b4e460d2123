//! An image file, read piece by piece.

use broker_protocol::{ErrorKind, Failed, FileBytes, FileReply, Request, ZonePath, limit};
use orchestrator_engine::CallWork;
use orchestrator_results::image::{self, Image};
use orchestrator_results::metadata::{Details, Metadata};
use orchestrator_results::result::ToolResult;

/// Reads the image at `path`.
pub(crate) async fn read(work: CallWork<'_>, path: &ZonePath) -> ToolResult {
    let failed = |error| ToolResult::failed("view_image", error);
    let (image, request) = match pieces(work, path).await {
        Ok(read) => read,
        Err(result) => return *result,
    };
    let Some(Image { media_type, data }) = image else {
        let message = format!("{path} was changed while it was read");
        return failed(Failed {
            kind: ErrorKind::Io,
            message,
        });
    };
    let size = data.len() as u64;
    let text = format!("{media_type}, {size} bytes: {path}");
    let path = work.roots().absolute(path);
    let mut result = ToolResult::success(
        "view_image",
        text,
        Details::Image {
            path,
            media_type,
            size,
        },
    );
    result.metadata = result.metadata.with_request(&request);
    result.image = Some(Image { media_type, data });
    result
}

/// Reads all pieces; returns them with the metadata of the last request, or no image if they do not fit together.
async fn pieces(
    work: CallWork<'_>,
    path: &ZonePath,
) -> Result<(Option<Image>, Metadata), Box<ToolResult>> {
    let failed = |error| Box::new(ToolResult::failed("view_image", error));
    let mut data = Vec::new();
    let mut media_type = None;
    loop {
        let (path, offset) = (path.clone(), data.len() as u64);
        let piece = Request::FileBytes(FileBytes {
            path,
            offset,
            limit: limit::READ as u32,
        });
        let (FileReply::Bytes(bytes), request) = work.exchange(piece).await? else {
            let message = "the executor answered something else".into();
            return Err(failed(Failed {
                kind: ErrorKind::Protocol,
                message,
            }));
        };
        let known = media_type.map_or_else(|| image::check(&bytes.content, bytes.size), Ok);
        media_type = Some(known.map_err(failed)?);
        data.extend_from_slice(&bytes.content);
        let (read, size) = (data.len() as u64, bytes.size);
        if read >= size || bytes.content.is_empty() || read > image::MAX {
            let complete = read == size && size <= image::MAX;
            let image = media_type
                .filter(|_| complete)
                .map(|media_type| Image { media_type, data });
            return Ok((image, request));
        }
    }
}
