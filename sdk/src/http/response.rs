//! A response, whose body is read piece by piece.

use std::io::{self, Read};

use portcullis_types::{HttpAnswer, HttpResponseHead};
use serde::de::DeserializeOwned;

use super::{HttpError, import};

/// A response. Dropping it drops the unread rest.
#[derive(Debug)]
pub struct Response {
    head: HttpResponseHead,
}

impl Response {
    pub(super) fn new(head: HttpResponseHead) -> Self {
        Self { head }
    }

    /// The status, such as 200.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.head.status
    }

    /// The address that answered, after all redirects.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.head.url
    }

    /// The first value of a header, by its name in any case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.head.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// All headers whose values are text, in order.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.head.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The response, if its status is below 400.
    ///
    /// # Errors
    /// `http_status` with the status.
    pub fn error_for_status(self) -> Result<Self, HttpError> {
        match self.status() {
            status @ 400.. => Err(HttpError::new("http_status", &format!("the server answered {status}"))),
            _ => Ok(self),
        }
    }

    /// The rest of the body.
    ///
    /// # Errors
    /// If it breaks off.
    pub fn bytes(mut self) -> Result<Vec<u8>, HttpError> {
        let mut bytes = Vec::new();
        let read = self.read_to_end(&mut bytes);
        read.map_err(|error| HttpError::new("response_truncated", &error.to_string()))?;
        Ok(bytes)
    }

    /// The rest of the body as text.
    ///
    /// # Errors
    /// If it breaks off, or is not UTF-8.
    pub fn text(self) -> Result<String, HttpError> {
        String::from_utf8(self.bytes()?)
            .map_err(|_invalid| HttpError::new("response_invalid", "the response is not UTF-8"))
    }

    /// The rest of the body as JSON.
    ///
    /// # Errors
    /// If it breaks off, or is no JSON of this type.
    pub fn json<T: DeserializeOwned>(self) -> Result<T, HttpError> {
        serde_json::from_slice(&self.bytes()?).map_err(|error| {
            HttpError::new("response_invalid", &format!("the response is not the expected JSON: {error}"))
        })
    }
}

/// The body, piece by piece.
impl Read for Response {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        import::read(self.head.body, buffer).map_err(|answer| {
            io::Error::other(match answer {
                HttpAnswer::Error(fault) => fault.message,
                HttpAnswer::Ok(_) => "the host gave another answer".to_owned(),
            })
        })
    }
}

impl Drop for Response {
    fn drop(&mut self) {
        import::close(self.head.body);
    }
}
