//! The verdicts on a guest's path: proceed, return an error number to the guest, or record a violation of the call.

use crate::mount_use::MountRefusal;

/// An error number of WASI preview 1 (`wasi_snapshot_preview1.witx`, `$errno`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Errno(pub(super) i32);

impl Errno {
    pub(super) const SUCCESS: Self = Self(0);
    pub(super) const ACCES: Self = Self(2);
    pub(super) const AGAIN: Self = Self(6);
    pub(super) const BADF: Self = Self(8);
    pub(super) const BUSY: Self = Self(10);
    pub(super) const FAULT: Self = Self(21);
    pub(super) const ILSEQ: Self = Self(25);
    pub(super) const INVAL: Self = Self(28);
    pub(super) const IO: Self = Self(29);
    pub(super) const LOOP: Self = Self(32);
    pub(super) const MFILE: Self = Self(33);
    pub(super) const NOENT: Self = Self(44);
    pub(super) const NOLCK: Self = Self(46);
    pub(super) const NOTDIR: Self = Self(54);
    pub(super) const PERM: Self = Self(63);
    pub(super) const XDEV: Self = Self(75);
}

/// A forbidden attempt of a guest. The first one decides the outcome of the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// A path left its mount.
    Escape {
        /// The path in the form that the guest uses.
        path: String,
    },
    /// The guest tried to write a protected path.
    Protected {
        /// The path in the form that the guest uses.
        path: String,
        /// The pattern that protects it.
        pattern: String,
    },
    /// The guest tried to create, change or remove a hidden name.
    Hidden {
        /// The path in the form that the guest uses.
        path: String,
        /// The pattern that hides it.
        pattern: String,
    },
    /// The guest tried to write a file of a protected kind, in a run in which only a call that names the
    /// file in its arguments may write it.
    WithheldKind {
        /// The path in the form that the guest uses.
        path: String,
        /// The pattern of the kind.
        pattern: String,
    },
    /// The guest tried to change a file with several names in place.
    HardLink {
        /// The path in the form that the guest uses.
        path: String,
    },
    /// The host could not save the state of a path before the guest changed it, so the change was refused.
    NotRecorded {
        /// The path in the form that the guest uses.
        path: String,
    },
    /// The host withholds a mount of the grant from the guest.
    Withheld {
        /// The mount in the form that the guest uses.
        path: String,
        /// The host's reason.
        refusal: MountRefusal,
    },
}

/// The verdict on a path: proceed with the stock function, or return an error number.
pub(super) type FsResult<T = ()> = Result<T, Errno>;

/// Splits a path into its parent and its last name. Returns `None` if the path does not end in a name.
pub(super) fn split(path: &str) -> Option<(&str, &str)> {
    let path = path.trim_end_matches('/');
    let (parent, name) = match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some((parent, name)) => (parent, name),
        None => (".", path),
    };
    (!matches!(name, "" | "." | "..")).then_some((parent, name))
}
