//! File access of a confined thread, on the real kernel.

use std::{
    fs,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::fs::symlink,
    },
    sync::mpsc,
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags},
    io::Errno,
};

use super::*;
use crate::{
    Layer, confine_current_thread,
    testing::{ConfineFixture, confined, kernel_has_layers, open, run_on_new_thread},
};

const CREATE: OFlags = OFlags::WRONLY.union(OFlags::CREATE);
const TRUNCATE: OFlags = OFlags::WRONLY.union(OFlags::TRUNC);
const LIST: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

#[test]
fn a_read_mount_is_read_and_nothing_else() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    let dir = fixture.dir("read");
    confined(&fixture.rules(), |_| {
        assert_eq!(fs::read(fixture.path("read/file")).unwrap(), b"read/file");
        assert_eq!(rustix::fs::Dir::read_from(&dir).unwrap().count(), 3);
        assert_eq!(open(fixture.path("read/file"), OFlags::WRONLY), Err(Errno::ACCESS));
        assert_eq!(open(fixture.path("read/file"), TRUNCATE), Err(Errno::ACCESS));
        assert_eq!(open(fixture.path("read/file"), OFlags::RDONLY | OFlags::TRUNC), Err(Errno::ACCESS));
        assert_eq!(open(fixture.path("read/new"), CREATE), Err(Errno::ACCESS));
        assert_eq!(rustix::fs::mkdirat(&dir, "new", Mode::RWXU), Err(Errno::ACCESS));
        assert_eq!(rustix::fs::symlinkat("file", &dir, "new"), Err(Errno::ACCESS));
        assert_eq!(rustix::fs::linkat(&dir, "file", &dir, "new", AtFlags::empty()), Err(Errno::ACCESS));
        assert_eq!(rustix::fs::renameat(&dir, "file", &dir, "new"), Err(Errno::ACCESS));
        assert_eq!(rustix::fs::unlinkat(&dir, "file", AtFlags::empty()), Err(Errno::ACCESS));
    });
    assert_eq!(fs::read(fixture.path("read/file")).unwrap(), b"read/file");
    assert_eq!(fs::read_dir(fixture.path("read")).unwrap().count(), 1);
}

#[test]
fn a_write_mount_takes_files_folders_and_links() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    let dir = fixture.dir("write");
    confined(&fixture.rules(), |_| {
        fs::write(fixture.path("write/new"), "text").unwrap();
        rustix::fs::mkdirat(&dir, "folder", Mode::RWXU).unwrap();
        rustix::fs::renameat(&dir, "new", &dir, "folder/moved").unwrap();
        rustix::fs::symlinkat("moved", &dir, "folder/symbolic").unwrap();
        rustix::fs::linkat(&dir, "folder/moved", &dir, "hard", AtFlags::empty()).unwrap();
        assert_eq!(fs::read(fixture.path("write/folder/symbolic")).unwrap(), b"text");
        open(fixture.path("write/hard"), TRUNCATE).unwrap();
        for name in ["folder/moved", "folder/symbolic", "hard"] {
            rustix::fs::unlinkat(&dir, name, AtFlags::empty()).unwrap();
        }
        rustix::fs::unlinkat(&dir, "folder", AtFlags::REMOVEDIR).unwrap();
    });
    assert_eq!(fs::read_dir(fixture.path("write")).unwrap().count(), 1);
}

#[test]
fn devices_fifos_and_sockets_cannot_be_made() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    let dir = fixture.dir("write");
    let make = |kind| rustix::fs::mknodat(&dir, "node", kind, Mode::RUSR, 0);
    for kind in [FileType::Fifo, FileType::Socket, FileType::CharacterDevice, FileType::BlockDevice] {
        // Each layer alone refuses it.
        assert_eq!(
            confined(&fixture.rules_with_only(Layer::Landlock), |_| make(kind)),
            Err(Errno::ACCESS),
            "{kind:?}"
        );
        assert_eq!(
            confined(&fixture.rules_with_only(Layer::Seccomp), |_| make(kind)),
            Err(Errno::PERM),
            "{kind:?}"
        );
    }
}

#[test]
fn nothing_outside_the_mounts_opens() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    symlink(fixture.path("outside/secret"), fixture.path("write/escape")).unwrap();
    symlink("/", fixture.path("write/root")).unwrap();
    let write = fixture.dir("write");
    confined(&fixture.rules(), |_| {
        for (path, how) in [
            (fixture.path("outside/secret"), OFlags::RDONLY),
            (fixture.path("outside/secret"), OFlags::WRONLY),
            (fixture.path("outside/new"), CREATE),
            (fixture.path("outside"), LIST),
            (fixture.path("state"), LIST),
            (fixture.path("state/canary"), OFlags::RDONLY),
            (fixture.path("write/escape"), OFlags::RDONLY),
            (fixture.path("write/escape"), TRUNCATE),
            (fixture.path("write/root/etc/passwd"), OFlags::RDONLY),
            (fixture.path("write/../outside/secret"), OFlags::RDONLY),
            (fixture.path(""), LIST),
            ("/".into(), LIST),
            ("/etc/passwd".into(), OFlags::RDONLY),
            ("/dev/null".into(), OFlags::RDWR),
            ("/proc".into(), LIST),
            ("/proc/self/environ".into(), OFlags::RDONLY),
            ("/proc/self/mem".into(), OFlags::RDWR),
            ("/proc/self/maps".into(), OFlags::RDONLY),
            ("/proc/self/root".into(), LIST),
            ("/proc/self/root/etc/passwd".into(), OFlags::RDONLY),
            ("/proc/self/cwd".into(), LIST),
            ("/proc/1/environ".into(), OFlags::RDONLY),
        ] {
            assert_eq!(open(&path, how), Err(Errno::ACCESS), "{}", path.display());
        }
        let result = rustix::fs::openat(&write, "../outside/secret", OFlags::RDONLY, Mode::empty());
        assert_eq!(result.map(drop), Err(Errno::ACCESS));
    });
    assert_eq!(fs::read(fixture.path("outside/secret")).unwrap(), b"outside/secret");
    assert_eq!(fs::read_dir(fixture.path("outside")).unwrap().count(), 1);
}

#[test]
fn file_cannot_cross_a_mount_border() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    let (read, write, outside) = (fixture.dir("read"), fixture.dir("write"), fixture.dir("outside"));
    confined(&fixture.rules(), |_| {
        rustix::fs::renameat(&read, "file", &write, "taken").unwrap_err();
        rustix::fs::renameat(&outside, "secret", &write, "taken").unwrap_err();
        rustix::fs::renameat(&write, "file", &outside, "leaked").unwrap_err();
        // A second name in a writable mount would make the file writable.
        rustix::fs::linkat(&read, "file", &write, "taken", AtFlags::empty()).unwrap_err();
        rustix::fs::linkat(&outside, "secret", &write, "taken", AtFlags::empty()).unwrap_err();
        rustix::fs::unlinkat(&outside, "secret", AtFlags::empty()).unwrap_err();
    });
    for file in ["read/file", "write/file", "outside/secret"] {
        assert_eq!(fs::read_to_string(fixture.path(file)).unwrap(), file);
    }
    assert_eq!(fs::read_dir(fixture.path("write")).unwrap().count(), 1);
}

#[test]
fn proc_self_fd_leads_to_mounts_only() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    let (read, outside) = (fixture.dir("read"), fixture.dir("outside"));
    let by_number = |fd: &OwnedFd| format!("/proc/self/fd/{}", fd.as_raw_fd());
    confined(&fixture.rules(), |_| {
        open(by_number(&read), LIST).unwrap();
        let name = rustix::fs::readlinkat(rustix::fs::CWD, by_number(&read), Vec::new()).unwrap();
        assert_eq!(name.to_str().unwrap(), fixture.path("read").to_str().unwrap());
        assert_eq!(open(by_number(&outside), LIST), Err(Errno::ACCESS));
        assert_eq!(open(format!("{}/secret", by_number(&outside)), OFlags::RDONLY), Err(Errno::ACCESS));
        assert_eq!(open("/proc/self/fd", LIST), Err(Errno::ACCESS));
    });
}

/// The gaps that the module documentation lists. If a kernel closes one, change the documentation.
#[test]
fn names_and_metadata_outside_stay_visible() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    confined(&fixture.rules(), |_| {
        open(fixture.path("outside/secret"), OFlags::PATH).unwrap();
        assert_eq!(rustix::fs::stat(fixture.path("outside/secret")).unwrap().st_size, 14);
    });
}

#[test]
fn a_thread_without_mounts_opens_nothing() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    let mut rules = fixture.rules();
    rules.mounts.clear();
    confined(&rules, |_| {
        assert_eq!(open(fixture.path("read/file"), OFlags::RDONLY), Err(Errno::ACCESS));
        assert_eq!(open(fixture.path("write/file"), OFlags::WRONLY), Err(Errno::ACCESS));
    });
}

#[test]
fn other_threads_stay_free() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    let (ready, is_ready) = mpsc::channel();
    let (finish, may_finish) = mpsc::channel::<()>();
    let rules = fixture.rules();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let proven = confine_current_thread(&rules).unwrap();
            ready.send(()).unwrap();
            may_finish.recv().unwrap();
            proven.reprove().unwrap();
        });
        is_ready.recv().unwrap();
        for probe in crate::canary::Probe::ALL {
            assert!(probe.is_valid_control(fixture.canary().attempt(probe)), "{probe:?}");
        }
        run_on_new_thread(|| open("/etc/passwd", OFlags::RDONLY).unwrap());
        finish.send(()).unwrap();
    });
}

#[test]
fn a_mount_must_be_a_directory() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    let mut rules = fixture.rules();
    rules.mounts.push(MountRule { dir: fixture.dir("read/file"), access: MountAccess::Read });
    let error = run_on_new_thread(|| confine_current_thread(&rules).map(drop)).unwrap_err();
    assert!(matches!(error, ConfineError::MountNotDirectory { index: 2, source: None }), "{error}");
}

#[test]
fn a_path_handle_makes_a_rule_too() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    let handle =
        rustix::fs::open(fixture.path("read"), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let mut rules = fixture.rules();
    rules.mounts = vec![MountRule { dir: handle.into(), access: MountAccess::Read }];
    confined(&rules, |_| open(fixture.path("read/file"), OFlags::RDONLY).unwrap());
}

#[test]
fn an_older_kernel_is_partial_and_says_what_it_lacks() {
    assert_eq!(missing_rights(9), Vec::<String>::new());
    assert_eq!(missing_rights(6), ["fs_resolve_unix"]);
    assert_eq!(missing_rights(REQUIRED_ABI), LATER_RIGHTS.iter().map(|(_, name)| *name).collect::<Vec<_>>());
}
