//! The accounts that a file tree shows: its `/etc/passwd` and `/etc/group`.

use std::path::Path;

use crate::ProcessUser;

pub(super) const PASSWD: &str = "/etc/passwd";
pub(super) const GROUP: &str = "/etc/group";

/// Returns the texts of `/etc/passwd` and `/etc/group`.
pub(super) fn account_files(user: ProcessUser, home: &Path) -> [(&'static str, String); 2] {
    let ProcessUser { uid, gid } = user;
    let home = home.display();
    // The session's line comes first: the first match wins, and another line may have the same user id.
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

pub(super) fn current_user() -> ProcessUser {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    ProcessUser { uid: uid.as_raw(), gid: gid.as_raw() }
}
