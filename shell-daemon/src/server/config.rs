//! The configuration of a daemon: values only, made by a policy or a parent process.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use portcullis_confine::ProcessLimits;
use portcullis_policy::{CommandRules, ProxyAddress, ShellNetwork, VariableName};
use portcullis_types::Access;
use serde::{Deserialize, Serialize};

use crate::PostureChoice;

/// Everything that a daemon offers. Clients cannot get anything that is not listed here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DaemonConfig {
    /// The daemon's folder outside every mount. It holds the canary, which sessions must fail to read.
    pub state: PathBuf,
    /// The folder that contains the mounts. It is no mount itself.
    pub workspace: PathBuf,
    /// The folders that sessions see besides the system's.
    pub mounts: Vec<DaemonMount>,
    /// The name of the mount that is `HOME` and the first working directory. Every session has it.
    pub home: String,
    /// Host paths that no mount may contain, equal or lie in. [`Self::state`] is always one of them.
    pub private: Vec<PathBuf>,
    /// The posture of sessions. Clients may ask for a stronger one, and get it or no session.
    pub posture: PostureChoice,
    /// The names of variables that clients may set.
    pub environment: BTreeSet<VariableName>,
    /// The rules for which commands are run at all.
    pub commands: CommandRules,
    /// Paths that no command may write, at any depth of any mount, such as `.git/hooks`.
    pub protected: Vec<String>,
    /// The network of sessions of the posture `strong`; none for a daemon whose sessions have no network.
    #[serde(default)]
    pub network: Option<DaemonNetwork>,
    /// Bounds of one session and its commands.
    pub session: SessionLimits,
    /// Bounds of the daemon as a whole.
    pub service: ServiceLimits,
}

/// One folder that sessions see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DaemonMount {
    /// Its name: `shared` is `/shared` for clients.
    pub name: String,
    /// Its path below the workspace. No part of it may be a link.
    pub folder: String,
    /// The most that a session may do with it.
    pub access: Access,
}

/// The network of a daemon's sessions, and how the threads that connect for them are confined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DaemonNetwork {
    /// The hosts that sessions reach.
    pub rules: ShellNetwork,
    /// The path of a file with further trusted certificates in PEM form, of at most 1 MiB.
    pub ca: Option<PathBuf>,
    /// The proxy that all connections go through.
    pub proxy: Option<ProxyAddress>,
    /// Whether the threads must have Landlock, which holds the ports.
    pub landlock: bool,
    /// Whether the threads must have the system-call filter.
    pub seccomp: bool,
}

/// Bounds of one session and its commands. Clients may ask for less, never for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionLimits {
    /// Memory of one command and its jobs together; a command that exceeds it is killed. The kernel also
    /// limits the private memory of each process to it. Default: 1 GiB.
    pub memory_bytes: u64,
    /// Processes of one command and its jobs, at a time. Default: 256.
    pub processes: u64,
    /// Memory of all processes of a session together. Default: 4 GiB.
    pub group_memory_bytes: u64,
    /// Processes of a session, their threads included. Default: 1,024.
    pub group_processes: u64,
    /// The size of any file that is written. Default: 1 GiB.
    pub file_bytes: u64,
    /// Open descriptors of each process. Default: 1,024.
    pub descriptors: u64,
    /// Output of one command that is handed on. The rest is read, counted and dropped. Default: 16 MiB.
    pub output_bytes: u64,
    /// Timeout of a command if the client names none. Default: 60 s.
    pub command_timeout: Duration,
    /// The longest timeout that a client may ask for. Default: 10 min.
    pub max_command_timeout: Duration,
    /// How long a session may be idle before it is ended, with its background jobs. Default: 30 min.
    pub idle_timeout: Duration,
}

impl Default for SessionLimits {
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

impl SessionLimits {
    /// The kernel's limits for each process of such a session, and for the number of processes together if
    /// they have a separate user. Processor time is not limited, since a command has a deadline.
    #[must_use]
    pub fn of_each_process(&self) -> ProcessLimits {
        ProcessLimits {
            descriptors: self.descriptors,
            memory_bytes: self.memory_bytes,
            file_bytes: self.file_bytes,
            processes: Some(self.group_processes),
            cpu: None,
        }
    }
}

/// Bounds of the daemon as a whole, each with the resource that it protects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceLimits {
    /// Connections at a time; each costs a descriptor and some memory. When one more comes, the daemon hangs
    /// up on the oldest connection that has not sent the token yet. Default: 64.
    pub connections: usize,
    /// Sessions at a time; each costs two processes and a thread. Default: 64.
    pub sessions: usize,
    /// Sessions of one connection, so that one client cannot take all of them. Default: 16.
    pub sessions_per_connection: usize,
    /// Commands that run at a time. Default: 16.
    pub commands: usize,
    /// The size of one message. Default: 4 MiB.
    pub message_bytes: usize,
    /// Calls of one connection at a time. Default: 64.
    pub calls_per_connection: u32,
    /// The longest time from the start of a connection to its first call with the right token: a client that
    /// sends nothing, or a byte a second, holds its slot no longer. Default: 10 s.
    pub token_timeout: Duration,
    /// How long a client may be silent before it is pinged. Default: 30 s.
    pub keepalive_interval: Duration,
    /// How long the client has to answer the ping. Default: 20 s.
    pub keepalive_timeout: Duration,
    /// Grace period of running commands when the daemon stops. Default: 5 s.
    pub grace: Duration,
    /// How long an answer about the daemon's health is reused before a session is started for the next one.
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
