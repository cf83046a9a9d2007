//! `[notify]`: the services through which `send_notification` sends, with their addresses. The section grants
//! nothing: the profiles of the tool's steps must have the hosts.

use std::{
    fmt::{self, Write},
    str::FromStr,
};

use serde::{Serialize, Serializer};
use thiserror::Error;
use url::Url;

use crate::{InvalidUrl, network::parse_url, render::quote};

/// `[notify]`. Only an operator's policy has it. Without the section, `send_notification` does not exist.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NotifySettings {
    /// The address of Slack's `chat.postMessage`, or of a compatible method.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slack: Option<NotifyUrl>,
    /// The address of Discord's API, below which the channels are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discord: Option<NotifyUrl>,
    /// The mail server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<MailSettings>,
}

/// The mail server, and the sender of messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MailSettings {
    /// The server that takes the messages.
    pub server: MailServer,
    /// The address of the sender.
    pub from: MailAddress,
    /// The name of the user at the server. The password is a secret of `send_notification`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<MailUser>,
}

/// The address of a service: an `http` or `https` URL in its canonical form, without a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotifyUrl(Url);

/// A text that is not the address of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum InvalidNotifyUrl {
    /// The text is not a URL that a request may have.
    #[error(transparent)]
    Url(#[from] InvalidUrl),
    /// The URL has a query or a fragment.
    #[error(
        "the address of the service has a query (`?`) or a fragment (`#`); write only the part before it"
    )]
    Query,
}

impl FromStr for NotifyUrl {
    type Err = InvalidNotifyUrl;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (url, _authority) = parse_url(text)?;
        // Search the text for `#`, because the parser has dropped a fragment.
        if text.contains(['?', '#']) { Err(InvalidNotifyUrl::Query) } else { Ok(Self(url)) }
    }
}

impl fmt::Display for NotifyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0.as_str())
    }
}

impl Serialize for NotifyUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A mail server: `smtps://HOST:PORT` with TLS from the first byte (RFC 8314, section 3.3), or
/// `smtp://HOST:PORT` without TLS. It is judged as `https://HOST:PORT/` or `http://HOST:PORT/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailServer(Url);

/// A text that is not a mail server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum InvalidMailServer {
    /// The scheme is neither `smtps` nor `smtp`.
    #[error("a mail server is written `smtps://HOST:PORT`, or `smtp://HOST:PORT` without TLS")]
    Scheme,
    /// The text is not a URL that a request may have.
    #[error(transparent)]
    Url(#[from] InvalidUrl),
    /// The text has a path, or no port.
    #[error("write the port and nothing after it, as `smtps://mail.example.com:465`")]
    Form,
}

impl MailServer {
    /// Returns the URL as which the server is judged.
    #[must_use]
    pub fn as_url(&self) -> &Url {
        &self.0
    }

    /// Returns whether the connection has TLS.
    #[must_use]
    pub fn has_tls(&self) -> bool {
        self.0.scheme() == "https"
    }
}

impl FromStr for MailServer {
    type Err = InvalidMailServer;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let judged = match (text.strip_prefix("smtps://"), text.strip_prefix("smtp://")) {
            (Some(rest), _) => format!("https://{rest}"),
            (None, Some(rest)) => format!("http://{rest}"),
            (None, None) => return Err(InvalidMailServer::Scheme),
        };
        let (url, _authority) = parse_url(&judged)?;
        let is_bare = url.path() == "/" && !text.ends_with('/') && !text.contains(['?', '#']);
        if is_bare && url.port().is_some() { Ok(Self(url)) } else { Err(InvalidMailServer::Form) }
    }
}

impl fmt::Display for MailServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.has_tls() { "smtps" } else { "smtp" };
        let (host, port) = (self.0.host_str().unwrap_or_default(), self.0.port().unwrap_or_default());
        write!(f, "{scheme}://{host}:{port}")
    }
}

impl Serialize for MailServer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The address of a sender: `NAME@HOST`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MailAddress(String);

/// The name of a user at a mail server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MailUser(String);

/// A text that is not a valid address or user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum InvalidMailName {
    /// The text is not an address.
    #[error(
        "an address is written NAME@HOST, in letters, digits and `.!#$%&'*+-/=?^_{{|}}~`, with at most {MAX_MAIL_BYTES} bytes"
    )]
    Address,
    /// The text is not a user.
    #[error("a user has 1 to {MAX_MAIL_BYTES} visible ASCII characters")]
    User,
}

/// The maximum length of an address and of a user, in bytes (RFC 5321, section 4.5.3.1.3, without the brackets).
const MAX_MAIL_BYTES: usize = 254;

impl MailAddress {
    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl MailUser {
    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for MailAddress {
    type Err = InvalidMailName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_atom = |byte: u8| byte.is_ascii_alphanumeric() || b".!#$%&'*+-/=?^_{|}~".contains(&byte);
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
        let is_address = text.len() <= MAX_MAIL_BYTES
            && text.split_once('@').is_some_and(|(name, host)| {
                !name.is_empty() && !host.is_empty() && name.bytes().all(is_atom) && host.bytes().all(is_host)
            });
        if is_address { Ok(Self(text.to_owned())) } else { Err(InvalidMailName::Address) }
    }
}

impl FromStr for MailUser {
    type Err = InvalidMailName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_user =
            (1..=MAX_MAIL_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_user { Ok(Self(text.to_owned())) } else { Err(InvalidMailName::User) }
    }
}

/// Writes `[notify]`, if the policy has it.
pub(crate) fn write_notify(out: &mut String, notify: Option<&NotifySettings>) -> fmt::Result {
    let Some(NotifySettings { slack, discord, email }) = notify else { return Ok(()) };
    writeln!(out, "\n[notify]")?;
    for (key, url) in [("slack", slack), ("discord", discord)] {
        if let Some(url) = url {
            writeln!(out, "{key} = {}", quote(&url.to_string()))?;
        }
    }
    if let Some(MailSettings { server, from, user }) = email {
        writeln!(out, "email = {}\nfrom = {}", quote(&server.to_string()), quote(from.as_str()))?;
        if let Some(user) = user {
            writeln!(out, "user = {}", quote(user.as_str()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mail_server_is_judged_as_a_url() {
        let server: MailServer = "smtps://Mail.example:465".parse().expect("a server");
        assert_eq!((server.as_url().as_str(), server.has_tls()), ("https://mail.example:465/", true));
        assert_eq!(server.to_string(), "smtps://mail.example:465");
        let local: MailServer = "smtp://127.0.0.1:25".parse().expect("a server");
        assert_eq!((local.as_url().as_str(), local.has_tls()), ("http://127.0.0.1:25/", false));
        for text in [
            "mail.example:465",
            "https://mail.example:465",
            "smtps://mail.example",
            "smtps://mail.example:465/",
            "smtps://mail.example:465/x",
            "smtps://mail.example:465?x",
            "smtps://user@mail.example:465",
            "smtps://mail.example:465\r\n",
        ] {
            assert!(text.parse::<MailServer>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_address_has_no_room_for_a_second_header() {
        assert!("agent+x@mail.example".parse::<MailAddress>().is_ok());
        for text in
            ["", "@", "a@", "@b", "a b@c", "a@b\r\nBcc: c@d", "\"a\"@b", "a@b,c@d", "Agent <a@b>", "ä@b"]
        {
            assert_eq!(text.parse::<MailAddress>(), Err(InvalidMailName::Address), "{text}");
        }
        assert_eq!("a\nb".parse::<MailUser>(), Err(InvalidMailName::User));
    }
}
