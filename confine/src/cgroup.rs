//! The control group of a session, where one can be created. It limits all processes of the session together.
//!
//! Uses only cgroup v2, and creates groups only below this process's group or beside it. The operator who
//! starts the sidecar therefore decides where it may create groups. Few machines let an ordinary user create
//! groups without preparation, so no posture requires this layer.

use std::{
    fs, io,
    io::Write as _,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use rustix::{io::Errno, process::Pid};

use crate::{
    Evidence, GroupLimits, Layer, LayerReport, LayerStatus, SingleThreaded, SyscallOutcome,
    process::try_start_process,
};

/// A control group. Dropping it kills all processes that are left in the group, and removes the group.
#[derive(Debug)]
pub struct ControlGroup {
    folder: PathBuf,
    limits: GroupLimits,
    /// The files of the limits that could not be set.
    missing_limits: Vec<String>,
}

/// The reason why no control group can be made here. Its text has the remedy, in words for an operator.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CgroupError {
    /// The groups of this process cannot be read.
    #[error("no cgroup v2 was found ({0}): {ADVICE}")]
    Unreadable(io::Error),
    /// This process is in no group of cgroup v2.
    #[error("this process is in no group of cgroup v2: {ADVICE}")]
    NoGroup,
    /// A controller that a group needs is not bound to cgroup v2.
    #[error("cgroup v2 lacks the controller memory or pids here: {ADVICE}")]
    NoController,
    /// The controllers cannot be turned on below the group of this process.
    #[error("cgroups below this process's own cannot be limited: {ADVICE}")]
    NotLimitable,
    /// The kernel refused the group.
    #[error("no group can be created ({0}): {ADVICE}")]
    Refused(io::Error),
    /// The kernel refused a limit of the group.
    #[error("{file} cannot be set ({error})")]
    Limit {
        /// The file of the limit.
        file: &'static str,
        /// The kernel's error.
        error: io::Error,
    },
}

impl ControlGroup {
    /// Creates an empty group with these limits.
    ///
    /// # Errors
    /// [`CgroupError`], for the first of the groups in which the group could be made.
    pub fn create(limits: GroupLimits) -> Result<Self, CgroupError> {
        let parents = parent_groups().map_err(CgroupError::Unreadable)?;
        let mut reason = None;
        for parent in parents {
            match Self::create_in(&parent, limits) {
                Ok(group) => return Ok(group),
                Err(error) => reason = reason.or(Some(error)),
            }
        }
        Err(reason.unwrap_or(CgroupError::NoGroup))
    }

    fn create_in(parent: &Path, limits: GroupLimits) -> Result<Self, CgroupError> {
        let has_controllers = |file: &str| {
            let text = fs::read_to_string(parent.join(file)).unwrap_or_default();
            REQUIRED.iter().all(|controller| text.split_ascii_whitespace().any(|word| word == *controller))
        };
        if !has_controllers("cgroup.controllers") {
            return Err(CgroupError::NoController);
        }
        for controller in REQUIRED.into_iter().chain(["cpu"]) {
            // An error is ignored, because the controller may be enabled already. The check below reads the
            // result.
            let _ = write(&parent.join("cgroup.subtree_control"), &format!("+{controller}"));
        }
        if !has_controllers("cgroup.subtree_control") {
            return Err(CgroupError::NotLimitable);
        }
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = parent.join(format!("portcullis-{}-{number}", rustix::process::getpid().as_raw_pid()));
        fs::create_dir(&folder).map_err(CgroupError::Refused)?;
        let mut group = Self { folder, limits, missing_limits: Vec::new() };
        for (file, value) in [("memory.max", limits.memory_bytes), ("pids.max", limits.processes)] {
            group
                .write_value(file, &value.to_string())
                .map_err(|error| CgroupError::Limit { file, error })?;
        }
        let optional = [
            // Without this limit a process would use swap beyond `memory.max`.
            ("memory.swap.max", Some("0".to_owned())),
            // Quota and period in microseconds: 1,000 µs of 100 ms are one percent.
            ("cpu.max", limits.cpu_percent.map(|percent| format!("{} 100000", u64::from(percent) * 1000))),
        ];
        for (file, value) in optional {
            if let Some(value) = value
                && group.write_value(file, &value).is_err()
            {
                group.missing_limits.push(file.to_owned());
            }
        }
        Ok(group)
    }

    /// Moves a process into the group. The process's later children start in the group.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn add(&self, process: Pid) -> io::Result<()> {
        self.write_value("cgroup.procs", &process.as_raw_pid().to_string())
    }

    /// Returns the handle and values that a process of the group needs for [`prove_group`].
    ///
    /// # Errors
    /// The system's error if the handle cannot be opened.
    pub fn proof_material(&self) -> io::Result<(OwnedFd, GroupProof)> {
        let handle = fs::OpenOptions::new().write(true).open(self.folder.join("pids.max"))?;
        Ok((
            handle.into(),
            GroupProof { processes: self.limits.processes, missing: self.missing_limits.clone() },
        ))
    }

    fn write_value(&self, file: &str, value: &str) -> io::Result<()> {
        write(&self.folder.join(file), value)
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // The end of the session has killed all processes that it found. This kills any that it missed.
        let _ = self.write_value("cgroup.kill", "1");
        for _ in 0..REMOVAL_ATTEMPTS {
            match rustix::fs::rmdir(&self.folder) {
                // The group stays busy until its last killed process has exited.
                Err(Errno::BUSY) => std::thread::sleep(Duration::from_millis(1)),
                _ => return,
            }
        }
    }
}

/// The values that a proof needs, in a serializable form.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GroupProof {
    processes: u64,
    missing: Vec<String>,
}

/// Proves the group of the calling process: while the limit is 0, no process can be started. A group that
/// does not hold is reported as missing. That is not an error, because no posture requires this layer.
#[must_use]
pub fn prove_group(one_thread: &SingleThreaded, limit_file: OwnedFd, proof: GroupProof) -> LayerReport {
    let mut limit_file = fs::File::from(limit_file);
    let before = try_start_process(one_thread);
    let lowered = limit_file.write_all(b"0");
    let after = try_start_process(one_thread);
    // Restore the limit in any case: with 0, the session could never start a process.
    let restored = limit_file.write_all(proof.processes.to_string().as_bytes());
    let problem = match (lowered, restored) {
        (Err(error), _) | (_, Err(error)) => Some(format!("its bound cannot be changed ({error})")),
        _ if before != SyscallOutcome::Succeeded || after != SyscallOutcome::Failed(libc::EAGAIN) => {
            Some(format!("it does not hold: to {START_PROBE} was {before} before and {after} after"))
        }
        _ => None,
    };
    if let Some(reason) = problem {
        let status = LayerStatus::Missing { reason };
        return LayerReport { layer: Layer::Cgroup, status, evidence: Vec::new() };
    }
    let status = if proof.missing.is_empty() {
        LayerStatus::Enforced
    } else {
        LayerStatus::Partial { missing: proof.missing }
    };
    let evidence = Evidence { layer: Layer::Cgroup, probe: START_PROBE.into(), before, after };
    LayerReport { layer: Layer::Cgroup, status, evidence: vec![evidence] }
}

/// Returns the groups in which a session's group may be created: this process's own group, and its parent.
/// The parent matters because only a group without processes can have limited groups below it. A sidecar
/// therefore often runs in a subgroup of the group that was delegated to it.
fn parent_groups() -> io::Result<Vec<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    Ok(candidate_parents(&mounts, &groups))
}

fn candidate_parents(mounts: &str, groups: &str) -> Vec<PathBuf> {
    // proc_pid_mountinfo(5): the fifth field is the mount point, and the type follows the separator ` - `.
    let mount = mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        (after.split(' ').next() == Some("cgroup2")).then(|| before.split(' ').nth(4))?
    });
    let own_group = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    let (Some(mount), Some(own_group)) = (mount, own_group) else { return Vec::new() };
    // A group outside the mounted part of the hierarchy is out of reach.
    if own_group.split('/').any(|part| part == "..") {
        return Vec::new();
    }
    let mut parents = vec![Path::new(mount).join(own_group)];
    if !own_group.is_empty() {
        parents.extend(parents[0].parent().map(Path::to_owned));
    }
    parents
}

fn write(path: &Path, value: &str) -> io::Result<()> {
    fs::OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())
}

const REQUIRED: [&str; 2] = ["memory", "pids"];

const ADVICE: &str = "run it as a service of systemd with Delegate=yes and DelegateSubgroup=daemon, or in a \
                      container with a writable /sys/fs/cgroup of its own, on a machine whose controllers are \
                      not bound to cgroup v1 (boot with systemd.unified_cgroup_hierarchy=1)";

const START_PROBE: &str = "start a process where the group may have none";

const REMOVAL_ATTEMPTS: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: GroupLimits = GroupLimits { memory_bytes: 1 << 30, processes: 64, cpu_percent: Some(150) };

    /// Creates a folder that looks like a group, without the kernel's behaviour.
    fn group(controllers: &str, subtree: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cgroup.controllers"), controllers).unwrap();
        fs::write(folder.path().join("cgroup.subtree_control"), subtree).unwrap();
        folder
    }

    #[test]
    fn without_controllers_the_reason_names_the_remedy() {
        for (controllers, subtree) in [("", ""), ("cpu io", ""), ("memory", "memory")] {
            let folder = group(controllers, subtree);
            let error = ControlGroup::create_in(folder.path(), LIMITS).unwrap_err();
            assert!(error.to_string().contains("Delegate=yes"), "{error}");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing was made");
        }
        // Every machine gives either a group or a reason.
        if let Err(error) = ControlGroup::create(LIMITS) {
            assert!(error.to_string().contains("Delegate=yes"), "{error}");
        }
    }

    #[test]
    fn a_group_whose_bounds_cannot_be_set_is_not_used() {
        // A plain folder has no limit files, like a kernel without the controllers.
        let folder = group("cpu memory pids", "cpu memory pids");
        // Read-only, because a write replaces the text here while the kernel would add to it.
        fs::set_permissions(
            folder.path().join("cgroup.subtree_control"),
            std::os::unix::fs::PermissionsExt::from_mode(0o444),
        )
        .unwrap();
        let result = ControlGroup::create_in(folder.path(), LIMITS);
        assert!(result.is_err(), "{result:?}");
    }

    #[test]
    fn a_group_is_looked_for_where_this_process_is_and_above() {
        let mounts = "25 1 0:22 / /proc rw - proc proc rw\n\
                      30 25 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
        #[track_caller]
        fn check(mounts: &str, groups: &str, expected: &[&str]) {
            assert_eq!(
                candidate_parents(mounts, groups),
                expected.iter().map(PathBuf::from).collect::<Vec<_>>()
            );
        }
        check(mounts, "0::/\n", &["/sys/fs/cgroup/"]);
        check(mounts, "1:cpu:/x\n0::/a/b\n", &["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a"]);
        check(mounts, "0::/../x\n", &[]);
        check(mounts, "1:cpu:/x\n", &[]);
        check("", "0::/a\n", &[]);
    }
}
