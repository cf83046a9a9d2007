//! Records the changes that a guest makes in mounts with `undo`.
//!
//! The worker's thread is confined to the mounts and cannot write the record, so it asks this side of the
//! call and waits for the answer.

use std::{convert::Infallible, sync::Arc, sync::mpsc as blocking};

use portcullis_policy::{Grant, GrantedMount, MountName};
use portcullis_types::{Access, ChangeScope};
use portcullis_undo::{CallIdentity, ChangeRecorder, MountPath, MountRoot};
use tokio::sync::mpsc;

use super::CallAttempt;
use crate::{
    pipeline::Host,
    sandbox::{BeforeChangeFn, ChangeNotRecorded, GuestChangeScope},
    spawn::spawn_blocking,
};

/// The recorded changes of one call, and the worker's requests to record more.
#[derive(Debug)]
pub(super) struct ChangeRecording {
    recorder: Arc<ChangeRecorder>,
    requests: mpsc::UnboundedReceiver<SaveRequest>,
}

/// A path that a guest is waiting to change.
#[derive(Debug)]
struct SaveRequest {
    mount: String,
    path: MountPath,
    scope: OwnedScope,
    answer: blocking::SyncSender<Result<(), ChangeNotRecorded>>,
}

/// A [`ChangeScope`] that owns its paths.
type OwnedScope = ChangeScope<String, MountPath>;

/// `None` if no file can have the path.
fn to_owned_scope(scope: GuestChangeScope<'_>) -> Option<OwnedScope> {
    Some(match scope {
        ChangeScope::Path => OwnedScope::Path,
        ChangeScope::Tree => OwnedScope::Tree,
        ChangeScope::MovedHere { mount, from } => OwnedScope::MovedHere {
            mount: mount.to_owned(),
            from: MountPath::from_components(from.iter().copied())?,
        },
    })
}

fn as_scope(scope: &OwnedScope) -> ChangeScope<&str, &MountPath> {
    match scope {
        OwnedScope::Path => ChangeScope::Path,
        OwnedScope::Tree => ChangeScope::Tree,
        OwnedScope::MovedHere { mount, from } => ChangeScope::MovedHere { mount, from },
    }
}

/// Returns the mounts with `undo` that a call may write.
pub(super) fn written_with_undo<'g>(
    grant: &'g Grant,
    host: &'g Host,
) -> impl Iterator<Item = &'g GrantedMount> {
    let has_undo =
        |name: &MountName| host.policy.mounts().iter().any(|mount| mount.has_undo && mount.name == *name);
    grant.mounts.iter().filter(move |mount| mount.access == Access::Write && has_undo(&mount.name))
}

impl ChangeRecording {
    /// Creates both sides for a call. `None` if the call may not write to a mount with `undo`.
    pub(super) fn start(attempt: CallAttempt<'_>) -> Option<(BeforeChangeFn, Self)> {
        let CallAttempt { checked, grant, caller, host, .. } = attempt;
        let roots = written_with_undo(grant, host).filter_map(|mount| {
            let handle = host.mounts.get(mount.name.as_str())?;
            Some(MountRoot::new(mount.name.as_str(), Arc::clone(handle.directory())))
        });
        let roots: Vec<MountRoot> = roots.collect();
        if roots.is_empty() {
            return None;
        }
        let descriptor = CallIdentity {
            call: checked.call.id.clone(),
            run: caller.run_id.clone(),
            agent: caller.agent_id.clone(),
            tool: checked.call.tool.clone(),
        };
        let names: Vec<String> = roots.iter().map(|root| root.name().to_owned()).collect();
        let recorder = Arc::new(ChangeRecorder::new(host.undo.clone(), descriptor, roots));
        let (sender, requests) = mpsc::unbounded_channel();
        let before_change = BeforeChangeFn::new(move |mount, path, scope| {
            if !names.iter().any(|name| name == mount) {
                return Ok(());
            }
            let path = MountPath::from_components(path.iter().copied()).ok_or(ChangeNotRecorded)?;
            let scope = to_owned_scope(scope).ok_or(ChangeNotRecorded)?;
            let (answer, answered) = blocking::sync_channel(1);
            sender
                .send(SaveRequest { mount: mount.to_owned(), path, scope, answer })
                .map_err(|_gone| ChangeNotRecorded)?;
            // If the call ends meanwhile, the other side is dropped, which ends this wait.
            answered.recv().map_err(|_gone| ChangeNotRecorded)?
        });
        Some((before_change, Self { recorder, requests }))
    }

    /// Answers the worker's requests. The future never completes; the call drops it.
    pub(super) async fn serve(&mut self) -> Infallible {
        loop {
            let Some(request) = self.requests.recv().await else { std::future::pending().await };
            let recorder = Arc::clone(&self.recorder);
            let work = async move {
                let save_result =
                    recorder.save_before(&request.mount, &request.path, as_scope(&request.scope));
                let answer = save_result.map_err(|error| {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "a change was refused, because it could not be kept"
                    );
                    ChangeNotRecorded
                });
                // Dropping the last reference to the recorder records the end of the call. This thread must
                // not be the last owner, because the process may exit as soon as the worker has its answer.
                drop(recorder);
                // The send fails if the call has ended, and the worker with it.
                let _ = request.answer.send(answer);
            };
            if let Err(error) = spawn_blocking(work).await {
                tracing::error!(%error, "a change could not be kept");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use portcullis_undo::UndoStore;

    use super::*;

    #[test]
    fn the_call_owns_its_recorder_alone_after_the_answer() {
        let folder = tempfile::tempdir().expect("a folder");
        let mount = Arc::new(File::open(folder.path()).expect("opens").into());
        let descriptor =
            CallIdentity { call: "c".into(), run: "r".into(), agent: "a".into(), tool: "file_write".into() };
        let store = UndoStore::new(&folder.path().join("state"));
        let recorder = Arc::new(ChangeRecorder::new(store, descriptor, [MountRoot::new("m", mount)]));
        let (sender, requests) = mpsc::unbounded_channel();
        let owners = Arc::downgrade(&recorder);
        let mut change_recording = ChangeRecording { recorder, requests };
        let worker = std::thread::spawn(move || {
            for number in 0..200 {
                let (answer, answered) = blocking::sync_channel(1);
                let path = MountPath::from_components([format!("{number}").as_bytes()]).expect("a path");
                let request = SaveRequest { mount: "m".to_owned(), path, scope: OwnedScope::Path, answer };
                sender.send(request).expect("asked");
                answered.recv().expect("answered").expect("kept");
                assert_eq!(owners.strong_count(), 1, "question {number}");
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let served = runtime.block_on(async {
            tokio::select! {
                _never = change_recording.serve() => unreachable!("it never ends"),
                served = tokio::task::spawn_blocking(move || worker.join()) => served,
            }
        });
        served.expect("joined").expect("every answer came without another owner");
    }
}
