//! The labels of runs. They record which data the calls of a run have read so far, including running calls.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use parking_lot::Mutex;
use portcullis_policy::{
    Denial, DenialCode, FlowLabel, Grant, GrantedMount, GrantedSecret, RunContext, SecretName,
    WorkspaceSecurityPolicy,
};

use crate::{
    audit::SharedText,
    call::{Caller, Owner},
    sandbox::{MountRefusal, MountUse},
    shared_state::SharedState,
    shell::{NetworkedSession, NetworkedSessions, SidecarError, end_all, end_all_blocking},
};

/// The maximum number of runs that are remembered individually. A caller can invent a run for every call, and
/// each run takes a few hundred bytes.
const MAX_REMEMBERED_RUNS: usize = 16_384;

/// Collects labels per run.
#[derive(Debug, Default)]
pub(crate) struct RunLabels {
    /// Shared with the registry that this one replaced, and with the one that replaces it.
    remembered: SharedState<RememberedRuns>,
}

#[derive(Debug, Default)]
struct RememberedRuns {
    runs: HashMap<Owner, Arc<BTreeMap<FlowLabel, String>>>,
    /// The same runs, oldest first.
    order: VecDeque<Owner>,
    /// The labels of evicted runs. They apply to every run, because any run could be an evicted one.
    /// Otherwise a caller could escape a flow rule by starting many runs.
    forgotten_labels: BTreeMap<FlowLabel, String>,
    /// The calls in flight. The concurrency limit bounds their number. A label applies as soon as the data is
    /// read: a partial result or a concurrent call could pass the data on before the call ends.
    running: Vec<Arc<LabelledCall>>,
    /// The sessions that have a network.
    networked: NetworkedSessions,
}

/// A running call, with the data sources that it has read so far.
#[derive(Debug)]
struct LabelledCall {
    owner: Owner,
    call_id: String,
    mounts: Arc<[GrantedMount]>,
    mount_use: MountUse,
    web: AtomicBool,
    secrets: Arc<[GrantedSecret]>,
    sent_secrets: Mutex<BTreeSet<SecretName>>,
    /// The labels of the stored outputs that the call has read.
    from_stored_outputs: Mutex<BTreeSet<FlowLabel>>,
}

/// Records the reads of a running call. Dropping it adds the labels to the run, even if the caller has gone
/// away and the result is lost.
#[derive(Debug)]
pub(crate) struct LabelGuard {
    labels: Arc<RunLabels>,
    call: Arc<LabelledCall>,
}

impl RunLabels {
    /// Returns the context of the caller's run, with all its labels.
    pub(crate) fn context<'a>(&self, caller: &'a Caller) -> RunContext<'a> {
        self.context_with(caller, |_call, _label| true)
    }

    /// Returns the context of the caller's run, with those labels of running calls that `is_chosen` accepts.
    fn context_with<'a>(
        &self,
        caller: &'a Caller,
        is_chosen: impl Fn(&Arc<LabelledCall>, &FlowLabel) -> bool,
    ) -> RunContext<'a> {
        let owner = caller.owner();
        let shared = self.shared();
        let remembered = shared.lock();
        let mut labels = remembered.runs.get(&owner).cloned().unwrap_or_default();
        if !remembered.forgotten_labels.is_empty() {
            let mut all_labels = remembered.forgotten_labels.clone();
            all_labels.extend(labels.iter().map(|(label, call_id)| (label.clone(), call_id.clone())));
            labels = Arc::new(all_labels);
        }
        for call in remembered.running.iter().filter(|call| call.owner == owner) {
            for label in call.labels().filter(|label| is_chosen(call, label)) {
                // Copy the shared map only if a running call adds a label.
                if !labels.contains_key(&label) {
                    Arc::make_mut(&mut labels).insert(label, call.call_id.clone());
                }
            }
        }
        RunContext { agent: &caller.agent_id, run: &caller.run_id, labels }
    }

    /// Tracks a call that is about to run with this grant. If a flow rule keeps a mount from the network, the
    /// call's first use of that mount blocks until the run's sessions with a network have ended, at most
    /// until the deadline.
    pub(crate) fn track_call(
        self: &Arc<Self>,
        caller: &Caller,
        call_id: &str,
        grant: &Grant,
        policy: &Arc<WorkspaceSecurityPolicy>,
        deadline: Instant,
    ) -> LabelGuard {
        let owner = caller.owner();
        let label_of = |mount: &GrantedMount| FlowLabel::of_mount(&mount.name);
        let mut mount_use = MountUse::new(grant.mounts.len());
        if grant.mounts.iter().any(|mount| policy.restricts_network_after(&label_of(mount))) {
            let (labels, owner) = (Arc::clone(self), owner.clone());
            let (policy, mounts) = (Arc::clone(policy), Arc::clone(&grant.mounts));
            mount_use = mount_use.with_before_use(Arc::new(move |index| {
                let rule = mounts.get(index).and_then(|mount| policy.network_rule_after(&label_of(mount)));
                let Some(rule) = rule else { return Ok(()) };
                end_all_blocking(labels.networked_sessions(&owner), deadline)
                    .map_err(|error| mount_refusal(&rule, &error))
            }));
        }
        let call = Arc::new(LabelledCall {
            owner,
            call_id: call_id.to_owned(),
            mounts: Arc::clone(&grant.mounts),
            mount_use,
            web: AtomicBool::new(false),
            secrets: Arc::clone(&grant.secrets),
            sent_secrets: Mutex::default(),
            from_stored_outputs: Mutex::default(),
        });
        self.shared().lock().running.push(Arc::clone(&call));
        LabelGuard { labels: Arc::clone(self), call }
    }

    /// Adds the labels of a stored output to the call that is about to read it. If the policy keeps one of
    /// these labels from the network, ends the run's sessions with a network.
    ///
    /// # Errors
    /// A denial if the sessions of the run could not be ended.
    pub(crate) async fn add_stored_output_labels(
        &self,
        owner: &Owner,
        call_id: &str,
        labels: &BTreeSet<FlowLabel>,
        policy: &WorkspaceSecurityPolicy,
    ) -> Result<(), Denial> {
        self.add_to_running(owner, call_id, labels);
        self.withdraw_networks_after(labels.iter().cloned(), owner, call_id, policy).await
    }

    /// Ends a run's sessions with a network, if the policy keeps one of these labels from the network.
    async fn withdraw_networks_after(
        &self,
        mut labels: impl Iterator<Item = FlowLabel>,
        owner: &Owner,
        call_id: &str,
        policy: &WorkspaceSecurityPolicy,
    ) -> Result<(), Denial> {
        let Some(rule) = labels.find_map(|label| policy.network_rule_after(&label)) else { return Ok(()) };
        end_all(self.networked_sessions(owner)).await.map_err(|error| {
            let MountRefusal { rule, hint } = mount_refusal(&rule, &error);
            Denial { code: DenialCode::FlowDenied, rule, subject: call_id.to_owned(), hint }
        })
    }

    /// Adds labels to a running call, or to its run if there is no such call.
    fn add_to_running(&self, owner: &Owner, call_id: &str, labels: &BTreeSet<FlowLabel>) {
        let shared = self.shared();
        let mut remembered = shared.lock();
        let mut calls =
            remembered.running.iter().filter(|call| call.owner == *owner && call.call_id == call_id);
        let Some(first) = calls.next() else {
            let labels = labels.iter().map(|label| (label.clone(), call_id.to_owned()));
            remembered.add(owner, labels);
            return;
        };
        // A provider can reuse one id for several calls, so all calls with this id get the labels.
        for call in std::iter::once(first).chain(calls) {
            call.from_stored_outputs.lock().extend(labels.iter().cloned());
        }
    }

    /// Shares the memory of another registry from this call on, and merges its own memory into it.
    pub(crate) fn share_with(&self, other: &Self) {
        self.remembered.share_with(&other.remembered, RememberedRuns::take_over);
    }

    /// Adds labels to a run, each with the id of the call that read the data.
    pub(crate) fn add_labels(&self, owner: &Owner, labels: impl IntoIterator<Item = (FlowLabel, String)>) {
        self.shared().lock().add(owner, labels);
    }

    /// Forgets a run that has ended.
    pub(crate) fn end_run(&self, owner: &Owner) {
        let shared = self.shared();
        let mut remembered = shared.lock();
        if remembered.runs.remove(owner).is_some() {
            remembered.order.retain(|remembered_owner| remembered_owner != owner);
        }
    }

    /// Adds a session with a network to the list.
    pub(crate) fn add_networked_session(&self, session: NetworkedSession) {
        self.shared().lock().networked.add(session);
    }

    /// Removes a session that has ended from the list.
    pub(crate) fn remove_networked_session(&self, id: &str) {
        self.shared().lock().networked.remove(id);
    }

    fn networked_sessions(&self, owner: &Owner) -> Vec<NetworkedSession> {
        self.shared().lock().networked.owned_by(owner)
    }

    fn shared(&self) -> Arc<Mutex<RememberedRuns>> {
        self.remembered.current()
    }
}

impl RememberedRuns {
    /// Adds the labels of a finished call to its run.
    fn end(&mut self, call: &Arc<LabelledCall>) {
        self.running.retain(|running_call| !Arc::ptr_eq(running_call, call));
        // Fast path: most calls read nothing, or nothing new to the run.
        let run_labels = self.runs.get(&call.owner);
        if !call.labels().all(|label| run_labels.is_some_and(|run_labels| run_labels.contains_key(&label))) {
            self.add(&call.owner, call.labels().map(|label| (label, call.call_id.clone())));
        }
    }

    fn take_over(&mut self, other: Self) {
        let Self { mut runs, order, forgotten_labels: forgotten, running, networked } = other;
        // Preserve the order of age, so that the oldest runs are evicted first here too.
        for owner in order {
            let labels = runs.remove(&owner).unwrap_or_default();
            self.add(&owner, Arc::unwrap_or_clone(labels));
        }
        self.forgotten_labels.extend(forgotten);
        self.running.extend(running);
        self.networked.take_over(networked);
    }

    /// Adds labels to a run. A label keeps the id of the first call that added it.
    fn add(&mut self, owner: &Owner, labels: impl IntoIterator<Item = (FlowLabel, String)>) {
        let Self { runs, order, forgotten_labels: forgotten, .. } = self;
        let run_labels = runs.entry(owner.clone()).or_insert_with(|| {
            order.push_back(owner.clone());
            Arc::default()
        });
        let run_labels = Arc::make_mut(run_labels);
        for (label, call_id) in labels {
            run_labels.entry(label).or_insert(call_id);
        }
        if order.len() > MAX_REMEMBERED_RUNS
            && let Some(oldest) = order.pop_front()
        {
            forgotten.extend(runs.remove(&oldest).map(Arc::unwrap_or_clone).unwrap_or_default());
        }
    }
}

impl LabelledCall {
    /// Returns the call's labels: one for each mount that it has used, one for the network, one for each
    /// secret that its requests have carried, and the labels of the stored outputs that it has read.
    fn labels(&self) -> impl Iterator<Item = FlowLabel> {
        let mounts = self.mounts.iter().enumerate().filter(|(index, _)| self.mount_use.is_used(*index));
        // `Acquire` pairs with the `Release` in `mark_web_read`, which happens before the request.
        let web = self.web.load(Ordering::Acquire).then_some(FlowLabel::Web);
        let sent_secrets = self.sent_secrets.lock().clone().into_iter().map(FlowLabel::Secret);
        let from_stored_outputs = self.from_stored_outputs.lock().clone();
        mounts
            .map(|(_, mount)| FlowLabel::of_mount(&mount.name))
            .chain(web)
            .chain(sent_secrets)
            .chain(from_stored_outputs)
    }
}

/// Returns the refusal of a mount whose content could leave through a session that could not be ended.
fn mount_refusal(rule: &str, error: &SidecarError) -> MountRefusal {
    tracing::warn!(error = error as &dyn std::error::Error, rule, "a session with a network cannot be ended");
    MountRefusal {
        rule: rule.to_owned(),
        hint: "a shell session of this run has a network, and could not be ended before; call again"
            .to_owned(),
    }
}

impl LabelGuard {
    /// Returns the context of the caller's run, with the labels of all other calls.
    pub(crate) fn context_without_call<'a>(&self, caller: &'a Caller) -> RunContext<'a> {
        self.labels.context_with(caller, |call, _label| !Arc::ptr_eq(call, &self.call))
    }

    /// Returns the context of the caller's run without the labels of this call's own requests, because an
    /// approval covers all requests of a call.
    pub(crate) fn context_before_requests<'a>(&self, caller: &'a Caller) -> RunContext<'a> {
        self.labels.context_with(caller, |call, label| {
            !Arc::ptr_eq(call, &self.call) || !matches!(label, FlowLabel::Web | FlowLabel::Secret(_))
        })
    }

    /// Ends the run's sessions with a network, if the labels of this call's requests make the policy deny the
    /// network. Call this after setting the labels and before sending the request.
    ///
    /// # Errors
    /// The denial, if a session may still have a network.
    pub(crate) async fn withdraw_networks(&self, policy: &WorkspaceSecurityPolicy) -> Result<(), Denial> {
        let is_of_request = |label: &FlowLabel| matches!(label, FlowLabel::Web | FlowLabel::Secret(_));
        let labels = self.call.labels().filter(is_of_request);
        self.labels.withdraw_networks_after(labels, &self.call.owner, &self.call.call_id, policy).await
    }

    /// The flags of the grant's mounts. The guest sets a mount's flag when it uses the mount.
    pub(crate) fn mount_use(&self) -> &MountUse {
        &self.call.mount_use
    }

    /// Marks every mount as used, for a call whose accesses are not observed.
    pub(crate) fn mark_all_mounts_used(&self) {
        (0..self.call.mounts.len()).for_each(|index| self.call.mount_use.mark(index));
    }

    /// Marks the network as read. Call this before sending a request, so that the label
    /// precedes the response.
    pub(crate) fn mark_web_read(&self) {
        self.call.web.store(true, Ordering::Release);
    }

    /// Marks the secrets with these names as sent. Call this before sending a request that carries them.
    pub(crate) fn mark_secrets_sent(&self, names: &[SharedText]) {
        let is_sent = |secret: &&GrantedSecret| names.iter().any(|name| **name == *secret.name.as_str());
        let sent_secrets = self.call.secrets.iter().filter(is_sent).map(|secret| secret.name.clone());
        self.call.sent_secrets.lock().extend(sent_secrets);
    }
}

impl Drop for LabelGuard {
    fn drop(&mut self) {
        self.labels.shared().lock().end(&self.call);
    }
}

#[cfg(test)]
mod tests {
    use portcullis_policy::MountName;
    use portcullis_types::Access;

    use super::*;

    fn call(labels: &Arc<RunLabels>, caller: &Caller, id: &str, mounts: &[&str]) -> LabelGuard {
        let mounts = mounts
            .iter()
            .map(|name| GrantedMount { name: MountName::parse(name).expect("a name"), access: Access::Read });
        let call = Arc::new(LabelledCall {
            owner: caller.owner(),
            call_id: id.to_owned(),
            mount_use: MountUse::new(mounts.len()),
            mounts: mounts.collect(),
            web: AtomicBool::new(false),
            secrets: Arc::default(),
            sent_secrets: Mutex::default(),
            from_stored_outputs: Mutex::default(),
        });
        labels.shared().lock().running.push(Arc::clone(&call));
        LabelGuard { labels: Arc::clone(labels), call }
    }

    fn labels_of(labels: &RunLabels, run: &str) -> Vec<(String, String)> {
        let caller = Caller::new("a", run);
        let context = labels.context(&caller);
        context.labels.iter().map(|(label, call_id)| (label.to_string(), call_id.clone())).collect()
    }

    fn label(text: &str, call: &str) -> (String, String) {
        (text.to_owned(), call.to_owned())
    }

    #[test]
    fn each_run_has_its_own_labels_until_it_ends() {
        let labels = Arc::default();
        let run = Caller::new("a", "1");
        for id in ["c1", "c2"] {
            call(&labels, &run, id, &["vault"]).mark_all_mounts_used();
        }
        assert_eq!(labels_of(&labels, "1"), [label("vault", "c1")]);
        assert_eq!(labels_of(&labels, "2"), []);
        labels.end_run(&run.owner());
        assert_eq!(labels_of(&labels, "1"), []);
    }

    #[test]
    fn labels_from_another_process_hold_for_their_run() {
        let labels = RunLabels::default();
        let owner = Caller::new("a", "1").owner();
        labels.add_labels(&owner, [(FlowLabel::Vault, "c1".to_owned())]);
        assert_eq!(labels_of(&labels, "1"), [label("vault", "c1")]);
        assert_eq!(labels_of(&labels, "2"), []);
        // A label keeps the first call that added it.
        labels.add_labels(&owner, [(FlowLabel::Vault, "c2".to_owned())]);
        assert_eq!(labels_of(&labels, "1"), [label("vault", "c1")]);
    }

    #[test]
    fn a_running_call_adds_its_labels_before_it_ends() {
        let labels = Arc::default();
        let run = Caller::new("a", "1");
        let running_call = call(&labels, &run, "c1", &["tmp", "vault"]);
        assert_eq!(labels_of(&labels, "1"), []);
        running_call.mount_use().mark(1);
        assert_eq!(labels_of(&labels, "1"), [label("vault", "c1")]);
        assert_eq!(labels_of(&labels, "2"), []);
        // The run has ended, but its call is still running and reading.
        labels.end_run(&run.owner());
        running_call.mark_web_read();
        drop(running_call);
        assert_eq!(labels_of(&labels, "1"), [label("vault", "c1"), label("web", "c1")]);
        assert!(labels.shared().lock().running.is_empty());
    }

    #[test]
    fn a_stored_output_brings_its_labels_to_the_call_that_reads_it() {
        let labels = Arc::default();
        let run = Caller::new("a", "1");
        let reading_call = call(&labels, &run, "c1", &[]);
        labels.add_to_running(&run.owner(), "c1", &[FlowLabel::Vault].into());
        assert_eq!(labels_of(&labels, "1"), [label("vault", "c1")]);
        // The call continues after its run has ended. Its labels then apply to later calls of that run.
        labels.end_run(&run.owner());
        drop(reading_call);
        assert_eq!(labels_of(&labels, "1"), [label("vault", "c1")]);
        // No running call has this id, so the run itself gets the labels.
        labels.add_to_running(&Caller::new("a", "2").owner(), "c2", &[FlowLabel::Web].into());
        assert_eq!(labels_of(&labels, "2"), [label("web", "c2")]);
    }

    #[test]
    fn labels_outlast_the_registry_that_collects_them() {
        let (old_labels, new_labels) = (Arc::default(), Arc::new(RunLabels::default()));
        let (first_run, second_run) = (Caller::new("a", "1"), Caller::new("a", "2"));
        call(&old_labels, &first_run, "c1", &["vault"]).mark_all_mounts_used();
        let running_call = call(&old_labels, &second_run, "c2", &["vault"]);
        call(&new_labels, &second_run, "c3", &["tmp"]).mark_all_mounts_used();
        new_labels.share_with(&old_labels);
        new_labels.share_with(&old_labels);
        running_call.mark_all_mounts_used();
        assert_eq!(labels_of(&new_labels, "1"), [label("vault", "c1")]);
        assert_eq!(labels_of(&new_labels, "2"), [label("vault", "c2"), label("mount:tmp", "c3")]);
        drop(running_call);
        call(&old_labels, &first_run, "c4", &["tmp"]).mark_all_mounts_used();
        for labels in [&old_labels, &new_labels] {
            assert_eq!(labels_of(labels, "1"), [label("vault", "c1"), label("mount:tmp", "c4")]);
            assert_eq!(labels_of(labels, "2"), [label("vault", "c2"), label("mount:tmp", "c3")]);
        }
    }

    #[test]
    fn labels_of_a_forgotten_run_hold_for_all_runs() {
        let labels = Arc::default();
        call(&labels, &Caller::new("a", "first"), "c1", &["vault"]).mark_all_mounts_used();
        for number in 0..MAX_REMEMBERED_RUNS {
            call(&labels, &Caller::new("a", number.to_string()), "c2", &["tmp"]).mark_all_mounts_used();
        }
        assert!(labels_of(&labels, "first").contains(&label("vault", "c1")));
        assert!(labels_of(&labels, "another").contains(&label("vault", "c1")));
        let shared = labels.shared();
        let remembered = shared.lock();
        assert_eq!(
            (remembered.runs.len(), remembered.order.len()),
            (MAX_REMEMBERED_RUNS, MAX_REMEMBERED_RUNS)
        );
    }
}
