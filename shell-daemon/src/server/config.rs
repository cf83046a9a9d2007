//! All that a daemon is told: values only, which a policy or a parent process makes.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use portcullis_confine::ProcessLimits;
use portcullis_policy::{CommandRules, VariableName};
use portcullis_types::Access;
use serde::{Deserialize, Serialize};

use crate::PostureChoice;

/// What a daemon offers, and to what extent. What is not here no client can have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DaemonConfig {
    /// A folder of the daemon's own, outside of every mount: what sessions try in vain to read lies there.
    pub state: PathBuf,
    /// The folder that the mounts lie below. It is no mount itself.
    pub workspace: PathBuf,
    /// The folders that sessions see besides the system's.
    pub mounts: Vec<DaemonMount>,
    /// The name of the mount that is `HOME` and the first working directory. Every session has it.
    pub home: String,
    /// Host paths that no mount may contain, equal or lie in. [`Self::state`] always counts as one.
    pub private: Vec<PathBuf>,
    /// How far sessions are confined. Clients may ask for more, and get it or no session.
    pub posture: PostureChoice,
    /// The names of variables that clients may set.
    pub environment: BTreeSet<VariableName>,
    /// Which commands are run at all.
    pub commands: CommandRules,
    /// Paths that no command is to write, at any depth of any mount: `.git/hooks`.
    pub protected: Vec<String>,
    /// Bounds of one session and its commands.
    pub session: SessionLimits,
    /// Bounds of the daemon as a whole.
    pub service: ServiceLimits,
}

/// One folder that sessions see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DaemonMount {
    /// Its name: `shared` for what clients call `/shared`.
    pub name: String,
    /// Its place below the workspace. No part of it is a link.
    pub folder: String,
    /// The most that a session may do with it.
    pub access: Access,
}

/// Bounds of one session and its commands. Clients may ask for less, never for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionLimits {
    /// Memory of one command and its jobs together. No process gets more private memory from the kernel; beyond
    /// it in all, the command is killed. Default: 1 GiB.
    pub memory_bytes: u64,
    /// Processes of one command and its jobs, at a time. Default: 256.
    pub processes: u64,
    /// Memory of all processes of a session together. Default: 4 GiB.
    pub group_memory_bytes: u64,
    /// Processes of a session and their threads. Default: 1024.
    pub group_processes: u64,
    /// The size of any file that is written. Default: 1 GiB.
    pub file_bytes: u64,
    /// Open descriptors of each process. Default: 1024.
    pub descriptors: u64,
    /// Output of one command that is handed on. The rest is read, counted and dropped. Default: 16 MiB.
    pub output_bytes: u64,
    /// The time of a command whose client names none. Default: 60 s.
    pub command_timeout: Duration,
    /// The most time that a client may ask for. Default: 10 min.
    pub max_command_timeout: Duration,
    /// How long a session may rest before it is ended, background jobs included. Default: 30 min.
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
    /// What the kernel holds each process of such a session to; and the processes of all of them, where they belong
    /// to a user of their own. It does not count processor time, since a command has a deadline.
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

/// Bounds of the daemon as a whole, each with who could exhaust what without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceLimits {
    /// Connections at a time; each costs a descriptor and some memory. For one that comes beyond,
    /// whoever has been connected longest without naming the token is hung up on. Default: 64.
    pub connections: usize,
    /// Sessions at a time; each costs two processes and a thread. Default: 64.
    pub sessions: usize,
    /// Sessions of one connection, so that one client leaves some to the others. Default: 16.
    pub sessions_per_connection: usize,
    /// Commands that run at a time. Default: 16.
    pub commands: usize,
    /// The size of one message. Default: 4 MiB.
    pub message_bytes: usize,
    /// Calls of one connection at a time. Default: 64.
    pub calls_per_connection: u32,
    /// From a connection's begin to its first call with the right token: who says nothing, or a byte a
    /// second, takes nobody's place for longer. Default: 10 s.
    pub greeting_timeout: Duration,
    /// How long a client may be silent before it is asked for a sign of life. Default: 30 s.
    pub keepalive_interval: Duration,
    /// How long the client has for that sign. Default: 20 s.
    pub keepalive_timeout: Duration,
    /// How long running commands have when the daemon is told to stop. Default: 5 s.
    pub grace: Duration,
    /// How long the answer about the daemon's health is given again before a session is started for the
    /// next one. Default: 10 s.
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
            greeting_timeout: Duration::from_secs(10),
            keepalive_interval: Duration::from_secs(30),
            keepalive_timeout: Duration::from_secs(20),
            grace: Duration::from_secs(5),
            health_cache: Duration::from_secs(10),
        }
    }
}
