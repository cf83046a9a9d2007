//! [`BearerToken`]: the token that every request must carry.

use std::{
    fmt, fs,
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use portcullis_tools::{PrivateFileError, open_private_file};
use portcullis_types::random_hex;
use subtle::ConstantTimeEq as _;

use crate::McpError;

/// The file in the state folder with the server's token.
const FILE: &str = "mcp-token";

/// The minimum length of a token: 128 bits in hexadecimal digits.
const MIN_BYTES: usize = 32;

/// The maximum length of a token, in bytes.
const MAX_BYTES: usize = 4096;

/// A secret that clients present. No output shows it.
pub struct BearerToken(String);

impl BearerToken {
    /// Reads the token from a file that only its owner may access.
    ///
    /// # Errors
    /// [`McpError::Token`] if there is no such file, if others can read it, or if it contains no token.
    pub fn read(path: &Path) -> Result<Self, McpError> {
        read(path).map(Self).map_err(|source| McpError::Token { path: path.to_owned(), source })
    }

    /// Returns the token of a state folder and the token's file. The first use creates both.
    ///
    /// # Errors
    /// [`McpError::Token`], or [`McpError::Random`].
    pub fn from_state_folder(folder: &Path) -> Result<(Self, PathBuf), McpError> {
        Self::from_file_of_state(folder, FILE)
    }

    /// Like [`Self::from_state_folder`], with another file name, for a server of another kind.
    ///
    /// # Errors
    /// [`McpError::Token`], or [`McpError::Random`].
    pub fn from_file_of_state(folder: &Path, file: &str) -> Result<(Self, PathBuf), McpError> {
        let path = folder.join(file);
        let failed = |source| McpError::Token { path: path.clone(), source };
        let random = |source| McpError::Random { source };
        let (token, attempt) = (random_hex::<32>().map_err(random)?, random_hex::<8>().map_err(random)?);
        create_token_file(&path, &token, &attempt).map_err(|source| failed(source.into()))?;
        Ok((Self::read(&path)?, path))
    }

    /// Returns the text of the token, for a server that compares it itself.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns whether a header's value presents this token. The comparison takes constant time, unless the
    /// lengths differ.
    pub(super) fn matches_authorization(&self, value: &[u8]) -> bool {
        let Some((scheme, presented_token)) =
            value.iter().position(|byte| *byte == b' ').map(|separator| value.split_at(separator))
        else {
            return false;
        };
        scheme.eq_ignore_ascii_case(b"bearer")
            && bool::from(presented_token.trim_ascii().ct_eq(self.0.as_bytes()))
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(…)")
    }
}

/// Creates the file unless it exists. A hard link makes the file appear complete or not at all. The temporary
/// file's name contains `attempt`, because two servers may start concurrently. `attempt` is not part of the
/// token, because names can be listed.
fn create_token_file(path: &Path, token: &str, attempt: &str) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok() {
        return Ok(());
    }
    let temporary = path.with_extension(attempt);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    let write_result = file.write_all(token.as_bytes()).and_then(|()| file.write_all(b"\n"));
    // The link fails if another server was faster. Use that server's token.
    let linked = match write_result.and_then(|()| fs::hard_link(&temporary, path)) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    };
    fs::remove_file(&temporary)?;
    linked
}

/// A file contains no token that can be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// The file cannot be read or created, or others may read it.
    #[error(transparent)]
    File(#[from] PrivateFileError),
    /// The file's text is not a token.
    #[error("a token has 32 to 4096 characters, none of them a space")]
    NotAToken,
}

impl From<io::Error> for TokenFileError {
    fn from(error: io::Error) -> Self {
        Self::File(error.into())
    }
}

fn read(path: &Path) -> Result<String, TokenFileError> {
    let file = open_private_file(path)?;
    let mut text = String::new();
    // Leave room for `\r\n` after the longest token. A longer token is refused below.
    file.take(MAX_BYTES as u64 + 2).read_to_string(&mut text)?;
    let token = text.trim_end_matches(['\n', '\r']);
    if !(MIN_BYTES..=MAX_BYTES).contains(&token.len()) || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(TokenFileError::NotAToken);
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
        let (token, path) = BearerToken::from_state_folder(state.path()).expect("the token can be stored");
        assert_eq!(fs::metadata(&path).expect("the path exists").permissions().mode() & 0o777, 0o600);
        assert_eq!(token.0.len(), 64);
        let (reread, _) = BearerToken::from_state_folder(state.path()).expect("the token can be stored");
        assert_eq!(reread.0, token.0);
        assert_eq!(fs::read_dir(state.path()).expect("readable").count(), 1);
        assert!(!format!("{token:?}").contains(&token.0));
    }

    #[test]
    fn a_token_file_that_others_can_read_or_is_invalid_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        let secret = "s".repeat(MIN_BYTES);
        for (content, mode, is_accepted) in [
            (format!("{secret}\n"), 0o600, true),
            (format!("{secret}\n"), 0o640, false),
            ("short\n".to_owned(), 0o600, false),
            (format!("{secret} {secret}"), 0o600, false),
            ("s".repeat(MAX_BYTES + 1), 0o600, false),
            (String::new(), 0o600, false),
        ] {
            fs::write(&path, &content).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
            assert_eq!(BearerToken::read(&path).is_ok(), is_accepted, "{mode:o} {content}");
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
        let is_accepted = |text: String| token.matches_authorization(text.as_bytes());
        let secret = &token.0;
        assert!(is_accepted(format!("Bearer {secret}")) && is_accepted(format!("bearer {secret}")));
        for wrong in [
            String::new(),
            secret.clone(),
            "Bearer ".to_owned(),
            format!("Basic {secret}"),
            format!("Bearer {secret}s"),
            format!("Bearer {}", &secret[1..]),
            format!("Bearer{secret}"),
        ] {
            assert!(!is_accepted(wrong.clone()), "{wrong}");
        }
    }
}
