//! Properties of any guest output.

use portcullis_types::{FinalFrame, GuestFrame, ToolError, ToolErrorKind};

/// Each line that decodes is the same after encoding and decoding again.
///
/// # Panics
/// If it is not.
pub fn lines(bytes: &[u8]) {
    for line in bytes.split(|byte| *byte == b'\n') {
        let Ok(frame) = serde_json::from_slice::<GuestFrame>(line) else { continue };
        let written = serde_json::to_vec(&frame).expect("a frame can be written");
        assert!(!written.contains(&b'\n'), "a frame is one line");
        let again: GuestFrame = serde_json::from_slice(&written).expect("what was written decodes");
        assert_eq!(again, frame);
        if let GuestFrame::Error(error) = frame {
            let kind = ToolError::from(error).kind();
            let hosts_own = [
                ToolErrorKind::Internal,
                ToolErrorKind::Timeout,
                ToolErrorKind::Cancelled,
                ToolErrorKind::ResourceLimit,
                ToolErrorKind::RateLimited,
            ];
            assert!(!hosts_own.contains(&kind), "a guest speaks as the host: {kind}");
        }
    }
}

/// Returns the final frames among the lines.
#[must_use]
pub fn finals(bytes: &[u8]) -> Vec<FinalFrame> {
    let decoded = bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    decoded
        .filter_map(|frame| match frame {
            GuestFrame::Ok(output) => Some(FinalFrame::Ok(output.0)),
            GuestFrame::Error(error) => Some(FinalFrame::Error(error)),
            GuestFrame::Progress(_) | GuestFrame::Update(_) | GuestFrame::Chunk(_) => None,
        })
        .collect()
}
