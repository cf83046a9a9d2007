//! Explains why a namespace is not available, and how to make it available, in words for an operator.

use std::io;

use crate::{Layer, file_tree::TreeStep};

/// The kernel refused a user namespace, which every user except root needs first.
#[derive(Debug, thiserror::Error)]
#[error("an ordinary user needs a user namespace, which was refused ({error}): {advice}")]
pub(super) struct UserNamespaceRefusal {
    error: io::Error,
    advice: &'static str,
}

/// The refusal of a user namespace, with advice.
pub(super) fn user_namespace(error: io::Error) -> UserNamespaceRefusal {
    let cause = namespace_switches().into_iter().find_map(|(path, forbidding, advice)| {
        let value = std::fs::read_to_string(path).ok()?;
        (value.trim() == forbidding).then_some(advice)
    });
    let advice = cause.unwrap_or(match error.raw_os_error() {
        Some(libc::EINVAL) => "the kernel is built without this namespace: enable CONFIG_USER_NS",
        Some(libc::ENOSPC) => "too many are in use: raise user.max_user_namespaces",
        _ => PROFILE,
    });
    UserNamespaceRefusal { error, advice }
}

/// Returns the advice on one of the other namespaces.
pub(super) fn namespace(layer: Layer, error: &io::Error) -> String {
    let advice = match error.raw_os_error() {
        Some(libc::EINVAL) => kernel_option_advice(layer),
        Some(libc::ENOSPC) => "too many are in use: raise the limits below /proc/sys/user",
        _ => apparmor_advice().unwrap_or(PROFILE),
    };
    format!("it was refused ({error}): {advice}")
}

/// Returns the advice on the file tree.
pub(super) fn tree(step: TreeStep, error: &io::Error) -> String {
    let advice = match error.raw_os_error() {
        Some(libc::EPERM) if step == TreeStep::MountProc => {
            "the container's own /proc is masked: podman run --security-opt unmask=ALL, or docker run \
             --security-opt systempaths=unconfined"
        }
        Some(libc::ENOSYS) => {
            "the kernel is older than Linux 5.12, or a container's seccomp profile hides mounts"
        }
        _ => apparmor_advice().unwrap_or(PROFILE),
    };
    format!("it was refused to {step} ({error}): {advice}")
}

fn kernel_option_advice(layer: Layer) -> &'static str {
    match layer {
        Layer::PidNamespace => "the kernel is built without this namespace: enable CONFIG_PID_NS",
        Layer::IpcNamespace => "the kernel is built without this namespace: enable CONFIG_IPC_NS",
        Layer::UtsNamespace => "the kernel is built without this namespace: enable CONFIG_UTS_NS",
        Layer::NetNamespace => "the kernel is built without this namespace: enable CONFIG_NET_NS",
        _ => "the kernel is built without this namespace: enable CONFIG_NAMESPACES",
    }
}

/// Returns the advice for a machine where AppArmor allows a user namespace but no privileges in it.
fn apparmor_advice() -> Option<&'static str> {
    let (path, forbidding, advice) = APPARMOR;
    let value = std::fs::read_to_string(path).ok()?;
    (value.trim() == forbidding).then_some(advice)
}

fn namespace_switches() -> [(&'static str, &'static str, &'static str); 3] {
    [
        ("/proc/sys/kernel/unprivileged_userns_clone", "0", "set kernel.unprivileged_userns_clone=1"),
        ("/proc/sys/user/max_user_namespaces", "0", "raise user.max_user_namespaces"),
        APPARMOR,
    ]
}

const APPARMOR: (&str, &str, &str) = (
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
    "1",
    "set kernel.apparmor_restrict_unprivileged_userns=0, or give this program an AppArmor profile with userns",
);

const PROFILE: &str = "usually a container's profile forbids it: run podman or docker with --security-opt \
                       seccomp=FILE with a profile that lets unshare, mount, pivot_root, sethostname and \
                       the calls of the new mount interface through (and --security-opt apparmor=unconfined where \
                       AppArmor is on), or --cap-add=SYS_ADMIN";
