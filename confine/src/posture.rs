//! The enforced layers as values, with their status and the evidence for it.
//!
//! [`crate::confine_current_thread`] builds these values from proofs. [`crate::probe_kernel`] builds its
//! value only from the kernel's support.

use std::{borrow::Cow, collections::BTreeSet, fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::landlock::CONNECT_ABI;

/// A layer of confinement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Layer {
    /// Rules on files per thread, and on TCP ports, sockets and signals where the kernel supports them.
    Landlock,
    /// The system-call filter, per thread.
    Seccomp,
    /// No capability, and no way to gain one (for processes).
    Privileges,
    /// Limits of memory, time, files and descriptors (for processes).
    Limits,
    /// A separate file tree that holds only the binds (for processes).
    MountNamespace,
    /// Separate process ids: no outside process has an id inside.
    PidNamespace,
    /// Separate shared memory, semaphores and message queues.
    IpcNamespace,
    /// A separate host name.
    UtsNamespace,
    /// Separate network devices, ports and abstract sockets, with no way out.
    NetNamespace,
    /// A separate control group: limits on all processes together.
    Cgroup,
}

impl Layer {
    /// Every layer that a worker thread can have.
    pub const THREAD: [Self; 2] = [Self::Landlock, Self::Seccomp];

    /// Every layer that a process can have, in the order in which they are applied.
    pub const PROCESS: [Self; 4] = [Self::Limits, Self::Privileges, Self::Landlock, Self::Seccomp];

    /// Every namespace that a process can have. They are independent: a process can be in one without the others.
    pub const NAMESPACES: [Self; 5] = [
        Self::PidNamespace,
        Self::IpcNamespace,
        Self::UtsNamespace,
        Self::NetNamespace,
        Self::MountNamespace,
    ];

    /// Returns the name that policy files and audit rows use. Serde writes longer names for namespaces, such
    /// as `mount_namespace`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MountNamespace => "mount_ns",
            Self::PidNamespace => "pid_ns",
            Self::IpcNamespace => "ipc_ns",
            Self::UtsNamespace => "uts_ns",
            Self::NetNamespace => "net_ns",
            Self::Cgroup => "cgroup",
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
            Self::Privileges => "privileges",
            Self::Limits => "limits",
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The degree to which a layer is enforced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum LayerStatus {
    /// The whole layer is enforced and proven.
    Enforced,
    /// All required rights are enforced and proven. The running kernel is too old for the rights in `missing`.
    /// Seccomp, if it is enforced, refuses the same operations, except that without `net_connect_tcp` a thread
    /// with a network may connect to every port. This status satisfies a requirement even where seccomp is
    /// waived.
    Partial {
        /// The rights that this kernel cannot restrict, e.g. `scope_signal`.
        missing: Vec<String>,
    },
    /// The layer is not applied, because the operator's policy does not require it.
    Waived,
    /// The layer cannot be applied here.
    Missing {
        /// The missing kernel feature.
        reason: String,
    },
}

/// The outcome of a system call, without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyscallOutcome {
    /// The call succeeded.
    Succeeded,
    /// The call failed with this `errno`.
    Failed(i32),
}

impl fmt::Display for SyscallOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Failed(errno) = *self else {
            return f.write_str(SUCCEEDED);
        };
        match ERRNO_NAMES.iter().find(|(number, _)| *number == errno) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "{OTHER_ERRNO}{errno}"),
        }
    }
}

impl Serialize for SyscallOutcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SyscallOutcome {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == SUCCEEDED {
            return Ok(Self::Succeeded);
        }
        let known_errno = ERRNO_NAMES.iter().find(|(_, name)| *name == text).map(|(number, _)| *number);
        let numbered = || text.strip_prefix(OTHER_ERRNO)?.parse().ok();
        known_errno
            .or_else(numbered)
            .map(Self::Failed)
            .ok_or_else(|| D::Error::custom(format!("`{text}` is not an outcome")))
    }
}

const SUCCEEDED: &str = "ok";
const OTHER_ERRNO: &str = "errno ";

/// The names of Linux's error numbers; this crate builds only for Linux.
const ERRNO_NAMES: [(i32, &str); 16] = [
    (1, "EPERM"),
    (2, "ENOENT"),
    (3, "ESRCH"),
    (11, "EAGAIN"),
    (13, "EACCES"),
    (9, "EBADF"),
    (14, "EFAULT"),
    (22, "EINVAL"),
    (38, "ENOSYS"),
    (88, "ENOTSOCK"),
    (92, "ENOPROTOOPT"),
    (93, "EPROTONOSUPPORT"),
    (95, "EOPNOTSUPP"),
    (97, "EAFNOSUPPORT"),
    (101, "ENETUNREACH"),
    (111, "ECONNREFUSED"),
];

/// An attempt that was made on the thread or in the process itself, before and after its layer was applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The layer that the attempt gives evidence for.
    pub layer: Layer,
    /// The attempt, e.g. `open a file of the state folder for reading`.
    #[serde(rename = "canary")]
    pub probe: Cow<'static, str>,
    /// The outcome before the layer was applied.
    pub before: SyscallOutcome,
    /// The outcome under the layer.
    pub after: SyscallOutcome,
}

impl Evidence {
    /// Returns whether the evidence proves the layer: its outcome changed when the layer was applied.
    /// Confinement fails unless the attempt was free before (it succeeded, or failed for another reason, such
    /// as a port without a listener) and is refused under the layer. If something else, such as an outer
    /// container's filter, refused the attempt before, the outcome is the same, and the evidence says nothing
    /// about the layer.
    #[must_use]
    pub fn is_proof(&self) -> bool {
        self.before != self.after
    }
}

/// The proven posture of one thread. Clones are cheap, because every audit row holds one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Posture(Arc<PostureInner>);

#[derive(Debug, PartialEq, Eq, Serialize)]
struct PostureInner {
    summary: String,
    landlock: LayerStatus,
    landlock_abi: Option<u32>,
    seccomp: LayerStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<BTreeSet<u16>>,
    evidence: Vec<Evidence>,
}

impl Posture {
    pub(crate) fn new(
        landlock: LayerStatus,
        landlock_abi: Option<u32>,
        seccomp: LayerStatus,
        network: Option<BTreeSet<u16>>,
        evidence: Vec<Evidence>,
    ) -> Self {
        let ports = network.as_ref().map(|ports| {
            let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
            format!(" tcp {}", if ports.is_empty() { "none".to_owned() } else { ports.join("+") })
        });
        let abi = match (&landlock, landlock_abi) {
            (LayerStatus::Enforced | LayerStatus::Partial { .. }, Some(abi)) => {
                Some(format!("abi {abi}{}", ports.filter(|_| abi >= CONNECT_ABI).unwrap_or_default()))
            }
            _ => None,
        };
        let summary = format!(
            "{},{}",
            summarize(Layer::Landlock, &landlock, abi),
            summarize(Layer::Seccomp, &seccomp, None)
        );
        Self(Arc::new(PostureInner { summary, landlock, landlock_abi, seccomp, network, evidence }))
    }

    /// Returns the status of one layer. A layer that only a process can have counts as waived.
    #[must_use]
    pub fn layer(&self, layer: Layer) -> &LayerStatus {
        match layer {
            Layer::Landlock => self.landlock(),
            Layer::Seccomp => self.seccomp(),
            _ => &LayerStatus::Waived,
        }
    }

    /// Returns the status of Landlock.
    #[must_use]
    pub fn landlock(&self) -> &LayerStatus {
        &self.0.landlock
    }

    /// Returns the status of the system-call filter.
    #[must_use]
    pub fn seccomp(&self) -> &LayerStatus {
        &self.0.seccomp
    }

    /// Returns the Landlock version of the kernel, if it has one.
    #[must_use]
    pub fn landlock_abi(&self) -> Option<u32> {
        self.0.landlock_abi
    }

    /// Returns the ports that the thread may connect to, if it has a network. The kernel enforces them only
    /// if Landlock is applied and its status does not list `net_connect_tcp` as missing.
    #[must_use]
    pub fn network(&self) -> Option<&BTreeSet<u16>> {
        self.0.network.as_ref()
    }

    /// Returns the attempts on the thread, with their outcomes.
    #[must_use]
    pub fn evidence(&self) -> &[Evidence] {
        &self.0.evidence
    }

    /// Returns one line for audit rows, equal for all threads with the same posture: `landlock=partial(abi 7
    /// missing fs_resolve_unix),seccomp=enforced`. A thread with a network also lists its ports:
    /// `landlock=enforced(abi 9 tcp 53+443),seccomp=enforced`.
    #[must_use]
    pub fn summary(&self) -> &str {
        &self.0.summary
    }
}

impl fmt::Display for Posture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.summary())
    }
}

/// The layers that the running kernel supports. Support proves nothing: only a [`Posture`] shows that a layer
/// is enforced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelSupport {
    /// The Landlock version, or `None` with the reason in [`Self::missing`].
    pub landlock_abi: Option<u32>,
    /// Whether system-call filters that answer with an error can be installed.
    pub seccomp: bool,
    pub(crate) landlock_reason: Option<String>,
    pub(crate) seccomp_reason: Option<String>,
}

impl KernelSupport {
    /// Returns the reason why a layer cannot be enforced here, in words for an operator, or `None` if no
    /// obstacle is known.
    #[must_use]
    pub fn missing(&self, layer: Layer) -> Option<&str> {
        match layer {
            Layer::Landlock => self.landlock_reason.as_deref(),
            Layer::Seccomp => self.seccomp_reason.as_deref(),
            // Every Linux has privileges and limits. For the other layers, only an attempt shows whether they are
            // available.
            _ => None,
        }
    }
}

/// Formats `layer=status`. The text contains no comma, because commas separate layers.
pub(crate) fn summarize(layer: Layer, status: &LayerStatus, detail: Option<String>) -> String {
    let word = match status {
        LayerStatus::Enforced => "enforced",
        LayerStatus::Partial { .. } => "partial",
        LayerStatus::Waived => "waived",
        LayerStatus::Missing { .. } => "missing",
    };
    let missing = match status {
        LayerStatus::Partial { missing } => Some(format!("missing {}", missing.join("+"))),
        LayerStatus::Enforced | LayerStatus::Waived | LayerStatus::Missing { .. } => None,
    };
    let details: Vec<String> = detail.into_iter().chain(missing).collect();
    if details.is_empty() {
        format!("{layer}={word}")
    } else {
        format!("{layer}={word}({})", details.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(landlock: LayerStatus, seccomp: LayerStatus, expected: &str) {
        assert_eq!(Posture::new(landlock, Some(7), seccomp, None, Vec::new()).summary(), expected);
    }

    #[test]
    fn a_summary_lists_ports_that_the_kernel_can_hold() {
        let summary = |abi, ports: &[u16]| {
            let ports = Some(ports.iter().copied().collect());
            Posture::new(LayerStatus::Enforced, Some(abi), LayerStatus::Enforced, ports, Vec::new())
                .summary()
                .to_owned()
        };
        assert_eq!(summary(9, &[443, 53]), "landlock=enforced(abi 9 tcp 53+443),seccomp=enforced");
        assert_eq!(summary(9, &[]), "landlock=enforced(abi 9 tcp none),seccomp=enforced");
        assert_eq!(summary(3, &[443]), "landlock=enforced(abi 3),seccomp=enforced");
    }

    #[test]
    fn an_outcome_is_read_as_it_was_written() {
        for outcome in [
            SyscallOutcome::Succeeded,
            SyscallOutcome::Failed(1),
            SyscallOutcome::Failed(38),
            SyscallOutcome::Failed(105),
        ] {
            let text = serde_json::to_string(&outcome).unwrap();
            assert_eq!(serde_json::from_str::<SyscallOutcome>(&text).unwrap(), outcome, "{text}");
        }
        assert!(serde_json::from_str::<SyscallOutcome>("\"fine\"").is_err());
    }

    #[test]
    fn a_summary_names_each_layer_once() {
        check(LayerStatus::Enforced, LayerStatus::Enforced, "landlock=enforced(abi 7),seccomp=enforced");
        check(LayerStatus::Waived, LayerStatus::Enforced, "landlock=waived,seccomp=enforced");
        check(
            LayerStatus::Partial { missing: vec!["a".into(), "b".into()] },
            LayerStatus::Missing { reason: "old, very old".into() },
            "landlock=partial(abi 7 missing a+b),seccomp=missing",
        );
    }
}
