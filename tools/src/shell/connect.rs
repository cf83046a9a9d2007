//! Connects to a sidecar: through the socket of a running one, or to a process that this program starts.

use std::{
    fmt, io,
    net::Shutdown,
    os::unix::net::UnixStream as StdUnixStream,
    path::{Path, PathBuf},
    process::Child,
    sync::Arc,
    time::{Duration, Instant},
};

use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use portcullis_confine::bounded;
use portcullis_policy::WorkspaceSecurityPolicy;
use tokio::net::UnixStream;
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Channel, Endpoint},
};

use super::failure::SidecarError;
use crate::private_file::{PrivateFileError, open_private_file};
use portcullis_shell_protocol::{VERSION, VERSION_KEY, shell_client::ShellClient};

/// A client that sends the token and the protocol version with each call.
pub(super) type SidecarClient = ShellClient<InterceptedService<Channel, Credentials>>;

/// The options of a sidecar that this program starts.
#[derive(Debug, Clone)]
pub struct SidecarOptions {
    /// The policy that the sidecar enforces.
    pub policy: Arc<WorkspaceSecurityPolicy>,
    /// The host folder of the mounts.
    pub workspace: PathBuf,
    /// The state folder of this program, which no session may see.
    pub state: PathBuf,
    /// Other host paths that no mount may touch.
    pub private_paths: Vec<PathBuf>,
    /// The file with additional trusted certificates, for sessions with a network.
    pub ca: Option<PathBuf>,
    /// Whether the sidecar runs without any confinement: it is the host's own shell, which the operator
    /// asked for by name.
    pub unconfined: bool,
}

/// Starts sidecars that belong to this process. The sidecar's crate implements this trait.
pub trait StartSidecar: Send + Sync + fmt::Debug {
    /// Starts a sidecar. Blocks until the process is started, but does not wait for its first message.
    ///
    /// # Errors
    /// The system's error.
    fn start(&self, options: &SidecarOptions) -> io::Result<StartedSidecar>;
}

/// A sidecar that this program started. It exits when its connection closes.
#[derive(Debug)]
pub struct StartedSidecar {
    /// The sidecar's process.
    pub process: Child,
    /// The only connection that the sidecar serves.
    pub connection: StdUnixStream,
    /// The token that each call must send.
    pub token: String,
}

/// The source of a sidecar.
#[derive(Debug, Clone)]
pub(super) enum SidecarSource {
    /// A running sidecar, reached through its socket.
    Socket { path: PathBuf, token_file: PathBuf },
    /// A sidecar that is started with the first command.
    Own { starter: Arc<dyn StartSidecar>, options: SidecarOptions },
}

/// A connection, and the sidecar's process if this program started it.
#[derive(Debug)]
pub(super) struct SidecarConnection {
    pub(super) client: SidecarClient,
    /// Dropped with the last user of the connection, which stops the process.
    _process: Option<OwnProcess>,
}

impl SidecarSource {
    /// Connects without sending a request.
    ///
    /// # Cancellation
    /// Dropping the future stops a process that it started.
    pub(super) async fn connect(&self) -> Result<SidecarConnection, SidecarError> {
        let (stream, token, process) = match self {
            Self::Socket { path, token_file } => {
                let token = read_token(token_file)
                    .map_err(|source| SidecarError::Token { path: token_file.clone(), source })?;
                let refused = |source| SidecarError::Connect { path: path.clone(), source };
                let connecting = tokio::time::timeout(CONNECT_TIMEOUT, UnixStream::connect(path));
                let late =
                    |_| refused(io::Error::new(io::ErrorKind::TimedOut, "it did not take the connection"));
                (connecting.await.map_err(late)?.map_err(refused)?, token, None)
            }
            Self::Own { starter, options } => {
                let start_error = |source| SidecarError::Start { source };
                let StartedSidecar { process, connection, token } =
                    starter.start(options).map_err(start_error)?;
                let process =
                    OwnProcess { process, connection: connection.try_clone().map_err(start_error)? };
                connection.set_nonblocking(true).map_err(start_error)?;
                (UnixStream::from_std(connection).map_err(start_error)?, token, Some(process))
            }
        };
        let credentials = Credentials::new(&token)?;
        let channel = channel(stream).await.map_err(|source| SidecarError::Protocol { source })?;
        let client = ShellClient::with_interceptor(channel, credentials);
        Ok(SidecarConnection { client, _process: process })
    }
}

/// Opens HTTP/2 on a connected stream. The channel never reconnects by itself: the sessions are lost with a
/// broken connection, and the caller must learn of the loss.
async fn channel(stream: UnixStream) -> Result<Channel, tonic::transport::Error> {
    // The first connect takes the stream. A second connect, which would be a reconnect, fails.
    let stream_once = Arc::new(Mutex::new(Some(stream)));
    let connector = tower::service_fn(move |_uri| {
        let stream = stream_once.lock().take();
        async move { stream.map(TokioIo::new).ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)) }
    });
    // The API requires a URI, but never uses it.
    Endpoint::from_static("http://sidecar.invalid").connect_with_connector(connector).await
}

/// The metadata of each call.
#[derive(Clone)]
pub(super) struct Credentials {
    authorization: MetadataValue<Ascii>,
}

impl Credentials {
    fn new(token: &str) -> Result<Self, SidecarError> {
        let mut authorization: MetadataValue<Ascii> =
            format!("Bearer {token}").parse().map_err(|_invalid| SidecarError::Answer {
                problem: "its token has characters that no header may have",
            })?;
        // Hides the token from debug output.
        authorization.set_sensitive(true);
        Ok(Self { authorization })
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

impl Interceptor for Credentials {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("authorization", self.authorization.clone());
        request.metadata_mut().insert(VERSION_KEY, MetadataValue::from_static(VERSION));
        Ok(request)
    }
}

/// The process of a sidecar that this program started. Dropping it closes the connection, which stops the
/// process, and waits for the process to exit.
#[derive(Debug)]
struct OwnProcess {
    process: Child,
    connection: StdUnixStream,
}

impl Drop for OwnProcess {
    fn drop(&mut self) {
        // Shut down explicitly: a clone of the channel may still hold another descriptor of the connection.
        let _ = self.connection.shutdown(Shutdown::Both);
        let deadline = Instant::now() + END_TIMEOUT;
        loop {
            match self.process.try_wait() {
                Ok(Some(_)) | Err(_) => return,
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
                Ok(None) => break,
            }
        }
        tracing::warn!(pid = self.process.id(), "the shell sidecar did not end in time and is killed");
        // Ignore errors: the process may have exited just now.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Reads a token: one line, in a file that only its owner can read.
fn read_token(path: &Path) -> Result<String, PrivateFileError> {
    let text = bounded::read_text(open_private_file(path)?, MAX_TOKEN_BYTES)?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

/// The timeout of a connect: 5 s. A connect blocks only if the sidecar hangs and the
/// socket's backlog is full.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a sidecar of this program may take to end its sessions: 4 s. Ending one session usually takes
/// a few milliseconds.
const END_TIMEOUT: Duration = Duration::from_secs(4);

/// The maximum length of a token.
const MAX_TOKEN_BYTES: u64 = 4096;

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn a_token_is_read_only_from_a_file_that_is_private() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        fs::write(&path, "secret\n").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("set");
        assert!(read_token(&path).expect_err("others can read it").to_string().contains("0600"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
        assert_eq!(read_token(&path).expect("private"), "secret");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("linked");
        read_token(&link).expect_err("a link");
        fs::write(&path, "x".repeat(5000)).expect("written");
        read_token(&path).expect_err("too long");
    }
}
