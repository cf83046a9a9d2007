//! The configuration of a sidecar, derived from a policy or received from a parent process. It consists of plain values.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use portcullis_confine::ProcessLimits;
use portcullis_policy::{CommandRules, ProxyAddress, ShellNetwork, VariableName};
use portcullis_types::Access;
use serde::{Deserialize, Serialize};

use crate::{PostureChoice, SessionToolchain};

/// Everything that a sidecar offers. Clients can get nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SidecarServerConfig {
    /// The sidecar's folder, outside every mount. It holds the canary, a file that sessions must fail to read.
    pub state: PathBuf,
    /// The folder that contains the mounts. It is not a mount itself.
    pub workspace: PathBuf,
    /// The folders that sessions see in addition to the system's folders.
    pub mounts: Vec<SidecarMount>,
    /// The name of the mount that is `HOME` and the first working directory. Every session has it.
    pub home: String,
    /// Host paths that no mount may contain, equal or be inside of. [`Self::state`] is always added to them.
    pub private: Vec<PathBuf>,
    /// The posture of sessions. A client may ask for a stronger posture. It then gets that posture or no session.
    pub posture: PostureChoice,
    /// The parts of the host that sessions see besides the mounts and the system.
    #[serde(default)]
    pub toolchain: SessionToolchain,
    /// The names of variables that clients may set.
    pub environment: BTreeSet<VariableName>,
    /// The rules that decide whether a command is run.
    pub commands: CommandRules,
    /// Paths that no command may write, at any depth of any mount, such as `.git/hooks`.
    pub protected: Vec<String>,
    /// Names that no command sees, at any depth of any mount, such as `*.pem`.
    #[serde(default)]
    pub hidden: Vec<String>,
    /// The network of sessions of the posture `strong`. `None` if sessions have no network.
    #[serde(default)]
    pub network: Option<SidecarNetwork>,
    /// The limits of one session and its commands.
    pub session: SessionConfig,
    /// Bounds of the sidecar as a whole.
    pub service: ServiceLimits,
}

/// One folder that sessions see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SidecarMount {
    /// The mount's name. Clients see the mount `shared` as `/shared`.
    pub name: String,
    /// The folder's path below the workspace, without any symbolic link, or an absolute path.
    pub folder: String,
    /// The most that a session may do with the folder.
    pub access: Access,
    /// Whether changes are kept, in the store of [`SidecarServerConfig::state`].
    #[serde(default)]
    pub has_undo: bool,
}

impl SidecarMount {
    /// Whether commands can change the folder, and their changes are kept.
    pub(super) fn keeps_changes(&self) -> bool {
        self.has_undo && self.access == Access::Write
    }
}

/// The network of a sidecar's sessions, and the confinement of the threads that connect for the sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SidecarNetwork {
    /// The hosts that sessions reach.
    pub rules: ShellNetwork,
    /// The path of a file with additional trusted certificates in PEM form, of at most 1 MiB.
    pub ca: Option<PathBuf>,
    /// The proxy that all connections go through.
    pub proxy: Option<ProxyAddress>,
    /// Whether the threads must have Landlock, which restricts the ports.
    pub landlock: bool,
    /// Whether the threads must have the system-call filter.
    pub seccomp: bool,
}

/// The limits of one session and its commands. A client may only request lower bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionConfig {
    /// Memory of one command and its jobs together. A command that exceeds this limit is killed. The kernel also
    /// limits the private memory of each process to this value. Default: 1 GiB.
    pub memory_bytes: u64,
    /// Processes of one command and its jobs at a time. Default: 256.
    pub processes: u64,
    /// Memory of all processes of a session together. Default: 4 GiB.
    pub group_memory_bytes: u64,
    /// Processes and threads of a session together. Default: 1,024.
    pub group_processes: u64,
    /// The maximum size of a file that a process writes. Default: 1 GiB.
    pub file_bytes: u64,
    /// Open descriptors of each process. Default: 1,024.
    pub descriptors: u64,
    /// Output of one command that is sent to the client. The rest is read, counted and dropped. Default: 16 MiB.
    pub output_bytes: u64,
    /// Timeout of a command if the client names none. Default: 60 s.
    pub command_timeout: Duration,
    /// The maximum timeout that a client may ask for. Default: 10 min.
    pub max_command_timeout: Duration,
    /// The idle time after which a session is ended together with its background jobs. Default: 30 min.
    pub idle_timeout: Duration,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            memory_bytes: 1 << 30,
            processes: 256,
            group_memory_bytes: 4 << 30,
            group_processes: 1024,
            file_bytes: 1 << 30,
            descriptors: 1024,
            output_bytes: 16 << 20,
            command_timeout: Duration::from_secs(60),
            max_command_timeout: Duration::from_secs(600),
            idle_timeout: Duration::from_secs(30 * 60),
        }
    }
}

impl SessionConfig {
    /// Returns the kernel's limits for each process of a session. The limit on the number of processes is for
    /// all of them together, if they have a separate user. Processor time is not limited, because a command
    /// has a deadline.
    #[must_use]
    pub fn process_limits(&self) -> ProcessLimits {
        ProcessLimits {
            descriptors: self.descriptors,
            memory_bytes: self.memory_bytes,
            file_bytes: self.file_bytes,
            processes: Some(self.group_processes),
            cpu: None,
        }
    }
}

/// Bounds of the sidecar as a whole, each with the resource that it protects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceLimits {
    /// Connections at a time. Each costs a descriptor and some memory. When one more arrives, the sidecar hangs up
    /// on the oldest connection that has not sent the token yet. Default: 64.
    pub connections: usize,
    /// Sessions at a time. Each costs two processes and a thread. Default: 64.
    pub sessions: usize,
    /// Sessions of one connection at a time. One client therefore cannot take all sessions. Default: 16.
    pub sessions_per_connection: usize,
    /// Commands that run at a time. Default: 16.
    pub commands: usize,
    /// The size of one message. Default: 4 MiB.
    pub message_bytes: usize,
    /// Calls of one connection at a time. Default: 64.
    pub calls_per_connection: u32,
    /// The time limit from the start of a connection to its first call with the right token. A client that sends
    /// nothing, or a byte a second, then loses its connection. Default: 10 s.
    pub token_timeout: Duration,
    /// The time of silence after which a client is pinged. Default: 30 s.
    pub keepalive_interval: Duration,
    /// The time limit of a client's answer to the ping. Default: 20 s.
    pub keepalive_timeout: Duration,
    /// Grace period of running commands when the sidecar stops. Default: 5 s.
    pub grace: Duration,
    /// The time for which the result of a health check is reused. After it, the next check starts a session again.
    /// Default: 10 s.
    pub health_cache: Duration,
}

impl Default for ServiceLimits {
    fn default() -> Self {
        Self {
            connections: 64,
            sessions: 64,
            sessions_per_connection: 16,
            commands: 16,
            message_bytes: 4 << 20,
            calls_per_connection: 64,
            token_timeout: Duration::from_secs(10),
            keepalive_interval: Duration::from_secs(30),
            keepalive_timeout: Duration::from_secs(20),
            grace: Duration::from_secs(5),
            health_cache: Duration::from_secs(10),
        }
    }
}
