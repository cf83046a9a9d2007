//! Decompression, piece by piece, into a bounded buffer.
//!
//! A response of a few kilobytes can expand to gigabytes. Decoding stops at the limit, before the bytes beyond it
//! are kept.

use std::io::{self, Write};

use brotli_decompressor::DecompressorWriter;
use flate2::write::MultiGzDecoder;
use http::{HeaderMap, HeaderValue, header};

use crate::FetchError;

/// The compression of a response's body (RFC 9110, 8.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentCoding {
    /// None.
    Identity,
    /// `gzip`, also named `x-gzip` (RFC 1952).
    Gzip,
    /// `br` (RFC 7932).
    Brotli,
}

impl ContentCoding {
    /// The value of `Accept-Encoding`.
    pub(crate) const OFFERED: HeaderValue = HeaderValue::from_static("gzip, br");

    /// Several codings, one after the other, are refused: they were not offered, and multiply what a bomb costs.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, FetchError> {
        let mut values = headers.get_all(header::CONTENT_ENCODING).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return match headers.contains_key(header::CONTENT_ENCODING) {
                true => Err(FetchError::CodingUnsupported),
                false => Ok(Self::Identity),
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

/// Decodes one body.
pub(crate) struct Decoder {
    coding: Coding,
    limit: usize,
}

enum Coding {
    Identity(Bounded),
    Gzip(Box<MultiGzDecoder<Bounded>>),
    /// Also whether a first byte was read.
    Brotli(Box<DecompressorWriter<Bounded>>, bool),
}

impl Decoder {
    /// `limit` is that of the decoded body, in bytes.
    pub(crate) fn new(coding: ContentCoding, limit: usize) -> Self {
        let sink = Bounded { bytes: Vec::new(), taken: 0, limit, is_full: false };
        let coding = match coding {
            ContentCoding::Identity => Coding::Identity(sink),
            ContentCoding::Gzip => Coding::Gzip(Box::new(MultiGzDecoder::new(sink))),
            ContentCoding::Brotli => {
                Coding::Brotli(Box::new(DecompressorWriter::new(sink, BUFFER_BYTES)), false)
            }
        };
        Self { coding, limit }
    }

    /// Takes the next piece.
    pub(crate) fn write(&mut self, piece: &[u8]) -> Result<(), FetchError> {
        let written = match &mut self.coding {
            Coding::Identity(sink) => sink.write_all(piece),
            Coding::Gzip(decoder) => decoder.write_all(piece),
            Coding::Brotli(_, false) if piece.first().is_some_and(|first| first & 0x7f == LARGE_WINDOW) => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "a window larger than 16 MiB"))
            }
            Coding::Brotli(decoder, has_begun) => {
                *has_begun |= !piece.is_empty();
                decoder.write_all(piece)
            }
        };
        written.map_err(|source| self.fault(source))
    }

    /// What was decoded since the last call.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let sink = self.sink_mut();
        sink.taken += sink.bytes.len();
        std::mem::take(&mut sink.bytes)
    }

    /// The rest of the decoded body, once the last piece was written. A compressed body that is cut off is an error.
    pub(crate) fn finish(mut self) -> Result<Vec<u8>, FetchError> {
        let finished = match &mut self.coding {
            Coding::Identity(_) => Ok(()),
            Coding::Gzip(decoder) => decoder.try_finish(),
            Coding::Brotli(decoder, _) => decoder.close(),
        };
        finished.map_err(|source| self.fault(source))?;
        Ok(std::mem::take(&mut self.sink_mut().bytes))
    }

    fn fault(&mut self, source: io::Error) -> FetchError {
        match self.sink_mut().is_full {
            true => FetchError::DecodedTooLarge { limit: self.limit },
            false => FetchError::CodingInvalid { source },
        }
    }

    fn sink_mut(&mut self) -> &mut Bounded {
        match &mut self.coding {
            Coding::Identity(sink) => sink,
            Coding::Gzip(decoder) => decoder.get_mut(),
            Coding::Brotli(decoder, _) => decoder.get_mut(),
        }
    }
}

/// A buffer that takes no more than its limit, what was taken out of it included.
struct Bounded {
    bytes: Vec<u8>,
    /// The bytes that were taken out before.
    taken: usize,
    limit: usize,
    /// More was to be written.
    is_full: bool,
}

impl Write for Bounded {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if piece.len() > self.limit - self.taken - self.bytes.len() {
            self.is_full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const BUFFER_BYTES: usize = 16 << 10;

/// How a brotli stream with a window of up to 1 GiB begins, in the low seven bits. RFC 7932, section 9.1, knows no
/// such stream, but the decoder takes it, and allocates the window for a body of a few bytes.
const LARGE_WINDOW: u8 = 0b001_0001;

#[cfg(test)]
mod tests {
    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn decode(coding: ContentCoding, pieces: &[&[u8]], limit: usize) -> Result<Vec<u8>, &'static str> {
        let mut decoder = Decoder::new(coding, limit);
        let written = pieces.iter().try_for_each(|piece| decoder.write(piece));
        written.and_then(|()| decoder.finish()).map_err(|error| error.code())
    }

    /// "hello" as an uncompressed block of a brotli stream.
    const BROTLI_HELLO: &[u8] = &[0x0b, 0x02, 0x80, b'h', b'e', b'l', b'l', b'o', 0x03];

    #[test]
    fn each_coding_is_undone() {
        assert_eq!(decode(ContentCoding::Identity, &[b"hel", b"lo"], 5).unwrap(), b"hello");
        let zipped = gzip(b"hello");
        let (one, two) = zipped.split_at(7);
        assert_eq!(decode(ContentCoding::Gzip, &[one, two], 5).unwrap(), b"hello");
        let (one, two) = BROTLI_HELLO.split_at(4);
        assert_eq!(decode(ContentCoding::Brotli, &[one, two], 5).unwrap(), b"hello");
    }

    #[test]
    fn members_of_a_gzip_stream_count_together() {
        let twice = [gzip(b"hello"), gzip(b" you")].concat();
        assert_eq!(decode(ContentCoding::Gzip, &[&twice], 9).unwrap(), b"hello you");
        assert_eq!(decode(ContentCoding::Gzip, &[&twice], 8), Err("decoded_too_large"));
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
    fn a_limit_counts_what_was_taken_before() {
        let zipped = gzip(b"hello hello");
        let (one, two) = zipped.split_at(zipped.len() / 2);
        let mut decoder = Decoder::new(ContentCoding::Gzip, 11);
        decoder.write(one).unwrap();
        let mut body = decoder.take();
        decoder.write(two).unwrap();
        body.extend(decoder.take());
        body.extend(decoder.finish().unwrap());
        assert_eq!(body, b"hello hello");
        let mut decoder = Decoder::new(ContentCoding::Identity, 6);
        decoder.write(b"hello").unwrap();
        assert_eq!(decoder.take(), b"hello");
        assert_eq!(decoder.write(b"hi").unwrap_err().code(), "decoded_too_large");
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
            ContentCoding::of(&headers).map_err(|error| error.code())
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
