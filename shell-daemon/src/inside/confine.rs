//! How a session's first process confines itself, and its report.

use std::{error::Error, os::fd::OwnedFd, sync::Arc};

use portcullis_confine::{
    Bind, Canary, ConfineError, FileTree, Layer, LayerReport, LayerStatus, NamespacedProcess, Namespaces,
    PathRule, ProcessConfinement, ProcessPosture, Requirement, SingleThreaded, confine_current_process,
    probe_kernel,
};
use rustix::{
    fs::{Mode, OFlags},
    process::DumpableBehavior,
};

use crate::wire::{FromSession, LayerPlan, SessionReady, SessionSetup};

/// Confines the calling process as its setup says, and returns the answer. After a refusal the process must
/// end.
pub(super) fn confine(
    setup: &SessionSetup,
    handles: Vec<OwnedFd>,
    namespaces: Namespaces,
    group: LayerReport,
    one_thread: &SingleThreaded,
) -> FromSession {
    let LayerPlan::Layers { waived, .. } = &setup.plan else {
        let posture = ProcessPosture::new(Vec::new());
        return FromSession::Ready(SessionReady { posture, has_tree: false, protected: 0, user: None });
    };
    // The handles are closed at the end of this function: no command inherits one.
    let (canary, binds) = match parts(setup, handles) {
        Ok(parts) => parts,
        Err(error) => return refused(&*error, false),
    };
    let tree = FileTree {
        mounts: binds[..setup.mounts.len()].to_vec(),
        system: binds[setup.mounts.len()..].to_vec(),
        read_only: setup.protected.clone(),
        fixed: setup.fixed.clone(),
        home: binds.get(setup.home).map_or_else(|| "/".into(), |bind| bind.place.clone()),
        user: setup.user,
    };
    let mut inside = match namespaces.enter(one_thread, &canary, &tree) {
        Ok(inside) => inside,
        Err(error) => return refused(&error, true),
    };
    inside.reports.push(group);
    match apply(setup, waived, canary, binds, inside, one_thread) {
        Ok(ready) => FromSession::Ready(ready),
        Err(error) => refused(&*error, false),
    }
}

/// A refusal with all causes.
pub(super) fn refused(error: &dyn Error, by_namespaces: bool) -> FromSession {
    FromSession::Refused { reason: portcullis_types::chain(error), by_namespaces }
}

fn parts(setup: &SessionSetup, handles: Vec<OwnedFd>) -> Result<(Canary, Vec<Bind>), Box<dyn Error>> {
    let mut handles = handles.into_iter().map(Arc::new);
    let root = rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let canary =
        Canary::from_state_dir(handles.next().ok_or("the canary is missing")?).with_root(root.into());
    let binds: Vec<Bind> = handles
        .zip(&setup.paths)
        .map(|(handle, path)| Bind { handle, place: path.place.clone(), access: path.access })
        .collect();
    if binds.len() != setup.paths.len() || setup.mounts.len() > binds.len() {
        return Err("a path is missing".into());
    }
    Ok((canary, binds))
}

/// Applies the layers other than namespaces, and returns the whole posture.
fn apply(
    setup: &SessionSetup,
    waived: &[Layer],
    canary: Canary,
    binds: Vec<Bind>,
    inside: NamespacedProcess,
    one_thread: &SingleThreaded,
) -> Result<SessionReady, Box<dyn Error>> {
    let NamespacedProcess { reports: before, tree, has_own_users } = inside;
    let kernel = probe_kernel();
    let missing: Vec<LayerReport> = [Layer::Landlock, Layer::Seccomp]
        .into_iter()
        .filter(|layer| !waived.contains(layer))
        .filter_map(|layer| {
            let status = LayerStatus::Missing { reason: kernel.missing(layer)?.to_owned() };
            Some(LayerReport { layer, status, evidence: Vec::new() })
        })
        .collect();
    let requirement = |layer| {
        let is_missing = missing.iter().any(|report| report.layer == layer);
        if is_missing || waived.contains(&layer) { Requirement::Waived } else { Requirement::Required }
    };
    let (has_tree, protected) = (tree.is_some(), tree.as_ref().map_or(0, |tree| tree.read_only));
    let own_user = tree.as_ref().and_then(|tree| tree.user);
    let user = own_user.or(setup.user);
    let mut limits = setup.limits;
    if own_user.is_none() && !has_own_users {
        // The kernel would also count processes that the user has elsewhere. The watch has to suffice.
        limits.processes = None;
    }
    // A Landlock rule belongs to the file, not to its path: it holds wherever the file is bound.
    let mut paths: Vec<PathRule> =
        binds.into_iter().map(|bind| PathRule { handle: bind.handle, access: bind.access }).collect();
    paths.extend(tree.into_iter().flat_map(|tree| tree.paths));
    let rules = ProcessConfinement {
        landlock: requirement(Layer::Landlock),
        seccomp: requirement(Layer::Seccomp),
        user,
        paths,
        limits,
        canary,
    };
    let posture = confine_current_process(one_thread, &rules)?;
    hide_memory()
        .map_err(|source| ConfineError::NamespaceBroken { step: "hide this process's memory", source })?;
    let mut layers = Vec::new();
    for report in posture.layers() {
        if report.layer == Layer::Landlock {
            layers.extend(before.iter().cloned());
        }
        let missing = missing.iter().find(|missing| missing.layer == report.layer);
        layers.push(missing.unwrap_or(report).clone());
    }
    Ok(SessionReady { posture: ProcessPosture::new(layers), has_tree, protected, user })
}

/// Hides this process and its forks from commands, which have the same user and the same Landlock domain:
/// they cannot use `/proc/PID/{mem,fd,environ}`. Bash is another program, so it is not hidden.
fn hide_memory() -> std::io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
