//! The results of judging a guest's path: proceed, an error number for the guest, or a violation of the call.

use crate::mount_use::MountRefusal;

/// An error number of WASI preview 1 (`wasi_snapshot_preview1.witx`, `$errno`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Errno(pub(super) i32);

impl Errno {
    pub(super) const SUCCESS: Self = Self(0);
    pub(super) const ACCES: Self = Self(2);
    pub(super) const AGAIN: Self = Self(6);
    pub(super) const BADF: Self = Self(8);
    pub(super) const FAULT: Self = Self(21);
    pub(super) const ILSEQ: Self = Self(25);
    pub(super) const INVAL: Self = Self(28);
    pub(super) const IO: Self = Self(29);
    pub(super) const LOOP: Self = Self(32);
    pub(super) const MFILE: Self = Self(33);
    pub(super) const NOENT: Self = Self(44);
    pub(super) const NOTDIR: Self = Self(54);
    pub(super) const PERM: Self = Self(63);
    pub(super) const XDEV: Self = Self(75);
}

/// A forbidden attempt of a guest; the first one decides the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// A path left its mount.
    Escape {
        /// The path as the guest would write it.
        path: String,
    },
    /// A protected path was to be written.
    Protected {
        /// The path as the guest would write it.
        path: String,
        /// The pattern that protects it.
        pattern: String,
    },
    /// A file of a protected kind was to be written, in a run where only a call whose arguments name it may.
    WithheldKind {
        /// The path as the guest would write it.
        path: String,
        /// The pattern of the kind.
        pattern: String,
    },
    /// A file with several names was to be changed in place.
    HardLink {
        /// The path as the guest would write it.
        path: String,
    },
    /// The host keeps a mount of the grant from the guest.
    Withheld {
        /// The mount as the guest would write it.
        path: String,
        /// The host's reason.
        refusal: MountRefusal,
    },
}

/// The result of judging a path: proceed with the stock function, or return an error number.
pub(super) type PathVerdict<T = ()> = Result<T, Errno>;

/// Splits a path into its parent and its last name; none if it does not end in a name.
pub(super) fn split(path: &str) -> Option<(&str, &str)> {
    let path = path.trim_end_matches('/');
    let (parent, name) = match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some((parent, name)) => (parent, name),
        None => (".", path),
    };
    (!matches!(name, "" | "." | "..")).then_some((parent, name))
}
