//! A file tree that holds only the binds, and the move into it.
//!
//! All steps that can fail because of the environment come first, away from the tree in use: copies of
//! mounts, new file systems. Only then is the new tree assembled and entered. A failure after that leaves the
//! process between two trees, and it must end.
//!
//! Folders and files are bound by handle. A handle belongs to the mount namespace in which it was opened, so
//! its path is opened again here without following links, and taken only if it is the same file (TOCTOU
//! race).

use std::{
    fs::File,
    io::{self, Write as _},
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags},
    io::Errno,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
        UnmountFlags,
    },
};

use crate::{ConfineError, PathAccess, PathRule, ProcessUser, namespaces::apart, sys};

/// The contents of a new file tree. Besides these it has an `/etc/passwd` and an `/etc/group` with root,
/// `nobody` and its user, named `session`; a `/proc` of its process namespace; `/dev/shm`; and, unless
/// something is bound there, `/tmp`. The last two are in memory, with at most 64 MiB and 16,384 files each,
/// and are gone with the last process.
#[derive(Clone, Debug)]
pub struct FileTree {
    /// The caller's folders.
    pub mounts: Vec<Bind>,
    /// Folders, files and devices of the system. One that really lies below another becomes a symbolic link
    /// to it.
    pub system: Vec<Bind>,
    /// Folders and files below the mounts, as paths in the new tree, that become read-only. A path that does
    /// not exist (any more) is left out, and never made.
    pub read_only: Vec<PathBuf>,
    /// Folders below the mounts, likewise, that keep their places: writable inside, but they cannot be
    /// renamed, removed or replaced. Outer ones first.
    pub fixed: Vec<PathBuf>,
    /// Further files with these texts, as paths in the new tree, readable to all. Together below 1 MiB.
    pub files: Vec<(PathBuf, String)>,
    /// The home of its user.
    pub home: PathBuf,
    /// Its user, if that is neither the user that enters it nor a separate one.
    pub user: Option<ProcessUser>,
}

/// One file, folder or device that is bound into a tree.
#[derive(Clone, Debug)]
pub struct Bind {
    /// The open folder, file or device; `O_PATH` is enough.
    pub handle: Arc<OwnedFd>,
    /// Its path in the tree, absolute.
    pub place: PathBuf,
    /// Read-only unless this is [`PathAccess::Write`] or a device.
    pub access: PathAccess,
}

/// A tree that was entered.
#[derive(Debug)]
pub struct BuiltTree {
    /// The paths besides the binds, for the rules of Landlock.
    pub paths: Vec<PathRule>,
    /// How many of [`FileTree::read_only`] existed and became read-only.
    pub read_only: usize,
    /// The user to whom the files below the mounts appear to belong, if it is not their real owner.
    pub user: Option<ProcessUser>,
}

/// The reason why there is no tree. Nothing has changed, and the process may go on in its old tree.
#[derive(Debug)]
pub(crate) struct TreeUnavailable {
    pub(crate) step: &'static str,
    pub(crate) source: io::Error,
}

/// A tree whose parts are made, and which is not assembled yet.
pub(crate) struct PreparedTree<'a> {
    tree: &'a FileTree,
    parts: Vec<TreePart>,
    root: OwnedFd,
    proc: OwnedFd,
    shm: OwnedFd,
    tmp: Option<OwnedFd>,
    user: Option<ProcessUser>,
}

/// The content of one place.
struct TreePart {
    place: PathBuf,
    what: BindSource,
}

enum BindSource {
    Folder(OwnedFd),
    File(OwnedFd),
    Link(PathBuf),
    Text(String),
}

impl<'a> PreparedTree<'a> {
    /// Makes all parts. Must be called in the new mount namespace, by the first process of a process
    /// namespace. With `apart`, the mounts show that user as their owner, if all of them can.
    pub(crate) fn new(
        tree: &'a FileTree,
        apart: Option<(ProcessUser, &OwnedFd)>,
    ) -> Result<Self, TreeUnavailable> {
        let step = |step| move |error| TreeUnavailable { step, source: error };
        // Later mounts outside must not appear inside.
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        rustix::mount::mount_change("/", private)
            .map_err(|errno| step("part the mounts from those outside")(errno.into()))?;
        let proc = file_system("proc", &[], ATTRIBUTES | MountAttrFlags::MOUNT_ATTR_RDONLY | NO_PROGRAMS)
            .map_err(step("mount a /proc of its own"))?;
        let memory = |size, mode| {
            file_system("tmpfs", &[("size", size), ("nr_inodes", FILES), ("mode", mode)], ATTRIBUTES)
        };
        let root = memory(ROOT_SIZE, "0755").map_err(step("mount a root folder of its own"))?;
        let shm = memory(MEMORY_SIZE, "1777").map_err(step("mount a /dev/shm of its own"))?;
        let tmp = if tree.mounts.iter().any(|bind| bind.place == Path::new(TMP)) {
            None
        } else {
            Some(memory(MEMORY_SIZE, "1777").map_err(step("mount a /tmp of its own"))?)
        };
        let mut parts = Vec::new();
        let mut user = None;
        if let Some((other, map)) = apart
            && let Ok(mounts) = copies(&tree.mounts, Some(map))
        {
            (parts, user) = (mounts, Some(other));
        } else {
            parts.extend(copies(&tree.mounts, None).map_err(step("copy a mount"))?);
        }
        let places: Vec<&Path> = tree.system.iter().map(|bind| bind.place.as_path()).collect();
        let accounts = accounts(user.or(tree.user).unwrap_or_else(current_user), &tree.home);
        for bind in &tree.system {
            if accounts.iter().any(|(place, _)| bind.place == Path::new(place)) {
                continue;
            }
            let path = path(&bind.handle).map_err(step("name a system folder"))?;
            let is_below_another = path != bind.place && places.iter().any(|place| path.starts_with(place));
            let what = if is_below_another {
                BindSource::Link(path)
            } else {
                copy(bind, None).map_err(step("copy a system folder"))?
            };
            parts.push(TreePart { place: bind.place.clone(), what });
        }
        for (place, text) in accounts {
            parts.push(TreePart { place: place.into(), what: BindSource::Text(text) });
        }
        for (place, text) in &tree.files {
            parts.push(TreePart { place: place.clone(), what: BindSource::Text(text.clone()) });
        }
        Ok(Self { tree, parts, root, proc, shm, tmp, user })
    }

    /// Assembles the tree and enters it. There is no way back.
    pub(crate) fn enter(self) -> Result<BuiltTree, ConfineError> {
        let step = |step| move |source| ConfineError::NamespaceBroken { step, source };
        // Any path of the old tree will do, since it is left soon.
        move_to(&self.root, CWD, "/proc").map_err(step("attach the new root folder"))?;
        let root = self.root.as_fd();
        // Files in the tree must be readable for its user, which this process is not yet.
        let umask = rustix::process::umask(Mode::WGRP | Mode::WOTH);
        for TreePart { place, what } in &self.parts {
            place_at(root, place, what).map_err(step("put a folder in its place"))?;
        }
        for (place, mount) in
            [("/proc", Some(&self.proc)), ("/dev/shm", Some(&self.shm)), (TMP, self.tmp.as_ref())]
        {
            let Some(mount) = mount else { continue };
            make_folder(root, below(place)).map_err(step("make a folder"))?;
            move_to(mount, root, below(place)).map_err(step("put a file system in its place"))?;
        }
        for (link, target) in LINKS {
            rustix::fs::symlinkat(target, root, below(link))
                .map_err(|errno| step("make a link")(errno.into()))?;
        }
        mask(root).map_err(step("hide parts of /proc"))?;
        rustix::process::umask(umask);
        // Outer ones first: a later bind below one of them is then made inside it.
        for place in &self.tree.fixed {
            bind_onto_itself(root, place, MountAttrFlags::empty())
                .map_err(step("keep a folder in its place"))?;
        }
        let mut read_only = 0;
        for place in &self.tree.read_only {
            let protected = bind_onto_itself(root, place, MountAttrFlags::MOUNT_ATTR_RDONLY)
                .map_err(step("protect a path"))?;
            read_only += usize::from(protected);
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
        Ok(BuiltTree { paths, read_only, user: self.user })
    }

    fn pivot(&self) -> io::Result<()> {
        rustix::process::fchdir(&self.root)?;
        // `pivot_root(".", ".")` stacks the old root on the new one; unmounting detaches the old one.
        rustix::process::pivot_root(".", ".")?;
        rustix::mount::unmount(".", UnmountFlags::DETACH)?;
        rustix::process::chdir("/")?;
        // This mount only: the mounts below it have their final attributes already.
        sys::set_mount_attributes(
            self.root.as_fd(),
            attributes(MountAttrFlags::MOUNT_ATTR_RDONLY),
            sys::MountDepth::One,
        )
    }
}

/// Makes a new file system that is attached nowhere yet.
fn file_system(kind: &str, options: &[(&str, &str)], attributes: MountAttrFlags) -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        rustix::mount::fsconfig_set_string(context.as_fd(), *key, *value)?;
    }
    rustix::mount::fsconfig_create(context.as_fd())?;
    Ok(rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

fn copies(binds: &[Bind], map: Option<&OwnedFd>) -> io::Result<Vec<TreePart>> {
    binds.iter().map(|bind| Ok(TreePart { place: bind.place.clone(), what: copy(bind, map)? })).collect()
}

/// Copies what is bound, with its attributes, attached nowhere yet.
fn copy(bind: &Bind, map: Option<&OwnedFd>) -> io::Result<BindSource> {
    let here = open_here(&bind.handle)?;
    let is_folder = stat_kind(&here)? == rustix::fs::FileType::Directory;
    let mut wanted = MountAttrFlags::MOUNT_ATTR_NOSUID;
    if bind.access != PathAccess::Device {
        wanted |= MountAttrFlags::MOUNT_ATTR_NODEV;
    }
    if matches!(bind.access, PathAccess::List | PathAccess::Read) {
        wanted |= MountAttrFlags::MOUNT_ATTR_RDONLY;
    }
    let copy = copy_mount(here.as_fd(), wanted)?;
    if let Some(map) = map {
        apart::apply(&copy, map)?;
    }
    Ok(if is_folder { BindSource::Folder(copy) } else { BindSource::File(copy) })
}

fn copy_mount(what: BorrowedFd<'_>, wanted: MountAttrFlags) -> io::Result<OwnedFd> {
    // Recursive: only the process that mounted something below may copy without it.
    let how = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    let copy = rustix::mount::open_tree(what, "", how)?;
    sys::set_mount_attributes(copy.as_fd(), attributes(wanted), sys::MountDepth::All)?;
    Ok(copy)
}

/// Opens the same file in this mount namespace.
fn open_here(handle: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let here = rustix::fs::open(path(handle)?, flags, Mode::empty())?;
    let (is, was) = (rustix::fs::fstat(&here)?, rustix::fs::fstat(handle)?);
    if (is.st_dev, is.st_ino) != (was.st_dev, was.st_ino) {
        return Err(io::Error::other("something else has taken its place"));
    }
    Ok(here)
}

fn path(handle: &OwnedFd) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", handle.as_raw_fd()))
}

/// The texts of `/etc/passwd` and `/etc/group`.
fn accounts(user: ProcessUser, home: &Path) -> [(&'static str, String); 2] {
    let ProcessUser { uid, gid } = user;
    let home = home.display();
    // The session's line comes first: the first match counts, and another line may have the same user number.
    [
        (
            PASSWD,
            format!(
                "session:x:{uid}:{gid}:session:{home}:/bin/bash\nroot:x:0:0:root:/root:/bin/sh\n\
                 nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
            ),
        ),
        (GROUP, format!("session:x:{gid}:\nroot:x:0:\nnogroup:x:65534:\n")),
    ]
}

fn current_user() -> ProcessUser {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    ProcessUser { uid: uid.as_raw(), gid: gid.as_raw() }
}

fn stat_kind(handle: &OwnedFd) -> io::Result<rustix::fs::FileType> {
    Ok(rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(handle)?.st_mode))
}

fn place_at(root: BorrowedFd<'_>, place: &Path, what: &BindSource) -> io::Result<()> {
    let place = below(place);
    if let Some(folder) = place.parent() {
        make_folder(root, folder)?;
    }
    match what {
        BindSource::Link(target) => Ok(rustix::fs::symlinkat(target, root, place)?),
        BindSource::Folder(mount) => {
            make_folder(root, place)?;
            move_to(mount, root, place)
        }
        BindSource::File(mount) => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            rustix::fs::openat(root, place, flags, Mode::RUSR)?;
            move_to(mount, root, place)
        }
        BindSource::Text(text) => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            let readable = Mode::RUSR | Mode::RGRP | Mode::ROTH;
            File::from(rustix::fs::openat(root, place, flags, readable)?).write_all(text.as_bytes())
        }
    }
}

/// Makes a folder and the missing folders above it.
fn make_folder(root: BorrowedFd<'_>, place: &Path) -> io::Result<()> {
    let mut path = PathBuf::new();
    for component in place.components() {
        let Component::Normal(name) = component else {
            return Err(io::Error::other("a place in the tree is a list of plain names"));
        };
        path.push(name);
        match rustix::fs::mkdirat(root, &path, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

fn move_to(mount: &OwnedFd, folder: BorrowedFd<'_>, place: impl rustix::path::Arg) -> io::Result<()> {
    Ok(rustix::mount::move_mount(mount, "", folder, place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// Covers the parts of `/proc` that belong to the machine and not to processes. `/proc` as a whole is
/// read-only.
fn mask(root: BorrowedFd<'_>) -> io::Result<()> {
    let beneath = |path: &str, flags| {
        let how = OFlags::PATH | OFlags::CLOEXEC | flags;
        rustix::fs::openat2(root, path, how, Mode::empty(), ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS)
    };
    for name in MASKED {
        // Not every kernel has all of them.
        let Ok(place) = beneath(&format!("proc/{name}"), OFlags::empty()) else { continue };
        let cover = if stat_kind(&place)? == rustix::fs::FileType::Directory {
            let empty = MountAttrFlags::MOUNT_ATTR_RDONLY | NO_PROGRAMS | ATTRIBUTES;
            file_system("tmpfs", &[("size", "4k"), ("nr_inodes", "2"), ("mode", "0755")], empty)?
        } else {
            copy_mount(beneath("dev/null", OFlags::empty())?.as_fd(), MountAttrFlags::MOUNT_ATTR_NOSUID)?
        };
        move_onto(&cover, &place)?;
    }
    Ok(())
}

/// Binds a path below a mount onto itself, with these attributes: a mount point cannot be renamed or removed.
/// A path that does not exist is not made and not protected.
fn bind_onto_itself(root: BorrowedFd<'_>, place: &Path, wanted: MountAttrFlags) -> io::Result<bool> {
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let place = match rustix::fs::openat2(root, below(place), flags, Mode::empty(), how) {
        Ok(place) => place,
        // Gone since it was found, or replaced by a link: the scan for changes after a command reports that.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(false),
        Err(errno) => return Err(errno.into()),
    };
    move_onto(&copy_mount(place.as_fd(), wanted | ATTRIBUTES)?, &place)?;
    Ok(true)
}

fn move_onto(mount: &OwnedFd, place: &OwnedFd) -> io::Result<()> {
    let by_handles = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(rustix::mount::move_mount(mount, "", place, "", by_handles)?)
}

fn below<P: AsRef<Path> + ?Sized>(place: &P) -> &Path {
    let place = place.as_ref();
    place.strip_prefix("/").unwrap_or(place)
}

fn attributes(flags: MountAttrFlags) -> u64 {
    u64::from(flags.bits())
}

const ATTRIBUTES: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NODEV);
const NO_PROGRAMS: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOEXEC;

const TMP: &str = "/tmp";
const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";

/// The root file system: it holds folders, links and the files of [`FileTree::files`].
const ROOT_SIZE: &str = "2m";

/// For `/dev/shm`, and for `/tmp` where it is in memory. Limits of processes do not count this memory.
const MEMORY_SIZE: &str = "64m";

/// Files of each file system in memory.
const FILES: &str = "16384";

const LINKS: [(&str, &str); 4] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
];

/// The entries that container runtimes mask.
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
