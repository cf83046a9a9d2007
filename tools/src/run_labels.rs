//! The labels of runs. A label says what the run's calls have read so far, running calls included.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use portcullis_policy::{
    Denial, DenialCode, FlowLabel, Grant, GrantedMount, GrantedSecret, RunFacts, SecretName,
    WorkspaceSecurityPolicy,
};

use crate::{
    audit::Text,
    call::{Caller, Owner},
    sandbox::{MountRefusal, MountUse},
    shell::{NetworkedSession, NetworkedSessions, SidecarError, end_all, end_all_blocking},
};

/// The most runs that are remembered individually. A caller could invent a run for every call; each takes
/// some hundred bytes.
const MAX_REMEMBERED_RUNS: usize = 16_384;

/// Collects labels per run.
#[derive(Debug, Default)]
pub(crate) struct RunLabels {
    /// Shared with the registries before and after this one.
    remembered: Mutex<Arc<Mutex<RememberedRuns>>>,
}

#[derive(Debug, Default)]
struct RememberedRuns {
    runs: HashMap<Owner, Arc<BTreeMap<FlowLabel, String>>>,
    /// The same runs, the oldest first.
    order: VecDeque<Owner>,
    /// The labels of forgotten runs. They hold for every run, since any run could be a forgotten one, and
    /// beginning many runs must not end a rule.
    forgotten: BTreeMap<FlowLabel, String>,
    /// The running calls, at most as many as may run at once. A label holds from the moment of the read: a
    /// partial result, or a call that runs at the same time, could carry the data on before the call ends.
    under_way: Vec<Arc<CallUnderWay>>,
    /// The sessions that have a network.
    networked: NetworkedSessions,
}

/// The reads of a running call so far.
#[derive(Debug)]
struct CallUnderWay {
    owner: Owner,
    call_id: String,
    mounts: Arc<[GrantedMount]>,
    used: MountUse,
    web: AtomicBool,
    secrets: Arc<[GrantedSecret]>,
    carried: Mutex<BTreeSet<SecretName>>,
    /// The labels of a stored output that it has read.
    brought: Mutex<BTreeSet<FlowLabel>>,
}

/// Marks the reads of a running call. Dropping it adds the labels to the run, also if the caller has left and
/// the result is lost.
#[derive(Debug)]
pub(crate) struct RunningCallLabels {
    labels: Arc<RunLabels>,
    call: Arc<CallUnderWay>,
}

impl RunLabels {
    /// The caller's run with its labels.
    pub(crate) fn facts<'a>(&self, caller: &'a Caller) -> RunFacts<'a> {
        self.facts_with(caller, |_call, _label| true)
    }

    /// The caller's run, with the chosen labels of running calls.
    fn facts_with<'a>(
        &self,
        caller: &'a Caller,
        is_chosen: impl Fn(&Arc<CallUnderWay>, &FlowLabel) -> bool,
    ) -> RunFacts<'a> {
        let owner = caller.owner();
        let shared = self.shared();
        let remembered = lock(&shared);
        let mut labels = remembered.runs.get(&owner).cloned().unwrap_or_default();
        if !remembered.forgotten.is_empty() {
            let mut all = remembered.forgotten.clone();
            all.extend(labels.iter().map(|(label, call_id)| (label.clone(), call_id.clone())));
            labels = Arc::new(all);
        }
        for call in remembered.under_way.iter().filter(|call| call.owner == owner) {
            for label in call.labels().filter(|label| is_chosen(call, label)) {
                if !labels.contains_key(&label) {
                    Arc::make_mut(&mut labels).insert(label, call.call_id.clone());
                }
            }
        }
        RunFacts { agent: &caller.agent_id, run: &caller.run_id, labels }
    }

    /// Follows a call that is about to run with this grant. Before the call uses a mount that a flow rule keeps from the
    /// network, the sessions of its run that have a network are ended. The deadline bounds the wait for their end.
    pub(crate) fn follow(
        self: &Arc<Self>,
        caller: &Caller,
        call_id: &str,
        grant: &Grant,
        (policy, deadline): (&WorkspaceSecurityPolicy, Instant),
    ) -> RunningCallLabels {
        let rules =
            grant.mounts.iter().map(|mount| policy.network_rule_after(&FlowLabel::of_mount(&mount.name)));
        let rules: Vec<Option<String>> = rules.collect();
        let mut used = MountUse::of(grant.mounts.len());
        if rules.iter().any(Option::is_some) {
            let (labels, owner) = (Arc::clone(self), caller.owner());
            used = used.asking(Arc::new(move |index| match rules.get(index) {
                Some(Some(rule)) => end_all_blocking(labels.networked_of(&owner), deadline)
                    .map_err(|error| not_ended(rule, &error)),
                _ => Ok(()),
            }));
        }
        let call = Arc::new(CallUnderWay {
            owner: caller.owner(),
            call_id: call_id.to_owned(),
            mounts: Arc::clone(&grant.mounts),
            used,
            web: AtomicBool::new(false),
            secrets: Arc::clone(&grant.secrets),
            carried: Mutex::default(),
            brought: Mutex::default(),
        });
        lock(&self.shared()).under_way.push(Arc::clone(&call));
        RunningCallLabels { labels: Arc::clone(self), call }
    }

    /// Adds the labels of a stored output to the call that is about to read it, and ends its run's sessions with a network
    /// where the policy keeps one of the labels from the network.
    ///
    /// # Errors
    /// The denial of a call whose run's sessions could not be ended.
    pub(crate) async fn bring(
        &self,
        owner: &Owner,
        call_id: &str,
        labels: &BTreeSet<FlowLabel>,
        policy: &WorkspaceSecurityPolicy,
    ) -> Result<(), Denial> {
        self.add_brought(owner, call_id, labels);
        self.withdraw_networks_after(labels.iter().cloned(), owner, call_id, policy).await
    }

    /// Ends a run's sessions with a network, where the policy keeps one of these labels from the network.
    async fn withdraw_networks_after(
        &self,
        mut labels: impl Iterator<Item = FlowLabel>,
        owner: &Owner,
        call_id: &str,
        policy: &WorkspaceSecurityPolicy,
    ) -> Result<(), Denial> {
        let Some(rule) = labels.find_map(|label| policy.network_rule_after(&label)) else { return Ok(()) };
        end_all(self.networked_of(owner)).await.map_err(|error| {
            let MountRefusal { rule, hint } = not_ended(&rule, &error);
            Denial { code: DenialCode::FlowDenied, rule, subject: call_id.to_owned(), hint }
        })
    }

    /// Adds labels to a call under way, or to its run where no such call is known.
    fn add_brought(&self, owner: &Owner, call_id: &str, labels: &BTreeSet<FlowLabel>) {
        let shared = self.shared();
        let mut remembered = lock(&shared);
        let mut reads = remembered.under_way.iter().filter(|it| it.owner == *owner && it.call_id == call_id);
        let Some(first) = reads.next() else {
            let labels = labels.iter().map(|label| (label.clone(), call_id.to_owned()));
            remembered.add(owner, labels);
            return;
        };
        // A provider may use an id twice; then each of its calls counts.
        for call in std::iter::once(first).chain(reads) {
            lock(&call.brought).extend(labels.iter().cloned());
        }
    }

    /// Remembers what others remember, from now on together with them, and keeps its own.
    pub(crate) fn share_with(&self, others: &Self) {
        let theirs = others.shared();
        let mine = std::mem::replace(&mut *lock(&self.remembered), Arc::clone(&theirs));
        if !Arc::ptr_eq(&mine, &theirs) {
            let mine = std::mem::take(&mut *lock(&mine));
            lock(&theirs).take_over(mine);
        }
    }

    /// Forgets one run that has ended.
    pub(crate) fn end_run(&self, owner: &Owner) {
        let shared = self.shared();
        let mut remembered = lock(&shared);
        if remembered.runs.remove(owner).is_some() {
            remembered.order.retain(|other| other != owner);
        }
    }

    /// Lists a session that has a network.
    pub(crate) fn add_networked(&self, session: NetworkedSession) {
        lock(&self.shared()).networked.add(session);
    }

    /// Takes a session from the list, which has ended.
    pub(crate) fn forget_networked(&self, id: &str) {
        lock(&self.shared()).networked.remove(id);
    }

    fn networked_of(&self, owner: &Owner) -> Vec<NetworkedSession> {
        lock(&self.shared()).networked.of(owner)
    }

    fn shared(&self) -> Arc<Mutex<RememberedRuns>> {
        Arc::clone(&lock(&self.remembered))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RememberedRuns {
    /// Adds the reads of a call to its run.
    fn end(&mut self, call: &Arc<CallUnderWay>) {
        self.under_way.retain(|other| !Arc::ptr_eq(other, call));
        // The usual case: most calls of a run read nothing, or only what earlier calls have read.
        let own = self.runs.get(&call.owner);
        if !call.labels().all(|label| own.is_some_and(|own| own.contains_key(&label))) {
            self.add(&call.owner, call.labels().map(|label| (label, call.call_id.clone())));
        }
    }

    fn take_over(&mut self, others: Self) {
        let Self { mut runs, order, forgotten, under_way, networked } = others;
        for owner in order {
            let labels = runs.remove(&owner).unwrap_or_default();
            self.add(&owner, Arc::unwrap_or_clone(labels));
        }
        self.forgotten.extend(forgotten);
        self.under_way.extend(under_way);
        self.networked.take_over(networked);
    }

    /// Adds labels to a run. A label keeps the first call that brought it.
    fn add(&mut self, owner: &Owner, labels: impl IntoIterator<Item = (FlowLabel, String)>) {
        let Self { runs, order, forgotten, .. } = self;
        let own = runs.entry(owner.clone()).or_insert_with(|| {
            order.push_back(owner.clone());
            Arc::default()
        });
        let own = Arc::make_mut(own);
        for (label, call_id) in labels {
            own.entry(label).or_insert(call_id);
        }
        if order.len() > MAX_REMEMBERED_RUNS
            && let Some(oldest) = order.pop_front()
        {
            forgotten.extend(runs.remove(&oldest).map(Arc::unwrap_or_clone).unwrap_or_default());
        }
    }
}

impl CallUnderWay {
    /// One label for each mount that the call has used, one for the network, one for each secret that its requests have
    /// carried, and those of a stored output that it has read.
    fn labels(&self) -> impl Iterator<Item = FlowLabel> {
        let mounts = self.mounts.iter().enumerate().filter(|(index, _)| self.used.is_used(*index));
        let web = self.web.load(Ordering::Acquire).then_some(FlowLabel::Web);
        let carried = lock(&self.carried).clone().into_iter().map(FlowLabel::Secret);
        let brought = lock(&self.brought).clone();
        mounts.map(|(_, mount)| FlowLabel::of_mount(&mount.name)).chain(web).chain(carried).chain(brought)
    }
}

/// The refusal of a mount whose content could leave through a session that could not be ended.
fn not_ended(rule: &str, error: &SidecarError) -> MountRefusal {
    tracing::warn!(error = error as &dyn std::error::Error, rule, "a session with a network cannot be ended");
    MountRefusal {
        rule: rule.to_owned(),
        hint: "a shell session of this run has a network, and could not be ended before; call again"
            .to_owned(),
    }
}

impl RunningCallLabels {
    /// The caller's run with the labels of all other calls.
    pub(crate) fn facts_of_others<'a>(&self, caller: &'a Caller) -> RunFacts<'a> {
        self.labels.facts_with(caller, |call, _label| !Arc::ptr_eq(call, &self.call))
    }

    /// The caller's run with all labels but those of this call's own requests, since an approval covers all
    /// requests of a call.
    pub(crate) fn facts_before_requests<'a>(&self, caller: &'a Caller) -> RunFacts<'a> {
        self.labels.facts_with(caller, |call, label| {
            !Arc::ptr_eq(call, &self.call) || !matches!(label, FlowLabel::Web | FlowLabel::Secret(_))
        })
    }

    /// Ends the run's sessions with a network, if the policy denies the network after the labels that this
    /// call's requests have marked. Must be called after the marks and before the request.
    ///
    /// # Errors
    /// The denial, if the sessions may not have ended.
    pub(crate) async fn withdraw_networks(&self, policy: &WorkspaceSecurityPolicy) -> Result<(), Denial> {
        let is_of_request = |label: &FlowLabel| matches!(label, FlowLabel::Web | FlowLabel::Secret(_));
        let labels = self.call.labels().filter(is_of_request);
        self.labels.withdraw_networks_after(labels, &self.call.owner, &self.call.call_id, policy).await
    }

    /// The flags of the grant's mounts, for the guest that uses them.
    pub(crate) fn used(&self) -> &MountUse {
        &self.call.used
    }

    /// Marks every mount, where the used ones are unknown.
    pub(crate) fn mark_all_mounts_used(&self) {
        (0..self.call.mounts.len()).for_each(|index| self.call.used.mark(index));
    }

    /// Marks the network. Called before a request is sent, so that the label precedes the response.
    pub(crate) fn mark_web_read(&self) {
        self.call.web.store(true, Ordering::Release);
    }

    /// Marks the secrets with these names. Called before a request with them is sent.
    pub(crate) fn mark_secrets_sent(&self, names: &[Text]) {
        let named = |secret: &&GrantedSecret| names.iter().any(|name| **name == *secret.name.as_str());
        let carried = self.call.secrets.iter().filter(named).map(|secret| secret.name.clone());
        lock(&self.call.carried).extend(carried);
    }
}

impl Drop for RunningCallLabels {
    fn drop(&mut self) {
        lock(&self.labels.shared()).end(&self.call);
    }
}

#[cfg(test)]
mod tests {
    use portcullis_policy::MountName;
    use portcullis_types::Access;

    use super::*;

    fn call(labels: &Arc<RunLabels>, caller: &Caller, id: &str, mounts: &[&str]) -> RunningCallLabels {
        let mounts = mounts
            .iter()
            .map(|name| GrantedMount { name: MountName::parse(name).expect("a name"), access: Access::Read });
        let call = Arc::new(CallUnderWay {
            owner: caller.owner(),
            call_id: id.to_owned(),
            used: MountUse::of(mounts.len()),
            mounts: mounts.collect(),
            web: AtomicBool::new(false),
            secrets: Arc::default(),
            carried: Mutex::default(),
            brought: Mutex::default(),
        });
        lock(&labels.shared()).under_way.push(Arc::clone(&call));
        RunningCallLabels { labels: Arc::clone(labels), call }
    }

    fn labels_of(labels: &RunLabels, run: &str) -> Vec<(String, String)> {
        let caller = Caller::new("a", run);
        let facts = labels.facts(&caller);
        facts.labels.iter().map(|(label, call_id)| (label.to_string(), call_id.clone())).collect()
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
    fn a_call_under_way_brings_what_it_has_read_so_far() {
        let labels = Arc::default();
        let run = Caller::new("a", "1");
        let running = call(&labels, &run, "c1", &["tmp", "vault"]);
        assert_eq!(labels_of(&labels, "1"), []);
        running.used().mark(1);
        assert_eq!(labels_of(&labels, "1"), [label("vault", "c1")]);
        assert_eq!(labels_of(&labels, "2"), []);
        // The run has ended, but its call continues and still reads.
        labels.end_run(&run.owner());
        running.mark_web_read();
        drop(running);
        assert_eq!(labels_of(&labels, "1"), [label("vault", "c1"), label("web", "c1")]);
        assert!(lock(&labels.shared()).under_way.is_empty());
    }

    #[test]
    fn a_stored_output_brings_its_labels_to_the_call_that_reads_it() {
        let labels = Arc::default();
        let run = Caller::new("a", "1");
        let reading = call(&labels, &run, "c1", &[]);
        labels.add_brought(&run.owner(), "c1", &[FlowLabel::Vault].into());
        assert_eq!(labels_of(&labels, "1"), [label("vault", "c1")]);
        // The call goes on under an ended run, and what it has read counts for what follows.
        labels.end_run(&run.owner());
        drop(reading);
        assert_eq!(labels_of(&labels, "1"), [label("vault", "c1")]);
        // A call that is not known as under way: its run has them.
        labels.add_brought(&Caller::new("a", "2").owner(), "c2", &[FlowLabel::Web].into());
        assert_eq!(labels_of(&labels, "2"), [label("web", "c2")]);
    }

    #[test]
    fn labels_outlast_what_collects_them() {
        let (before, after) = (Arc::default(), Arc::new(RunLabels::default()));
        let (one, other) = (Caller::new("a", "1"), Caller::new("a", "2"));
        call(&before, &one, "c1", &["vault"]).mark_all_mounts_used();
        let begun_before = call(&before, &other, "c2", &["vault"]);
        call(&after, &other, "c3", &["tmp"]).mark_all_mounts_used();
        after.share_with(&before);
        after.share_with(&before);
        begun_before.mark_all_mounts_used();
        assert_eq!(labels_of(&after, "1"), [label("vault", "c1")]);
        assert_eq!(labels_of(&after, "2"), [label("vault", "c2"), label("mount:tmp", "c3")]);
        drop(begun_before);
        call(&before, &one, "c4", &["tmp"]).mark_all_mounts_used();
        for labels in [&before, &after] {
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
        let remembered = lock(&shared);
        assert_eq!(
            (remembered.runs.len(), remembered.order.len()),
            (MAX_REMEMBERED_RUNS, MAX_REMEMBERED_RUNS)
        );
    }
}
