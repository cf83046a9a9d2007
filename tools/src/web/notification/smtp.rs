//! One SMTP session with a mail server (RFC 5321), over an open connection.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use lettre::{
    Message,
    transport::smtp::{
        authentication::{Credentials, Mechanism},
        client::{AsyncSmtpConnection, AsyncTokioStream},
        extension::ClientId,
    },
};
use portcullis_egress::{Credential, Url};
use portcullis_types::ToolErrorCode;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;

/// The maximum number of bytes that are read from a server. An SMTP session takes a few hundred.
const MAX_RECEIVED_BYTES: usize = 64 << 10;

/// A user and a password.
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: Credential,
}

/// Why a message was not sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum SmtpError {
    /// The connection failed, or TLS failed.
    #[error("cannot reach the mail server")]
    Connection(#[source] io::Error),
    /// A certificate cannot name the host.
    #[error("the mail server's name cannot have a certificate")]
    Name(#[source] rustls::pki_types::InvalidDnsNameError),
    /// The password is not text.
    #[error("the password of the mail server is not text")]
    Password,
    /// The server refused the login.
    #[error("the mail server refused the login")]
    Login(#[source] lettre::transport::smtp::Error),
    /// The server refused the message.
    #[error("the mail server refused the message: {0}")]
    Refused(#[source] lettre::transport::smtp::Error),
}

impl SmtpError {
    /// The stable error code.
    pub(super) fn code(&self) -> ToolErrorCode {
        match self {
            Self::Connection(_) | Self::Name(_) => ToolErrorCode::MailConnection,
            Self::Password | Self::Login(_) => ToolErrorCode::MailLogin,
            Self::Refused(_) => ToolErrorCode::NotificationRefused,
        }
    }
}

/// Sends a message.
///
/// # Cancellation
/// Dropping the future closes the connection. The message may already have been sent.
pub(super) async fn send(
    stream: TcpStream,
    server: &Url,
    tls: Option<Arc<ClientConfig>>,
    login: Option<&Login>,
    message: &Message,
) -> Result<(), SmtpError> {
    let stream = tokio::net::TcpStream::from_std(stream).map_err(SmtpError::Connection)?;
    let peer = stream.peer_addr().map_err(SmtpError::Connection)?;
    let stream: Box<dyn AsyncTokioStream> = match tls {
        None => Box::new(Bounded { stream, peer, remaining_bytes: MAX_RECEIVED_BYTES }),
        Some(config) => {
            let host = server.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            let name = ServerName::try_from(host).map_err(SmtpError::Name)?;
            let stream =
                TlsConnector::from(config).connect(name, stream).await.map_err(SmtpError::Connection)?;
            Box::new(Bounded { stream, peer, remaining_bytes: MAX_RECEIVED_BYTES })
        }
    };
    // The default name, `[127.0.0.1]`, reveals nothing about this machine.
    let mut connection = AsyncSmtpConnection::connect_with_transport(stream, &ClientId::default())
        .await
        .map_err(SmtpError::Refused)?;
    if let Some(Login { user, password }) = login {
        let password = password.expose().to_str().map_err(|_not_text| SmtpError::Password)?;
        let credentials = Credentials::new(user.clone(), password.to_owned());
        connection
            .auth(&[Mechanism::Plain, Mechanism::Login], &credentials)
            .await
            .map_err(SmtpError::Login)?;
    }
    connection.send(message.envelope(), &message.formatted()).await.map_err(SmtpError::Refused)?;
    // Ignore the error: the server has accepted the message.
    let _ = connection.quit().await;
    Ok(())
}

/// A stream that ends after a number of bytes, so that an endless response cannot exhaust memory.
#[derive(Debug)]
struct Bounded<S> {
    stream: S,
    peer: SocketAddr,
    remaining_bytes: usize,
}

impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin + std::fmt::Debug> AsyncTokioStream for Bounded<S> {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Poll::Ready(Ok(())) = polled {
            match self.remaining_bytes.checked_sub(buffer.filled().len() - before) {
                Some(left) => self.remaining_bytes = left,
                None => return Poll::Ready(Err(io::Error::other("the mail server's answer does not end"))),
            }
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
