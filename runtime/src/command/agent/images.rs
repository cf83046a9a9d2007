//! Images of a prompt: `@PATH` names a file, which is sent to the model with the prompt.

use std::{
    fs::OpenOptions,
    io::Read as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use portcullis_types::{Content, Message};

use crate::{
    error::{Cause, CliError},
    output::text,
};

/// The maximum size of an image: 5 MiB. Providers refuse larger ones.
pub(crate) const MAX_IMAGE_BYTES: u64 = 5 << 20;

/// The maximum number of images of one prompt.
pub(crate) const MAX_IMAGES: usize = 8;

/// The file extensions of images.
const ENDINGS: [&str; 5] = [".png", ".jpg", ".jpeg", ".gif", ".webp"];

/// Builds the prompt from a typed text. Each word `@PATH` with an image's file extension adds that image. The
/// word stays in the text, so that the model knows the name. Paths refer to the person's machine, relative to
/// the current folder.
///
/// # Errors
/// [`CliError::Image`] if a file is not an image, too large or unreadable, or if there are too many.
pub(super) fn prompt(typed: &str, mut images: Vec<Content>) -> Result<Message, CliError> {
    for path in paths(typed) {
        add(&mut images, path)?;
    }
    let mut message = Message::user(typed);
    message.content.append(&mut images);
    Ok(message)
}

/// Adds an image to those of a prompt.
///
/// # Errors
/// As in [`prompt`].
pub(super) fn add(images: &mut Vec<Content>, path: &Path) -> Result<(), CliError> {
    if images.len() == MAX_IMAGES {
        let problem = format!("one prompt has at most {MAX_IMAGES} images");
        return Err(CliError::Image { path: path.to_owned(), source: problem.into() });
    }
    images.push(read(path)?);
    Ok(())
}

fn read(path: &Path) -> Result<Content, CliError> {
    let failed = |source: Cause| CliError::Image { path: PathBuf::from(path), source };
    let non_blocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(non_blocking).open(path);
    let file = file.map_err(|error| failed(error.into()))?;
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Err(failed("it is not a regular file".into()));
    }
    let mut bytes = Vec::new();
    file.take(MAX_IMAGE_BYTES + 1).read_to_end(&mut bytes).map_err(|error| failed(error.into()))?;
    if bytes.len() as u64 > MAX_IMAGE_BYTES {
        return Err(failed(format!("it is larger than {}", text::bytes(MAX_IMAGE_BYTES)).into()));
    }
    let Some(mime_type) = mime_type(&bytes) else {
        return Err(failed("its first bytes are not those of a PNG, JPEG, GIF or WebP file".into()));
    };
    Ok(Content::Image { data: STANDARD.encode(&bytes), mime_type: mime_type.to_owned() })
}

/// Returns the paths of images that a text names.
fn paths(typed: &str) -> impl Iterator<Item = &Path> {
    let path = |word| str::strip_prefix(word, '@').filter(|path| is_image(path)).map(Path::new);
    typed.split_whitespace().filter_map(path)
}

fn is_image(path: &str) -> bool {
    let path = path.to_ascii_lowercase();
    ENDINGS.iter().any(|ending| path.len() > ending.len() && path.ends_with(ending))
}

/// Detects the type of an image from its first bytes.
fn mime_type(bytes: &[u8]) -> Option<&'static str> {
    let is_webp = bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP");
    [
        (bytes.starts_with(b"\x89PNG\r\n\x1a\n"), "image/png"),
        (bytes.starts_with(b"\xff\xd8\xff"), "image/jpeg"),
        (bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a"), "image/gif"),
        (is_webp, "image/webp"),
    ]
    .into_iter()
    .find_map(|(is_it, mime_type)| is_it.then_some(mime_type))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_word_that_names_an_image_adds_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.PNG");
        fs::write(&path, b"\x89PNG\r\n\x1a\n...").expect("written");
        let typed = format!("what is @{} ?", path.display());
        let message = prompt(&typed, Vec::new()).expect("the images are readable");
        assert_eq!(message.text(), typed);
        let data = STANDARD.encode(b"\x89PNG\r\n\x1a\n...");
        assert_eq!(message.content[1], Content::Image { data, mime_type: "image/png".to_owned() });
        let many = format!("@{} ", path.display()).repeat(MAX_IMAGES + 1);
        let error = prompt(&many, Vec::new()).expect_err("too many");
        assert!(portcullis_types::error_chain(&error).contains("at most 8 images"), "{error}");
        for typed in ["mail bob@x.png", "@someone", "@.png", "see @notes.md"] {
            assert_eq!(prompt(typed, Vec::new()).expect(typed).content.len(), 1, "{typed}");
        }
    }

    #[test]
    fn a_file_that_is_not_an_image_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.png");
        let problem = || match read(&path) {
            Err(CliError::Image { source, .. }) => source.to_string(),
            other => panic!("{other:?}"),
        };
        assert!(problem().contains("No such file"));
        fs::write(&path, "text").expect("written");
        assert!(problem().contains("PNG, JPEG, GIF or WebP"));
        fs::File::create(&path).expect("the file can be made").set_len(MAX_IMAGE_BYTES + 1).expect("set");
        assert_eq!(problem(), "it is larger than 5 MiB");
        fs::remove_file(&path).expect("removed");
        fs::create_dir(&path).expect("the folder can be made");
        assert_eq!(problem(), "it is not a regular file");
    }

    #[test]
    fn the_type_is_that_of_the_bytes() {
        for (bytes, expected) in [
            (&b"\x89PNG\r\n\x1a\n"[..], Some("image/png")),
            (b"\xff\xd8\xff\xe0", Some("image/jpeg")),
            (b"GIF89a", Some("image/gif")),
            (b"RIFF\0\0\0\0WEBPVP8 ", Some("image/webp")),
            (b"RIFF\0\0\0\0WAVE", None),
            (b"<svg", None),
            (b"", None),
        ] {
            assert_eq!(mime_type(bytes), expected);
        }
    }
}
