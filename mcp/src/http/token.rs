//! [`BearerToken`]: the token that every request must carry.

use std::{
    fmt, fs,
    io::{self, Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;
use subtle::ConstantTimeEq as _;

use crate::McpError;

/// File in the state folder with the token that the server made.
const FILE: &str = "mcp-token";

/// Minimum length of a token: 128 bits in hexadecimal digits.
const MIN_BYTES: usize = 32;

/// Maximum length of a token.
const MAX_BYTES: usize = 4096;

/// A secret that clients present. It is never printed.
pub struct BearerToken(String);

impl BearerToken {
    /// Reads the token from a file that only its owner may access.
    ///
    /// # Errors
    /// [`McpError::Token`]: no such file, others can read it, or it holds no token.
    pub fn read(path: &Path) -> Result<Self, McpError> {
        read(path).map(Self).map_err(|source| McpError::Token { path: path.to_owned(), source })
    }

    /// Returns the token of a state folder, creating it on first use, and its file.
    ///
    /// # Errors
    /// [`McpError::Token`], or [`McpError::Random`].
    pub fn of_state(folder: &Path) -> Result<(Self, PathBuf), McpError> {
        let path = folder.join(FILE);
        let failed = |source| McpError::Token { path: path.clone(), source };
        let (token, attempt) = (random::<32>()?, random::<8>()?);
        make(folder, &path, &token, &attempt).map_err(failed)?;
        Ok((Self::read(&path)?, path))
    }

    /// Whether a header's value presents this token. The comparison takes constant time for values of one
    /// length.
    pub(super) fn is_shown_by(&self, value: &[u8]) -> bool {
        let Some((scheme, shown)) = value.iter().position(|byte| *byte == b' ').map(|at| value.split_at(at))
        else {
            return false;
        };
        scheme.eq_ignore_ascii_case(b"bearer") && bool::from(shown.trim_ascii().ct_eq(self.0.as_bytes()))
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(…)")
    }
}

/// Random bytes, in hexadecimal digits.
fn random<const BYTES: usize>() -> Result<String, McpError> {
    let mut bytes = [0_u8; BYTES];
    getrandom::fill(&mut bytes).map_err(|error| McpError::Random { reason: error.to_string() })?;
    Ok(hex::encode(bytes))
}

/// Creates the file unless it exists. A hard link makes it appear complete or not at all. `attempt` is part of the
/// name of a temporary file: two servers may start at once. It is no part of the token, since names can be listed.
fn make(folder: &Path, path: &Path, token: &str, attempt: &str) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok() {
        return Ok(());
    }
    let new = folder.join(format!("{FILE}.{attempt}"));
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let made = file.write_all(token.as_bytes()).and_then(|()| file.write_all(b"\n"));
    // The link fails if another server was first: then that server's token counts.
    let linked = match made.and_then(|()| fs::hard_link(&new, path)) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    };
    fs::remove_file(&new)?;
    linked
}

fn read(path: &Path) -> io::Result<String> {
    // `NOFOLLOW`: a planted link must not lead to another file. `NONBLOCK`: a FIFO must not hang the open.
    // The conversion cannot fail: both flags are low bits.
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or_default();
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    // Of the open file: the path may lead elsewhere by now.
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    if found.mode() & 0o077 != 0 {
        return Err(io::Error::other("others can read it: its permissions must be 0600"));
    }
    let mut text = String::new();
    // Room for `\r\n` after the longest token; a longer one is refused below.
    file.take(MAX_BYTES as u64 + 2).read_to_string(&mut text)?;
    let token = text.trim_end_matches(['\n', '\r']);
    if !(MIN_BYTES..=MAX_BYTES).contains(&token.len()) || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(io::Error::other("a token has 32 to 4096 characters, none of them a space"));
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_state_folder_has_one_private_token() {
        let state = tempfile::tempdir().expect("a folder");
        let (token, path) = BearerToken::of_state(state.path()).expect("made");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(token.0.len(), 64);
        let (again, _) = BearerToken::of_state(state.path()).expect("kept");
        assert_eq!(again.0, token.0);
        assert_eq!(fs::read_dir(state.path()).expect("readable").count(), 1);
        assert!(!format!("{token:?}").contains(&token.0));
    }

    #[test]
    fn a_token_file_that_others_can_read_or_is_invalid_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        let secret = "s".repeat(MIN_BYTES);
        for (content, mode, is_taken) in [
            (format!("{secret}\n"), 0o600, true),
            (format!("{secret}\n"), 0o640, false),
            ("short\n".to_owned(), 0o600, false),
            (format!("{secret} {secret}"), 0o600, false),
            ("s".repeat(MAX_BYTES + 1), 0o600, false),
            (String::new(), 0o600, false),
        ] {
            fs::write(&path, &content).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
            assert_eq!(BearerToken::read(&path).is_ok(), is_taken, "{mode:o} {content}");
        }
        BearerToken::read(folder.path()).expect_err("a folder");
        BearerToken::read(&folder.path().join("none")).expect_err("nothing");
        let link = folder.path().join("link");
        fs::write(&path, &secret).expect("written");
        std::os::unix::fs::symlink(&path, &link).expect("linked");
        BearerToken::read(&link).expect_err("a link");
    }

    #[test]
    fn only_the_whole_token_under_its_scheme_is_taken() {
        let token = BearerToken("s".repeat(MIN_BYTES));
        let shown = |text: String| token.is_shown_by(text.as_bytes());
        let secret = &token.0;
        assert!(shown(format!("Bearer {secret}")) && shown(format!("bearer {secret}")));
        for wrong in [
            String::new(),
            secret.clone(),
            "Bearer ".to_owned(),
            format!("Basic {secret}"),
            format!("Bearer {secret}s"),
            format!("Bearer {}", &secret[1..]),
            format!("Bearer{secret}"),
        ] {
            assert!(!shown(wrong.clone()), "{wrong}");
        }
    }
}
