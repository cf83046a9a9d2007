//! Decompression, piece by piece.
//!
//! A response of a few kilobytes can expand to gigabytes. The decoder produces one piece of at most 64 KiB at
//! a time, on demand, and stops at the limit of the whole body. Its memory is therefore bounded, however far
//! a body expands.

use std::io::{self, Write};

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use bytes::{Buf as _, Bytes};
use flate2::write::MultiGzDecoder;
use http::{HeaderMap, HeaderValue, header};

use crate::{FetchError, RequestLimits};

/// The compression of a response's body (RFC 9110, 8.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentCoding {
    /// No compression.
    Identity,
    /// `gzip`, also named `x-gzip` (RFC 1952).
    Gzip,
    /// `br` (RFC 7932).
    Brotli,
}

impl ContentCoding {
    /// Returns the value of `Accept-Encoding`.
    pub(crate) fn accept_encoding(limits: &RequestLimits) -> HeaderValue {
        HeaderValue::from_static(if Self::Brotli.fits_window(limits) { "gzip, br" } else { "gzip" })
    }

    /// Returns whether the decoder's window is within the limit `window_bytes`.
    fn fits_window(self, limits: &RequestLimits) -> bool {
        let window = match self {
            Self::Identity => 0,
            Self::Gzip => GZIP_WINDOW_BYTES,
            Self::Brotli => MAX_BROTLI_WINDOW_BYTES,
        };
        window <= limits.window_bytes
    }

    /// Returns the response's coding. Several codings in sequence are refused: they were not offered, and
    /// they multiply the effect of a decompression bomb.
    pub(crate) fn from_headers(headers: &HeaderMap, limits: &RequestLimits) -> Result<Self, FetchError> {
        let coding = Self::from_name(headers)?;
        if coding.fits_window(limits) { Ok(coding) } else { Err(FetchError::CodingUnsupported) }
    }

    fn from_name(headers: &HeaderMap) -> Result<Self, FetchError> {
        let mut values = headers.get_all(header::CONTENT_ENCODING).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return if headers.contains_key(header::CONTENT_ENCODING) {
                Err(FetchError::CodingUnsupported)
            } else {
                Ok(Self::Identity)
            };
        };
        match value.as_bytes().trim_ascii().to_ascii_lowercase().as_slice() {
            b"" | b"identity" => Ok(Self::Identity),
            b"gzip" | b"x-gzip" => Ok(Self::Gzip),
            b"br" => Ok(Self::Brotli),
            _ => Err(FetchError::CodingUnsupported),
        }
    }
}

/// A decoder of one body.
pub(crate) struct BodyDecoder {
    coding: Coding,
    /// The received bytes that are not decoded yet.
    input: Bytes,
    /// The number of decoded bytes.
    decoded: usize,
    limit: usize,
}

enum Coding {
    Identity,
    Gzip(Box<MultiGzDecoder<Vec<u8>>>),
    Brotli(Box<Brotli>),
}

struct Brotli {
    state: BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>,
    output: Vec<u8>,
    decoded_bytes: usize,
    /// Whether the stream has ended. Bytes after its end are a fault.
    has_ended: bool,
    /// Whether the decoder still holds output of the input that it has consumed.
    has_more: bool,
}

impl BodyDecoder {
    /// Creates a decoder. `limit` is the limit of the decoded body, in bytes.
    pub(crate) fn new(coding: ContentCoding, limit: usize) -> Self {
        let coding = match coding {
            ContentCoding::Identity => Coding::Identity,
            ContentCoding::Gzip => Coding::Gzip(Box::new(MultiGzDecoder::new(Vec::new()))),
            ContentCoding::Brotli => Coding::Brotli(Box::new(Brotli::new())),
        };
        Self { coding, input: Bytes::new(), decoded: 0, limit }
    }

    /// Takes the next piece of the transfer, after [`Self::next_piece`] has decoded the last one.
    pub(crate) fn push(&mut self, input: Bytes) {
        debug_assert!(self.input.is_empty(), "the last piece is decoded");
        self.input = input;
    }

    /// Returns the next decoded piece, of at most [`MAX_PIECE_BYTES`], or `None` if it needs more of the
    /// transfer.
    pub(crate) fn next_piece(&mut self) -> Result<Option<Bytes>, FetchError> {
        let input = &mut self.input;
        let decoded = match &mut self.coding {
            Coding::Identity => Ok(input.split_to(input.len().min(MAX_PIECE_BYTES))),
            Coding::Gzip(decoder) => gunzip(decoder, input),
            Coding::Brotli(decoder) => decoder.decode(input),
        };
        self.count_decoded(decoded)
    }

    /// Returns the rest of the decoded body, after the last piece was decoded. A truncated compressed body is
    /// an error.
    pub(crate) fn finish(mut self) -> Result<Option<Bytes>, FetchError> {
        let finished = match &mut self.coding {
            Coding::Identity => Ok(Bytes::new()),
            Coding::Gzip(decoder) => decoder.try_finish().map(|()| std::mem::take(decoder.get_mut()).into()),
            Coding::Brotli(decoder) if decoder.has_ended => Ok(Bytes::new()),
            Coding::Brotli(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        };
        self.count_decoded(finished)
    }

    fn count_decoded(&mut self, decoded: io::Result<Bytes>) -> Result<Option<Bytes>, FetchError> {
        let piece = decoded.map_err(|source| FetchError::CodingInvalid { source })?;
        self.decoded = self.decoded.saturating_add(piece.len());
        if self.decoded > self.limit {
            return Err(FetchError::DecodedTooLarge { limit: self.limit });
        }
        Ok(Some(piece).filter(|piece| !piece.is_empty()))
    }
}

/// Decodes gzip until it has half a piece, or no input. One write adds at most another half, because the
/// decoder flushes its buffer of 32 KiB before it fills the buffer again.
fn gunzip(decoder: &mut MultiGzDecoder<Vec<u8>>, input: &mut Bytes) -> io::Result<Bytes> {
    while !input.is_empty() && decoder.get_mut().len() < MAX_PIECE_BYTES / 2 {
        let consumed = decoder.write(input)?;
        if consumed == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        input.advance(consumed);
    }
    if input.is_empty() {
        // Flush the output of all received input, so that a line that the server has flushed is not held
        // back.
        decoder.flush()?;
    }
    let output = decoder.get_mut();
    let rest = output.split_off(output.len().min(MAX_PIECE_BYTES));
    Ok(std::mem::replace(output, rest).into())
}

impl Brotli {
    fn new() -> Self {
        let alloc = StandardAlloc::default();
        // Strict: refuses the large windows of up to 1 GiB that RFC 7932 does not define.
        let state = BrotliState::new_strict(alloc, alloc, alloc);
        Self { state, output: vec![0; MAX_PIECE_BYTES], decoded_bytes: 0, has_ended: false, has_more: false }
    }

    fn decode(&mut self, input: &mut Bytes) -> io::Result<Bytes> {
        if input.is_empty() && !self.has_more {
            return Ok(Bytes::new());
        }
        if self.has_ended {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "bytes after the end"));
        }
        let (mut available_in, mut consumed) = (input.len(), 0);
        let (mut output_left, mut written) = (self.output.len(), 0);
        let result = BrotliDecompressStream(
            &mut available_in,
            &mut consumed,
            input,
            &mut output_left,
            &mut written,
            &mut self.output,
            &mut self.decoded_bytes,
            &mut self.state,
        );
        input.advance(consumed);
        self.has_more = false;
        match result {
            BrotliResult::NeedsMoreInput => {}
            BrotliResult::NeedsMoreOutput => self.has_more = true,
            BrotliResult::ResultSuccess => self.has_ended = true,
            BrotliResult::ResultFailure => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "no brotli stream"));
            }
        }
        Ok(Bytes::copy_from_slice(&self.output[..written]))
    }
}

/// The maximum length of a piece of a decoded body: 64 KiB.
pub(crate) const MAX_PIECE_BYTES: usize = 64 << 10;

/// The window of a gzip decoder: 32 KiB (RFC 1951, section 2).
const GZIP_WINDOW_BYTES: usize = 32 << 10;

/// The maximum size of a window of a brotli decoder, 16 MiB. A stream states the size of its window (RFC
/// 7932, section 9.1). The decoder allocates the window at the start, and holds up to 20 MiB with its tables.
const MAX_BROTLI_WINDOW_BYTES: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// Returns the decoded pieces.
    fn pieces(coding: ContentCoding, transfer: &[&[u8]], limit: usize) -> Result<Vec<Bytes>, FetchError> {
        let (mut decoder, mut decoded) = (BodyDecoder::new(coding, limit), Vec::new());
        for piece in transfer {
            decoder.push(Bytes::copy_from_slice(piece));
            while let Some(piece) = decoder.next_piece()? {
                decoded.push(piece);
            }
        }
        decoded.extend(decoder.finish()?);
        Ok(decoded)
    }

    fn decode(coding: ContentCoding, transfer: &[&[u8]], limit: usize) -> Result<Vec<u8>, &'static str> {
        pieces(coding, transfer, limit).map(|pieces| pieces.concat()).map_err(|error| error.code())
    }

    /// "hello" as an uncompressed block of a brotli stream.
    const BROTLI_HELLO: &[u8] = &[0x0b, 0x02, 0x80, b'h', b'e', b'l', b'l', b'o', 0x03];

    #[test]
    fn each_coding_is_undone() {
        assert_eq!(decode(ContentCoding::Identity, &[b"hel", b"lo"], 5).unwrap(), b"hello");
        let zipped = gzip(b"hello");
        let (first, second) = zipped.split_at(7);
        assert_eq!(decode(ContentCoding::Gzip, &[first, second], 5).unwrap(), b"hello");
        let (first, second) = BROTLI_HELLO.split_at(4);
        assert_eq!(decode(ContentCoding::Brotli, &[first, second], 5).unwrap(), b"hello");
    }

    #[test]
    fn members_of_a_gzip_stream_count_together() {
        let two_members = [gzip(b"hello"), gzip(b" you")].concat();
        assert_eq!(decode(ContentCoding::Gzip, &[&two_members], 9).unwrap(), b"hello you");
        assert_eq!(decode(ContentCoding::Gzip, &[&two_members], 8), Err("decoded_too_large"));
    }

    #[test]
    fn a_bomb_stops_at_the_limit() {
        let bomb = gzip(&vec![0; 8 << 20]);
        assert!(bomb.len() < 16 << 10);
        assert_eq!(decode(ContentCoding::Gzip, &[&bomb], 64 << 10), Err("decoded_too_large"));
        assert_eq!(decode(ContentCoding::Brotli, &[BROTLI_HELLO], 4), Err("decoded_too_large"));
        assert_eq!(decode(ContentCoding::Identity, &[b"hello"], 4), Err("decoded_too_large"));
    }

    #[test]
    fn a_limit_counts_all_pieces() {
        let zipped = gzip(b"hello hello");
        let (first, second) = zipped.split_at(zipped.len() / 2);
        assert_eq!(decode(ContentCoding::Gzip, &[first, second], 11).unwrap(), b"hello hello");
        assert_eq!(decode(ContentCoding::Gzip, &[first, second], 10), Err("decoded_too_large"));
        assert_eq!(decode(ContentCoding::Identity, &[b"hello", b"hi"], 6), Err("decoded_too_large"));
    }

    /// Each bomb expands to 64 MiB, of which no more than one piece is decoded at a time.
    #[test]
    fn a_bomb_is_decoded_in_pieces_of_bounded_size() {
        let bomb = gzip(&vec![0; 64 << 20]);
        for (coding, bomb) in [(ContentCoding::Gzip, &bomb[..]), (ContentCoding::Brotli, BROTLI_BOMB)] {
            let decoded = pieces(coding, &[bomb], 64 << 20).unwrap();
            assert!(decoded.iter().all(|piece| (1..=MAX_PIECE_BYTES).contains(&piece.len())), "{coding:?}");
            assert_eq!(decoded.iter().map(Bytes::len).sum::<usize>(), 64 << 20);
        }
    }

    /// 64 MiB of zeros, as `zlib.brotliCompressSync` of Node.js writes them.
    const BROTLI_BOMB: &[u8] = &[
        0xcf, 0xff, 0xff, 0x7f, 0xf8, 0x27, 0x00, 0xe2, 0xb1, 0x40, 0x20, 0xf7, 0xfe, 0x9f, 0xff, 0xff, 0xff,
        0xf0, 0x4f, 0x00, 0xc4, 0x61, 0x01, 0x80, 0xee, 0xfd, 0x3f, 0xff, 0xff, 0xff, 0xe1, 0x9f, 0x00, 0x88,
        0xc3, 0x22, 0x00, 0xdd, 0xfb, 0xff, 0xfc, 0xff, 0xff, 0xc7, 0x3f, 0x01, 0x10, 0x87, 0x05, 0x00, 0xba,
        0xf7, 0xff,
    ];

    #[test]
    fn flushed_bytes_are_decoded_immediately() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let mut decoder = BodyDecoder::new(ContentCoding::Gzip, 100);
        for line in ["one\n", "two\n", "three\n"] {
            encoder.write_all(line.as_bytes()).unwrap();
            encoder.flush().unwrap();
            decoder.push(std::mem::take(encoder.get_mut()).into());
            assert_eq!(decoder.next_piece().unwrap().as_deref(), Some(line.as_bytes()));
            assert_eq!(decoder.next_piece().unwrap(), None);
        }
    }

    #[test]
    fn a_coding_with_a_too_large_window_is_not_used() {
        let outcome_for = |coding: &'static str, window_bytes: usize| {
            let limits = RequestLimits { window_bytes, ..RequestLimits::default() };
            let headers =
                HeaderMap::from_iter([(header::CONTENT_ENCODING, HeaderValue::from_static(coding))]);
            (ContentCoding::accept_encoding(&limits), ContentCoding::from_headers(&headers, &limits).is_ok())
        };
        assert_eq!(outcome_for("br", 16 << 20), (HeaderValue::from_static("gzip, br"), true));
        assert_eq!(outcome_for("br", 1 << 20), (HeaderValue::from_static("gzip"), false));
        assert_eq!(outcome_for("gzip", 1 << 20), (HeaderValue::from_static("gzip"), true));
    }

    #[test]
    fn damaged_and_short_bodies_are_errors() {
        let zipped = gzip(b"hello hello hello");
        let mut wrong_sum = zipped.clone();
        let end = wrong_sum.len();
        wrong_sum[end - 8] ^= 1;
        for body in [&zipped[..end - 1], &zipped[..4], &wrong_sum, b"plain text"] {
            assert_eq!(decode(ContentCoding::Gzip, &[body], 100), Err("coding_invalid"), "{body:?}");
        }
        for body in [&BROTLI_HELLO[..6], b"plain text, which no brotli stream begins with"] {
            assert_eq!(decode(ContentCoding::Brotli, &[body], 100), Err("coding_invalid"), "{body:?}");
        }
    }

    #[test]
    fn only_one_offered_coding_is_taken() {
        let coding = |values: &[&'static str]| {
            let values = values.iter().map(|value| HeaderValue::from_static(value));
            let headers = values.map(|value| (header::CONTENT_ENCODING, value)).fold(
                HeaderMap::new(),
                |mut headers, (name, value)| {
                    headers.append(name, value);
                    headers
                },
            );
            ContentCoding::from_headers(&headers, &RequestLimits::default()).map_err(|error| error.code())
        };
        assert_eq!(coding(&[]), Ok(ContentCoding::Identity));
        assert_eq!(coding(&["identity"]), Ok(ContentCoding::Identity));
        assert_eq!(coding(&["GZIP"]), Ok(ContentCoding::Gzip));
        assert_eq!(coding(&["br"]), Ok(ContentCoding::Brotli));
        for values in [&["deflate"][..], &["zstd"], &["gzip, gzip"], &["gzip", "gzip"]] {
            assert_eq!(coding(values), Err("coding_unsupported"), "{values:?}");
        }
    }
}
