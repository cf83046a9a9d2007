//! The client's first TLS message (`ClientHello`), and the server that it names.
//!
//! The TLS library parses the message, even across several records (RFC 8446, section 5.1). The bytes are forwarded
//! unchanged.

use rustls::server::Acceptor;
use tokio::{io::AsyncReadExt as _, net::TcpStream};

use super::TunnelError;

/// A parsed `ClientHello`, with its bytes and the bytes received after it.
#[derive(Debug)]
pub(super) struct ClientHello {
    bytes: Vec<u8>,
    server_name: Option<String>,
}

impl ClientHello {
    /// Returns the bytes if the message names `host` as its server. With Encrypted Client Hello (ECH), the
    /// outer name is compared, which is the name that the network sees.
    pub(super) fn require_name(self, host: &str) -> Result<Vec<u8>, TunnelError> {
        match self.server_name {
            Some(name) if name.eq_ignore_ascii_case(host) => Ok(self.bytes),
            Some(_) => Err(TunnelError::OtherServerName),
            None => Err(TunnelError::NoServerName),
        }
    }
}

/// Reads the message, of at most `limit` bytes. `bytes` were received with the request.
pub(super) async fn read(
    stream: &mut TcpStream,
    mut bytes: Vec<u8>,
    limit: usize,
) -> Result<ClientHello, TunnelError> {
    let mut acceptor = Acceptor::default();
    let mut fed = 0;
    loop {
        while fed < bytes.len() {
            let mut unread = &bytes[fed..];
            // The acceptor may take only a part of the bytes.
            fed += acceptor.read_tls(&mut unread).map_err(|_full| TunnelError::NotTls)?;
            match acceptor.accept() {
                Ok(Some(accepted)) => {
                    let server_name = accepted.client_hello().server_name().map(str::to_owned);
                    return Ok(ClientHello { bytes, server_name });
                }
                Ok(None) => {}
                Err(_malformed) => return Err(TunnelError::NotTls),
            }
        }
        if bytes.len() >= limit {
            return Err(TunnelError::HelloTooLarge { limit });
        }
        bytes.reserve(READ_BYTES.min(limit - bytes.len()));
        if (&mut *stream).take((limit - bytes.len()) as u64).read_buf(&mut bytes).await? == 0 {
            return Err(TunnelError::NotTls);
        }
    }
}

/// The buffer size of one read. Most messages are shorter.
const READ_BYTES: usize = 2 << 10;
