//! Properties of any guest output.

use portcullis_types::{FinalFrame, GuestFrame, ToolError, ToolErrorKind};

/// Checks that each decodable line gives an equal frame after encoding and decoding it again.
///
/// # Panics
/// If a frame differs.
pub fn check_round_trip(bytes: &[u8]) {
    for line in bytes.split(|byte| *byte == b'\n') {
        let Ok(frame) = serde_json::from_slice::<GuestFrame>(line) else { continue };
        let encoded = serde_json::to_vec(&frame).expect("a frame can be written");
        assert!(!encoded.contains(&b'\n'), "a frame is one line");
        let decoded: GuestFrame = serde_json::from_slice(&encoded).expect("what was written decodes");
        assert_eq!(decoded, frame);
        if let GuestFrame::Error(error) = frame {
            let kind = ToolError::from(error).kind();
            let host_kinds = [
                ToolErrorKind::Internal,
                ToolErrorKind::Timeout,
                ToolErrorKind::Cancelled,
                ToolErrorKind::ResourceLimit,
                ToolErrorKind::RateLimited,
            ];
            assert!(!host_kinds.contains(&kind), "a guest speaks as the host: {kind}");
        }
    }
}

/// Returns the final frames among the lines.
#[must_use]
pub fn final_frames(bytes: &[u8]) -> Vec<FinalFrame> {
    let decoded = bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    decoded
        .filter_map(|frame| match frame {
            GuestFrame::Ok(output) => Some(FinalFrame::Ok(output.0)),
            GuestFrame::Error(error) => Some(FinalFrame::Error(error)),
            GuestFrame::Progress(_) | GuestFrame::Update(_) | GuestFrame::Chunk(_) => None,
        })
        .collect()
}
