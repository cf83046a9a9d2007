//! [`ApiKey`]: a key that debug output, errors and logs do not show.

use std::{env, fmt, fs::File, io::Read, path::Path};

use http::HeaderValue;

use crate::{ProviderError, ProviderErrorKind};

/// The maximum length of a key, in bytes. It bounds the cost of a wrong path such as `/dev/zero`.
const MAX_KEY_BYTES: usize = 8 * 1024;

/// Replaces the key in text that is shown.
const REDACTED: &str = "[key]";

/// A provider's key. It comes from a file or the environment, never from the command line, because every
/// process of the machine can read that.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// Checks a key. White space around it is removed.
    ///
    /// # Errors
    /// [`ProviderErrorKind::Configuration`] if the key is empty, longer than 8 KiB, or has characters other than
    /// visible ASCII.
    pub fn new(key: impl AsRef<str>) -> Result<Self, ProviderError> {
        Self::parse(key.as_ref(), "the key")
    }

    /// Reads the key from an environment variable.
    ///
    /// # Errors
    /// [`ProviderErrorKind::Configuration`] if the variable is not set, or holds no key.
    pub fn from_env(variable: &str) -> Result<Self, ProviderError> {
        let origin = format!("the key in the environment variable {variable}");
        match env::var(variable) {
            Ok(key) => Self::parse(&key, &origin),
            Err(env::VarError::NotPresent) => Err(configuration_error(format!(
                "the environment variable {variable} is not set; it must contain the key"
            ))),
            // Drop the standard library's error, because it shows the value.
            Err(env::VarError::NotUnicode(_)) => Err(configuration_error(format!("{origin} is not text"))),
        }
    }

    /// Reads the key from a file.
    ///
    /// # Errors
    /// [`ProviderErrorKind::Configuration`] if the file cannot be read, or holds no key.
    pub fn from_file(path: &Path) -> Result<Self, ProviderError> {
        let origin = format!("the key in {}", path.display());
        // Read one byte more than the limit, to detect a file that is too long.
        let limit = MAX_KEY_BYTES as u64 + 1;
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(limit).read_to_end(&mut bytes))
            .map_err(|error| configuration_error(format!("cannot read {origin}")).with_source(error))?;
        // Drop the standard library's error, because it shows the bytes.
        let Ok(text) = String::from_utf8(bytes) else {
            return Err(configuration_error(format!("{origin} is not text")));
        };
        Self::parse(&text, &origin)
    }

    /// Returns a header value with the key, marked as sensitive.
    pub(super) fn header(&self, prefix: &str) -> HeaderValue {
        let mut value = HeaderValue::from_str(&format!("{prefix}{}", self.0))
            .expect("a key has visible characters only, which is checked where it is made");
        value.set_sensitive(true);
        value
    }

    /// Replaces the key in a text, so that a server that echoes a request does not bring the key into a log.
    pub(super) fn redact(&self, text: &str) -> String {
        text.replace(&self.0, REDACTED)
    }

    fn parse(text: &str, origin: &str) -> Result<Self, ProviderError> {
        let key = text.trim();
        if key.is_empty() {
            return Err(configuration_error(format!("{origin} is empty")));
        }
        if text.len() > MAX_KEY_BYTES {
            return Err(configuration_error(format!("{origin} is longer than {MAX_KEY_BYTES} bytes")));
        }
        if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(configuration_error(format!(
                "{origin} contains characters other than visible ASCII"
            )));
        }
        Ok(Self(key.to_owned()))
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

fn configuration_error(message: String) -> ProviderError {
    ProviderError::new(ProviderErrorKind::Configuration, message)
}

#[cfg(test)]
mod tests {
    use std::{error::Error, fs};

    use super::*;
    use crate::providers::tests::printable_text;

    const SECRET: &str = "sk-very-secret-0123";

    #[test]
    fn a_key_is_read_from_a_file_without_its_line_end() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("key");
        fs::write(&path, format!("{SECRET}\n")).expect("written");
        let key = ApiKey::from_file(&path).expect("a key");
        assert_eq!(key, ApiKey::new(SECRET).expect("a key"));
        assert_eq!(key.header("Bearer ").to_str().expect("the header is ASCII"), format!("Bearer {SECRET}"));
    }

    #[test]
    fn no_debug_output_shows_a_key() {
        let key = ApiKey::new(SECRET).expect("a key");
        assert_eq!(format!("{key:?}"), "ApiKey(…)");
        assert!(!format!("{:?}", key.header("Bearer ")).contains(SECRET));
        assert_eq!(key.redact(&format!("wrong key {SECRET}, {SECRET}")), "wrong key [key], [key]");
    }

    #[test]
    fn invalid_api_key_is_refused_without_being_shown() {
        let long = format!("{SECRET}{}", "x".repeat(MAX_KEY_BYTES));
        for text in ["", " \n", "sk-very-secret-0123\r\nx-evil: 1", "sk-very-secret-0123 é", &long] {
            let error = ApiKey::new(text).expect_err("refused");
            assert_eq!(error.kind(), ProviderErrorKind::Configuration);
            assert!(!printable_text(&error).contains("secret"), "{}", printable_text(&error));
        }
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("key");
        fs::write(&path, b"sk-very-secret-0123\xff").expect("written");
        let error = ApiKey::from_file(&path).expect_err("refused");
        assert!(!printable_text(&error).contains("secret"), "{}", printable_text(&error));
    }

    #[test]
    fn a_key_without_end_is_given_up() {
        let error = ApiKey::from_file(Path::new("/dev/zero")).expect_err("refused");
        assert_eq!(error.kind(), ProviderErrorKind::Configuration);
    }

    #[test]
    fn a_missing_key_is_named_by_its_place() {
        let error = ApiKey::from_env("PORTCULLIS_TEST_NO_SUCH_KEY").expect_err("not set");
        assert!(error.to_string().contains("PORTCULLIS_TEST_NO_SUCH_KEY"), "{error}");
        let error = ApiKey::from_file(Path::new("/nonexistent/key")).expect_err("no file");
        assert!(error.to_string().contains("/nonexistent/key"), "{error}");
        assert!(error.source().is_some());
    }
}
