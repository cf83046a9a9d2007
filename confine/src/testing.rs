//! A small fixture for the tests: a state folder, two mounts, a folder outside, and fresh threads.
//!
//! Every confined thread is a fresh thread, so that the test process stays unconfined.

use std::{
    fs::File,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
    net::{AddressFamily, SocketType, socket},
};
use tempfile::TempDir;

pub(crate) use portcullis_testing::enter_stock_container;
use portcullis_testing::kernel_is_required;

use crate::{
    CanaryFile, Layer, MountAccess, MountRule, ProvenThread, Requirement, ThreadConfinement,
    confine_current_thread, probe_kernel,
};

/// `state/`, `read/` (with `file`), `write/` (with `file`), `outside/` (with `secret`).
pub(crate) struct ConfineFixture {
    root: TempDir,
    canary: CanaryFile,
}

impl ConfineFixture {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for dir in ["state", "read", "write", "outside"] {
            std::fs::create_dir(root.path().join(dir)).unwrap();
        }
        for file in ["read/file", "write/file", "outside/secret"] {
            std::fs::write(root.path().join(file), file).unwrap();
        }
        let canary = CanaryFile::create(&root.path().join("state")).unwrap();
        Self { root, canary }
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.root.path().join(relative)
    }

    pub(crate) fn dir(&self, relative: &str) -> Arc<OwnedFd> {
        Arc::new(File::open(self.path(relative)).unwrap().into())
    }

    pub(crate) fn canary(&self) -> CanaryFile {
        self.canary.clone()
    }

    /// Returns rules with both layers: `read/` is readable and `write/` is writable.
    pub(crate) fn rules(&self) -> ThreadConfinement {
        ThreadConfinement {
            landlock: Requirement::Required,
            seccomp: Requirement::Required,
            mounts: vec![
                MountRule { dir: self.dir("read"), access: MountAccess::Read },
                MountRule { dir: self.dir("write"), access: MountAccess::Write },
            ],
            network: None,
            canary: self.canary(),
        }
    }

    /// Returns the rules of [`Self::rules`] with only one layer.
    pub(crate) fn rules_with_only(&self, layer: Layer) -> ThreadConfinement {
        let mut rules = self.rules();
        match layer {
            Layer::Landlock => rules.seccomp = Requirement::Waived,
            Layer::Seccomp => rules.landlock = Requirement::Waived,
            _ => panic!("a thread has no such layer"),
        }
        rules
    }
}

/// Runs `body` on a fresh thread, and propagates a panic.
pub(crate) fn run_on_new_thread<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(body).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Runs `body` on a fresh, confined thread.
#[track_caller]
pub(crate) fn confined<T: Send>(
    rules: &ThreadConfinement,
    body: impl FnOnce(&ProvenThread) -> T + Send,
) -> T {
    run_on_new_thread(|| {
        let proven = confine_current_thread(rules).expect("the layers hold");
        let result = body(&proven);
        proven.reprove().expect("the layers still hold");
        result
    })
}

/// Returns whether the kernel has both layers. If not, prints that the test is skipped, or panics if a
/// missing layer is a failure ([`kernel_is_required`]).
pub(crate) fn kernel_has_layers() -> bool {
    let kernel = probe_kernel();
    let Some(reason) = Layer::THREAD.iter().find_map(|layer| kernel.missing(*layer)) else {
        return true;
    };
    assert!(!kernel_is_required(), "this machine must have every layer, but {reason}");
    println!("skipped: {reason}");
    false
}

/// Opens and closes a path.
pub(crate) fn open(path: impl AsRef<Path>, flags: OFlags) -> Result<(), Errno> {
    rustix::fs::open(path.as_ref(), flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR).map(drop)
}

/// Asserts that this thread cannot create a socket of any of these families and kinds.
#[track_caller]
pub(crate) fn assert_no_socket_can_be_made() {
    for family in [
        AddressFamily::INET,
        AddressFamily::INET6,
        AddressFamily::UNIX,
        AddressFamily::NETLINK,
        AddressFamily::PACKET,
        AddressFamily::VSOCK,
    ] {
        for kind in [SocketType::STREAM, SocketType::DGRAM, SocketType::RAW] {
            assert_eq!(socket(family, kind, None).map(drop), Err(Errno::PERM), "{family:?} {kind:?}");
        }
    }
}
