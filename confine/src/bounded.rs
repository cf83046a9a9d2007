//! Reads files of bounded size, so that neither a large file nor a FIFO in a file's place blocks a program.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use rustix::fs::OFlags;

/// Whether a symlink at the end of a path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinalSymlink {
    /// The link's target is opened.
    Follow,
    /// The open fails.
    Refuse,
}

/// Opens a regular file for reading. The open does not block.
///
/// # Errors
/// The errors of opening a file, and [`io::ErrorKind::InvalidInput`] for anything except a regular file.
pub fn open_regular(path: &Path, final_symlink: FinalSymlink) -> io::Result<File> {
    let flags = match final_symlink {
        FinalSymlink::Follow => OFlags::NONBLOCK,
        FinalSymlink::Refuse => OFlags::NONBLOCK | OFlags::NOFOLLOW,
    };
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    // Check the open file, because the path may lead elsewhere by now.
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
    }
}

/// Reads all bytes of a reader, of which there may be at most `max_bytes`.
///
/// # Errors
/// The reader's errors, and [`io::ErrorKind::FileTooLarge`] if there are more bytes.
pub fn read_bytes(reader: impl Read, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more than allowed, to tell a full reader from a longer one.
    reader.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {}", size(max_bytes))))
    } else {
        Ok(bytes)
    }
}

/// Reads the whole text of a reader, which may have at most `max_bytes`.
///
/// # Errors
/// As in [`read_bytes`], and [`io::ErrorKind::InvalidData`] if the bytes are not UTF-8.
pub fn read_text(reader: impl Read, max_bytes: u64) -> io::Result<String> {
    let bytes = read_bytes(reader, max_bytes)?;
    // Windows editors write UTF-16, with a byte order mark or without. Without one, ASCII text has a zero in
    // its second byte.
    let is_utf16 =
        bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) || bytes.get(1) == Some(&0);
    String::from_utf8(bytes).map_err(|error| {
        let problem = if is_utf16 {
            "it is UTF-16; save it as UTF-8".to_owned()
        } else {
            format!("it is not UTF-8: {}", error.utf8_error())
        };
        io::Error::new(io::ErrorKind::InvalidData, problem)
    })
}

/// Formats a limit for people, in the largest unit of which it is a multiple.
fn size(bytes: u64) -> String {
    let units = [("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.into_iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{} {name}", bytes / unit),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_text_is_read_up_to_its_limit() {
        #[track_caller]
        fn check(bytes: &[u8], max_bytes: u64, expected: Result<&str, (io::ErrorKind, &str)>) {
            let text = read_text(bytes, max_bytes).map_err(|error| (error.kind(), error.to_string()));
            assert_eq!(text.as_deref().map_err(|(kind, problem)| (*kind, problem.as_str())), expected);
        }
        check(b"", 0, Ok(""));
        check(b"text", 4, Ok("text"));
        check(b"text", 3, Err((io::ErrorKind::FileTooLarge, "it has more than 3 bytes")));
        check(b"text", 0, Err((io::ErrorKind::FileTooLarge, "it has more than 0 bytes")));
        check(&[b'x'; 2049], 2048, Err((io::ErrorKind::FileTooLarge, "it has more than 2 KiB")));
        check(b"\xff\xfet\0", 9, Err((io::ErrorKind::InvalidData, "it is UTF-16; save it as UTF-8")));
        let problem = "it is not UTF-8: invalid utf-8 sequence of 1 bytes from index 1";
        check(b"t\xffxt", 9, Err((io::ErrorKind::InvalidData, problem)));
        // A limit that splits a character means that the text is too large, not that it is invalid.
        check("ä".as_bytes(), 1, Err((io::ErrorKind::FileTooLarge, "it has more than 1 bytes")));
        check(b"text", u64::MAX, Ok("text"));
    }

    #[test]
    fn only_a_regular_file_is_opened_and_nothing_blocks() {
        let folder = tempfile::tempdir().expect("a folder");
        let [file, link, fifo] = ["file", "link", "fifo"].map(|name| folder.path().join(name));
        fs::write(&file, "text").expect("written");
        symlink(&file, &link).expect("linked");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).expect("the FIFO can be made");
        let text = |path: &Path, links| read_text(open_regular(path, links)?, 9);
        assert_eq!(text(&file, FinalSymlink::Refuse).expect("read"), "text");
        assert_eq!(text(&link, FinalSymlink::Follow).expect("read"), "text");
        let refused = text(&link, FinalSymlink::Refuse).expect_err("a link");
        assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::LOOP.raw_os_error()));
        for path in [folder.path(), &fifo] {
            let refused = text(path, FinalSymlink::Follow).expect_err("no regular file");
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        }
        let missing = text(&folder.path().join("missing"), FinalSymlink::Follow).expect_err("missing");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
