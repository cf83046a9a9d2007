//! Builds a file tree that contains only the binds, and moves the process into it.
//!
//! Steps that can fail because of the environment come first and do not touch the tree in use: they copy
//! mounts and create file systems. Only then is the new tree assembled and entered. A failure after that
//! point leaves the process between two trees, so the process must end.
//!
//! Folders and files are bound by handle. A handle belongs to the mount namespace in which it was opened. Its
//! path is therefore opened again in the new namespace, without following symlinks, and is used only if it
//! leads to the same file (TOCTOU race).

mod accounts;
mod copies;
mod unavailable;

use std::{
    fs::File,
    io::{self, Write as _},
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags},
    io::Errno,
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags},
};

pub(crate) use unavailable::{TreeStep, TreeUnavailable};

use crate::{ConfineError, PathAccess, PathRule, ProcessUser, sys};
use accounts::{GROUP, PASSWD, account_files, current_user};
use copies::{copy, copy_all, copy_mount, handle_path, stat_kind};

/// The contents of a new file tree. Besides these contents, every tree has:
///
/// - an `/etc/passwd` and an `/etc/group` with root, `nobody` (or `nogroup`) and the tree's user, named `session`,
/// - a `/proc` of its process namespace,
/// - the links `/dev/fd`, `/dev/stdin`, `/dev/stdout` and `/dev/stderr`,
/// - `/dev/shm`, and `/tmp` unless something is bound there. Both are in memory, with at most 64 MiB and 16,384 files
///   each, and disappear with the last process.
#[derive(Clone, Debug)]
pub struct FileTree {
    /// The caller's folders.
    pub mounts: Vec<Bind>,
    /// Folders, files and devices of the system. If the real path of one of them lies below the target of
    /// another, it becomes a symlink to that path.
    pub system: Vec<Bind>,
    /// Further files and folders, treated like those of the system. If a separate user is possible, that user
    /// reads them as their owner.
    pub toolchain: Vec<Bind>,
    /// Read-only folders and files below the mounts, as paths in the new tree. Missing ones are skipped.
    pub read_only: Vec<PathBuf>,
    /// Pinned folders below the mounts, as paths in the new tree: they are writable inside, but cannot be renamed, removed
    /// or replaced. Outer folders come first.
    pub pinned: Vec<PathBuf>,
    /// Covered files and folders below the mounts, as paths in the new tree: their names stay visible, but their content
    /// is out of reach. Missing ones are skipped.
    pub covered: Vec<PathBuf>,
    /// Further files: their paths in the new tree and their texts, together smaller than 1 MiB. All users can
    /// read them.
    pub files: Vec<(PathBuf, String)>,
    /// Symlinks: their paths in the new tree and their targets. A symlink is left out if something else lies
    /// at its path, above it or below it.
    pub symlinks: Vec<(PathBuf, PathBuf)>,
    /// The home of the tree's user.
    pub home: PathBuf,
    /// The tree's user, unless a separate user is possible. `None` means the user that enters the tree.
    pub user: Option<ProcessUser>,
}

/// One file, folder or device that is bound into a tree.
#[derive(Clone, Debug)]
pub struct Bind {
    /// The open folder, file or device; `O_PATH` is enough.
    pub handle: Arc<OwnedFd>,
    /// The absolute path in the tree.
    pub target: PathBuf,
    /// The access. The bind is read-only unless this is [`PathAccess::Write`] or [`PathAccess::Device`].
    pub access: PathAccess,
}

/// A tree that was entered.
#[derive(Debug)]
pub struct BuiltTree {
    /// The paths that the tree has besides the binds, for the rules of Landlock.
    pub paths: Vec<PathRule>,
    /// The number of paths of [`FileTree::read_only`] that existed and became read-only.
    pub read_only: usize,
    /// The number of paths of [`FileTree::covered`] that existed and were covered.
    pub hidden: usize,
    /// The user to whom the files below the mounts appear to belong, if it is not their real owner.
    pub user: Option<ProcessUser>,
}

/// A tree whose parts are created but not yet assembled.
pub(crate) struct PreparedTree<'a> {
    tree: &'a FileTree,
    parts: Vec<TreePart>,
    root: OwnedFd,
    proc: OwnedFd,
    shm: OwnedFd,
    tmp: Option<OwnedFd>,
    user: Option<ProcessUser>,
}

/// The content of one path in the tree.
struct TreePart {
    target: PathBuf,
    source: BindSource,
}

enum BindSource {
    Folder(OwnedFd),
    File(OwnedFd),
    Link(PathBuf),
    Text(String),
}

impl FileTree {
    /// Returns whether nothing of the tree lies at a path, above it or below it.
    fn has_room_for(&self, path: &Path) -> bool {
        let binds = self.mounts.iter().chain(&self.system).chain(&self.toolchain);
        let binds = binds.map(|bind| bind.target.as_path());
        let files = self.files.iter().map(|(path, _)| path.as_path());
        let mut mount_points = binds.chain(files).chain(["/proc", "/dev", "/etc", TMP].map(Path::new));
        let is_plain = path.components().skip(1).all(|component| matches!(component, Component::Normal(_)));
        is_plain
            && path.is_absolute()
            && !mount_points.any(|mount_point| path.starts_with(mount_point) || mount_point.starts_with(path))
    }
}

impl<'a> PreparedTree<'a> {
    /// Creates all parts. Must be called in the new mount namespace, by the first process of a process
    /// namespace. With `separate_user`, the mounts show that user as their owner, if all of them support it.
    pub(crate) fn new(
        tree: &'a FileTree,
        separate_user: Option<(ProcessUser, &OwnedFd)>,
    ) -> Result<Self, TreeUnavailable> {
        let step = |step| move |error| TreeUnavailable { step, source: error };
        // Prevent mounts that are made outside later from propagating into the tree.
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        rustix::mount::mount_change("/", private)
            .map_err(|errno| step(TreeStep::PartMounts)(errno.into()))?;
        let proc =
            create_file_system("proc", &[], ATTRIBUTES | MountAttrFlags::MOUNT_ATTR_RDONLY | NO_PROGRAMS)
                .map_err(step(TreeStep::MountProc))?;
        let tmpfs = |size, mode| {
            create_file_system(
                "tmpfs",
                &[("size", size), ("nr_inodes", MAX_FILES), ("mode", mode)],
                ATTRIBUTES,
            )
        };
        let root = tmpfs(ROOT_SIZE, "0755").map_err(step(TreeStep::MountRoot))?;
        let shm = tmpfs(MEMORY_SIZE, "1777").map_err(step(TreeStep::MountSharedMemory))?;
        let tmp = if tree.mounts.iter().any(|bind| bind.target == Path::new(TMP)) {
            None
        } else {
            Some(tmpfs(MEMORY_SIZE, "1777").map_err(step(TreeStep::MountTmp))?)
        };
        let mut parts = Vec::new();
        let mut user = None;
        if let Some((session_user, map)) = separate_user
            && let Ok(mounts) = copy_all(&tree.mounts, Some(map))
        {
            (parts, user) = (mounts, Some(session_user));
        } else {
            parts.extend(copy_all(&tree.mounts, None).map_err(step(TreeStep::CopyMount))?);
        }
        let map = separate_user.filter(|_| user.is_some()).map(|(_, map)| map);
        let system = tree.system.iter().map(|bind| (bind, None));
        let system = system.chain(tree.toolchain.iter().map(|bind| (bind, map)));
        let targets: Vec<&Path> = system.clone().map(|(bind, _)| bind.target.as_path()).collect();
        let accounts = account_files(user.or(tree.user).unwrap_or_else(current_user), &tree.home);
        for (bind, map) in system {
            if accounts.iter().any(|(target, _)| bind.target == Path::new(target)) {
                continue;
            }
            let path = handle_path(&bind.handle).map_err(step(TreeStep::NameSystemFolder))?;
            let is_below_another =
                path != bind.target && targets.iter().any(|target| path.starts_with(target));
            let source = if is_below_another {
                BindSource::Link(path)
            } else {
                // Not every file system supports ID-mapped mounts.
                let mapped = map.and_then(|map| copy(bind, Some(map)).ok());
                mapped.map_or_else(|| copy(bind, None), Ok).map_err(step(TreeStep::CopySystemFolder))?
            };
            parts.push(TreePart { target: bind.target.clone(), source });
        }
        for (target, text) in accounts {
            parts.push(TreePart { target: target.into(), source: BindSource::Text(text) });
        }
        for (target, text) in &tree.files {
            parts.push(TreePart { target: target.clone(), source: BindSource::Text(text.clone()) });
        }
        for (path, target) in tree.symlinks.iter().filter(|(path, _)| tree.has_room_for(path)) {
            parts.push(TreePart { target: path.clone(), source: BindSource::Link(target.clone()) });
        }
        Ok(Self { tree, parts, root, proc, shm, tmp, user })
    }

    /// Assembles the tree and enters it. A failure leaves the process between two trees, so it must end.
    pub(crate) fn enter(self) -> Result<BuiltTree, ConfineError> {
        let step = |step| move |source| ConfineError::NamespaceBroken { step, source };
        // `/proc` is only a temporary mount point: the process leaves the old tree soon.
        move_to(&self.root, CWD, "/proc").map_err(step("attach the new root folder"))?;
        let root = self.root.as_fd();
        // The tree's user must be able to read the tree's files, but this process still has another user.
        let umask = rustix::process::umask(Mode::WGRP | Mode::WOTH);
        for TreePart { target, source } in &self.parts {
            attach(root, target, source).map_err(step("put a folder in its place"))?;
        }
        for (target, mount) in
            [("/proc", Some(&self.proc)), ("/dev/shm", Some(&self.shm)), (TMP, self.tmp.as_ref())]
        {
            let Some(mount) = mount else { continue };
            make_folder(root, relative_to_root(target)).map_err(step("make a folder"))?;
            move_to(mount, root, relative_to_root(target)).map_err(step("put a file system in its place"))?;
        }
        for (link, target) in LINKS {
            rustix::fs::symlinkat(target, root, relative_to_root(link))
                .map_err(|errno| step("make a link")(errno.into()))?;
        }
        mask_proc(root).map_err(step("hide parts of /proc"))?;
        rustix::process::umask(umask);
        // Outer folders first, so that a later bind below one of them is made inside it.
        for target in &self.tree.pinned {
            bind_onto_itself(root, target, MountAttrFlags::empty())
                .map_err(step("keep a folder in its place"))?;
        }
        let mut read_only = 0;
        for target in &self.tree.read_only {
            let protected = bind_onto_itself(root, target, MountAttrFlags::MOUNT_ATTR_RDONLY)
                .map_err(step("protect a path"))?;
            read_only += usize::from(protected);
        }
        // This follows the read-only binds, because binding a folder again would uncover a file that was
        // covered in it.
        let mut hidden = 0;
        for target in &self.tree.covered {
            hidden += usize::from(cover(root, target).map_err(step("hide a path"))?);
        }
        self.pivot().map_err(step("enter the new root folder"))?;
        let open = |path: &Path| {
            rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
                .map_err(|errno| step("open the new folders")(errno.into()))
        };
        let mut paths =
            vec![("/", PathAccess::List), ("/proc", PathAccess::Read), ("/dev/shm", PathAccess::Write)];
        paths.extend([(PASSWD, PathAccess::Read), (GROUP, PathAccess::Read)]);
        if self.tmp.is_some() {
            paths.push((TMP, PathAccess::Write));
        }
        let paths = paths.into_iter().map(|(path, access)| (Path::new(path), access));
        let files = self.tree.files.iter().map(|(path, _)| (path.as_path(), PathAccess::Read));
        let paths = paths
            .chain(files)
            .map(|(path, access)| Ok(PathRule { handle: Arc::new(open(path)?), access }))
            .collect::<Result<_, ConfineError>>()?;
        Ok(BuiltTree { paths, read_only, hidden, user: self.user })
    }

    fn pivot(&self) -> io::Result<()> {
        rustix::process::fchdir(&self.root)?;
        // `pivot_root(".", ".")` stacks the old root on the new root. The unmount detaches the old root.
        rustix::process::pivot_root(".", ".")?;
        rustix::mount::unmount(".", UnmountFlags::DETACH)?;
        rustix::process::chdir("/")?;
        // This changes only this mount, because the mounts below it already have their final attributes.
        sys::set_mount_attributes(
            self.root.as_fd(),
            attributes(MountAttrFlags::MOUNT_ATTR_RDONLY),
            sys::MountDepth::One,
        )
    }
}

/// Creates a file system that is not attached yet.
fn create_file_system(
    kind: &str,
    options: &[(&str, &str)],
    attributes: MountAttrFlags,
) -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        rustix::mount::fsconfig_set_string(context.as_fd(), *key, *value)?;
    }
    rustix::mount::fsconfig_create(context.as_fd())?;
    Ok(rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// The name of an empty file in the new root folder, which exists only until the file is bound.
const COVER: &str = ".cover";

fn attach(root: BorrowedFd<'_>, target: &Path, source: &BindSource) -> io::Result<()> {
    let target = relative_to_root(target);
    if let Some(folder) = target.parent() {
        make_folder(root, folder)?;
    }
    match source {
        BindSource::Link(link) => Ok(rustix::fs::symlinkat(link, root, target)?),
        BindSource::Folder(mount) => {
            make_folder(root, target)?;
            move_to(mount, root, target)
        }
        BindSource::File(mount) => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            rustix::fs::openat(root, target, flags, Mode::RUSR)?;
            move_to(mount, root, target)
        }
        BindSource::Text(text) => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            let readable = Mode::RUSR | Mode::RGRP | Mode::ROTH;
            File::from(rustix::fs::openat(root, target, flags, readable)?).write_all(text.as_bytes())
        }
    }
}

/// Creates a folder and its missing parents.
fn make_folder(root: BorrowedFd<'_>, target: &Path) -> io::Result<()> {
    let mut path = PathBuf::new();
    for component in target.components() {
        let Component::Normal(name) = component else {
            return Err(io::Error::other("a path in the tree is a list of plain names"));
        };
        path.push(name);
        match rustix::fs::mkdirat(root, &path, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

fn move_to(mount: &OwnedFd, folder: BorrowedFd<'_>, target: impl rustix::path::Arg) -> io::Result<()> {
    Ok(rustix::mount::move_mount(mount, "", folder, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// Covers the entries of `/proc` that describe the machine instead of processes. `/proc` as a whole is
/// read-only.
fn mask_proc(root: BorrowedFd<'_>) -> io::Result<()> {
    let open_beneath = |path: &str, flags| {
        let flags = OFlags::PATH | OFlags::CLOEXEC | flags;
        rustix::fs::openat2(
            root,
            path,
            flags,
            Mode::empty(),
            ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS,
        )
    };
    for name in MASKED {
        // A kernel may lack some of the entries.
        let Ok(target) = open_beneath(&format!("proc/{name}"), OFlags::empty()) else { continue };
        let cover = if stat_kind(&target)? == rustix::fs::FileType::Directory {
            let empty = MountAttrFlags::MOUNT_ATTR_RDONLY | NO_PROGRAMS | ATTRIBUTES;
            create_file_system("tmpfs", &[("size", "4k"), ("nr_inodes", "2"), ("mode", "0755")], empty)?
        } else {
            copy_mount(open_beneath("dev/null", OFlags::empty())?.as_fd(), MountAttrFlags::MOUNT_ATTR_NOSUID)?
        };
        move_onto(&cover, &target)?;
    }
    Ok(())
}

/// Opens a path that was found below a mount. Returns `None` if it has disappeared or become a symlink since
/// then. The scan after a command reports this.
fn open_found(root: BorrowedFd<'_>, target: &Path) -> io::Result<Option<OwnedFd>> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match rustix::fs::openat2(root, relative_to_root(target), flags, Mode::empty(), resolve) {
        Ok(target) => Ok(Some(target)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Binds a path below a mount onto itself, with these attributes. The path is then a mount point, which
/// cannot be renamed or removed. Returns `false` for a path that does not exist, which is neither created nor
/// protected.
fn bind_onto_itself(root: BorrowedFd<'_>, target: &Path, mount_flags: MountAttrFlags) -> io::Result<bool> {
    let Some(target) = open_found(root, target)? else { return Ok(false) };
    move_onto(&copy_mount(target.as_fd(), mount_flags | ATTRIBUTES)?, &target)?;
    Ok(true)
}

/// Covers a path below a mount with an empty file or folder that no user may read, write or enter. Returns `false` if
/// the path no longer exists.
fn cover(root: BorrowedFd<'_>, target: &Path) -> io::Result<bool> {
    let Some(target) = open_found(root, target)? else { return Ok(false) };
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY | NO_PROGRAMS | ATTRIBUTES;
    if stat_kind(&target)? == rustix::fs::FileType::Directory {
        let options = [("size", "4k"), ("nr_inodes", "2"), ("mode", "0000")];
        move_onto(&create_file_system("tmpfs", &options, attributes)?, &target)?;
        return Ok(true);
    }
    // The file needs its name only until it is bound: the mount then keeps it alive.
    let create_flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    rustix::fs::openat(root, COVER, create_flags, Mode::empty())?;
    let file = rustix::fs::openat(root, COVER, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let covered = copy_mount(file.as_fd(), attributes).and_then(|cover| move_onto(&cover, &target));
    rustix::fs::unlinkat(root, COVER, rustix::fs::AtFlags::empty())?;
    covered.map(|()| true)
}

fn move_onto(mount: &OwnedFd, target: &OwnedFd) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(rustix::mount::move_mount(mount, "", target, "", flags)?)
}

/// Makes an absolute path relative to the root folder.
fn relative_to_root<P: AsRef<Path> + ?Sized>(target: &P) -> &Path {
    let target = target.as_ref();
    target.strip_prefix("/").unwrap_or(target)
}

fn attributes(flags: MountAttrFlags) -> u64 {
    u64::from(flags.bits())
}

const ATTRIBUTES: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NODEV);
const NO_PROGRAMS: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOEXEC;

const TMP: &str = "/tmp";

/// The size of the root file system, which holds folders, links and the files of [`FileTree::files`].
const ROOT_SIZE: &str = "2m";

/// The size of `/dev/shm`, and of `/tmp` if it is in memory. The limits of a process do not count this
/// memory.
const MEMORY_SIZE: &str = "64m";

/// The maximum number of files of each file system in memory.
const MAX_FILES: &str = "16384";

const LINKS: [(&str, &str); 4] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
];

/// The entries of `/proc` that container runtimes mask.
const MASKED: [&str; 15] = [
    "acpi",
    "asound",
    "bus",
    "interrupts",
    "kcore",
    "key-users",
    "keys",
    "kmsg",
    "latency_stats",
    "sched_debug",
    "scsi",
    "slabinfo",
    "sysrq-trigger",
    "timer_list",
    "vmallocinfo",
];
