//! Queries the running kernel for the layers that it supports, without changing anything.
//!
//! `doctor`, errors at load time, and the first step of confinement use the answer. A supported layer is not
//! yet an enforced layer.

use std::io;

use crate::{KernelSupport, landlock::REQUIRED_ABI, sys};

/// Queries the kernel for its layers. The two system calls are cheap, and the answer is not cached, because
/// an outer sandbox may be applied at any time.
#[must_use]
pub fn probe_kernel() -> KernelSupport {
    let landlock = sys::landlock_abi();
    let seccomp = sys::seccomp_errno_available();
    KernelSupport {
        landlock_abi: landlock.as_ref().ok().copied(),
        seccomp: seccomp.is_ok() && SECCOMP_ARCHITECTURE,
        landlock_reason: match landlock {
            Ok(abi) if abi >= REQUIRED_ABI => None,
            Ok(abi) => Some(format!(
                "the kernel's landlock is version {abi}, and {REQUIRED_ABI} (Linux 6.2) is needed to forbid \
                 truncation"
            )),
            Err(error) => Some(advice("landlock", &error)),
        },
        seccomp_reason: match seccomp {
            Ok(()) if SECCOMP_ARCHITECTURE => None,
            Ok(()) => Some(format!("there is no system-call list for {}", std::env::consts::ARCH)),
            Err(error) => Some(advice("seccomp", &error)),
        },
    }
}

fn advice(layer: &str, error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOSYS) => {
            format!("the kernel is built without {layer}, or a container's seccomp profile hides it")
        }
        Some(libc::EOPNOTSUPP) => {
            format!("{layer} is off: name it in the kernel's boot parameter lsm=")
        }
        Some(libc::EPERM) => {
            format!(
                "the kernel denied the query for {layer}: this thread is already confined, or an outer seccomp \
                 profile denies the call"
            )
        }
        _ => format!("the kernel offers no {layer} ({error})"),
    }
}

const SECCOMP_ARCHITECTURE: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));
