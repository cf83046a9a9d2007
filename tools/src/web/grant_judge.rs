//! Answers the HTTP client's questions from the grant of the call.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use portcullis_egress::{Credential, Judge, Method, PoolIdentity, Refusal, RequestLimits, Url};
use portcullis_policy::{Denial, DenialCode, Grant, JudgedRequest, UrlHost};

use super::{DeclaredHosts, known_secrets::KnownSecrets};
use crate::{audit::RecordedRequest, call::Caller};

/// Judges the requests of one call.
#[derive(Debug)]
pub(crate) struct GrantJudge {
    grant: Grant,
    /// The hosts that the tool declares, if it is a tool of a module.
    declared_hosts: Option<DeclaredHosts>,
    /// The identity under which requests can reuse idle connections.
    key: Option<PoolIdentity>,
    limits: RequestLimits,
    /// The deadline of the requests.
    deadline: Instant,
    /// The denial behind the last refusal, with its rule and hint. The client reports only
    /// its code and reason.
    denial: Mutex<Option<Denial>>,
    /// The secrets that requests of the grant may carry, and all secrets that were read for any tool. Set
    /// before the request is sent.
    secrets: OnceLock<(Vec<Credential>, Arc<KnownSecrets>)>,
    /// The names of the secrets that a request has carried.
    sent_secrets: Mutex<BTreeSet<String>>,
    /// The maximum number of redirects under the grant, including the redirects before this request.
    max_redirects: u32,
    /// Whether the caller follows redirects itself.
    stops_at_redirects: bool,
    /// The redirect at which the request ended.
    redirect: Mutex<Option<Redirect>>,
    /// The allowed requests, each with the address that was last dialled for it.
    requests: Mutex<Vec<(Url, Option<SocketAddr>)>>,
}

/// A redirect that the client does not follow.
#[derive(Debug, Clone)]
pub(crate) enum Redirect {
    /// The policy allows the redirect, and the caller follows it.
    Allowed(Url),
    /// The policy refuses the redirect.
    Refused,
}

impl GrantJudge {
    /// Creates a judge for requests that may take `time_limit` in total.
    pub(crate) fn new(grant: Grant, declared_hosts: Option<DeclaredHosts>, time_limit: Duration) -> Self {
        let (max_redirects, bytes) = match &grant.network {
            Some(network) => (network.max_redirects, network.max_response.0),
            None => (0, 0),
        };
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let limits = RequestLimits {
            max_redirects,
            wire_bytes: bytes,
            response_bytes: bytes,
            ..RequestLimits::default()
        };
        Self {
            grant,
            declared_hosts,
            key: None,
            limits,
            deadline: Instant::now() + time_limit,
            denial: Mutex::new(None),
            secrets: OnceLock::new(),
            sent_secrets: Mutex::default(),
            max_redirects,
            stops_at_redirects: false,
            redirect: Mutex::new(None),
            requests: Mutex::default(),
        }
    }

    /// Lets the requests reuse idle connections of requests with the same identity. The identity
    /// consists of policy, tool, agent and run, the network part of the grant, the secrets and the
    /// declared hosts. It includes the policy's digest so that no connection outlives a policy, and
    /// agent and run so that a server cannot link the requests of two runs. If the identity cannot be
    /// serialized, no connection is reused.
    pub(crate) fn with_pooled_connections(mut self, policy: &str, tool: &str, caller: &Caller) -> Self {
        let Grant { profile, network, secrets, .. } = &self.grant;
        let declared_rules = self.declared_hosts.as_ref().map(DeclaredHosts::rules);
        let (agent, run) = (&caller.agent_id, &caller.run_id);
        let identity = (policy, tool, agent, run, profile, network, secrets, declared_rules);
        self.key = serde_json::to_string(&identity).ok().map(PoolIdentity::new);
        self
    }

    /// Returns the grant that the requests are judged by.
    pub(super) fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Sets the secrets that the requests may carry, and the secrets to redact from responses. Without this
    /// call, no secret is attached.
    pub(super) fn set_credentials(&self, credentials: Vec<Credential>, known_secrets: Arc<KnownSecrets>) {
        // Each judge serves one request, so this is called only once.
        let _again = self.secrets.set((credentials, known_secrets));
    }

    /// The names of the secrets that have been sent, even if the request failed.
    pub(crate) fn sent_secrets(&self) -> BTreeSet<String> {
        self.sent_secrets.lock().clone()
    }

    /// Judges a request by the grant, then by the tool's declaration.
    pub(crate) fn judge(&self, method: &str, url: &str) -> Result<JudgedRequest, Denial> {
        let judged = self.grant.judge_request(method, url)?;
        if let Some(declared_hosts) = &self.declared_hosts {
            declared_hosts.judge(judged.authority())?;
        }
        Ok(judged)
    }

    /// Lets a server use all of the remaining time before the first byte of its response.
    pub(crate) fn with_slow_answers(mut self) -> Self {
        self.limits.first_byte_timeout = self.deadline.saturating_duration_since(Instant::now());
        self
    }

    /// Disables redirects.
    pub(crate) fn without_redirects(mut self) -> Self {
        (self.limits.max_redirects, self.max_redirects) = (0, 0);
        self
    }

    /// Refuses compressed responses whose decoder needs several MiB of memory.
    pub(crate) fn with_small_decoders(mut self) -> Self {
        self.limits.window_bytes = SMALL_WINDOW_BYTES;
        self
    }

    /// Makes requests stop at redirects, for a caller that follows them itself and has already
    /// followed this many.
    pub(crate) fn stopping_at_redirects(mut self, followed: u32) -> Self {
        self.limits.max_redirects = self.max_redirects.saturating_sub(followed);
        self.stops_at_redirects = true;
        self
    }

    /// Returns the redirect at which the request ended, if it did.
    pub(crate) fn take_redirect(&self) -> Option<Redirect> {
        self.redirect.lock().take()
    }

    /// The maximum number of redirects under the grant.
    pub(super) fn max_redirects(&self) -> u32 {
        self.max_redirects
    }

    /// The allowed requests so far, the last one first.
    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        let requests = self.requests.lock();
        let recorded = |(url, address): &(Url, Option<SocketAddr>)| RecordedRequest {
            url: url.as_str().into(),
            address: address.map(|address| address.to_string().into()),
        };
        requests.iter().rev().map(recorded).collect()
    }

    /// Returns the denial of a refused request.
    pub(crate) fn take_denial(&self) -> Option<Denial> {
        self.denial.lock().take()
    }

    fn refuse(&self, denial: Denial) -> Refusal {
        let refusal = Refusal { code: denial.code.as_str(), reason: denial.message() };
        *self.denial.lock() = Some(denial);
        refusal
    }
}

/// The maximum size of the decompression window with [`GrantJudge::with_small_decoders`]: 64 KiB, which
/// is enough for gzip.
const SMALL_WINDOW_BYTES: usize = 64 << 10;

impl Judge for GrantJudge {
    fn judge_request(&self, method: &Method, url: &Url) -> Result<(), Refusal> {
        self.judge(method.as_str(), url.as_str()).map_err(|denial| self.refuse(denial))?;
        self.requests.lock().push((url.clone(), None));
        Ok(())
    }

    fn on_dialled(&self, address: SocketAddr) {
        let mut requests = self.requests.lock();
        if let Some((_, dialled)) = requests.last_mut() {
            *dialled = Some(address);
        }
    }

    fn judge_address(&self, host: &str, port: u16, address: IpAddr) -> Result<(), Refusal> {
        let host = UrlHost::parse(host).map_err(|_invalid| {
            self.refuse(Denial {
                code: DenialCode::UrlRefused,
                rule: format!("profiles.{}", self.grant.profile),
                subject: host.to_owned(),
                hint: String::new(),
            })
        })?;
        let judged = self.grant.judge_address(&host, port, address);
        judged.map(|_judged| ()).map_err(|denial| self.refuse(denial))
    }

    fn judge_redirect(&self, from: &Url, to: &Url) -> Result<(), Refusal> {
        // Only the target matters here: the client asks `request` about the real method next. `GET` stands in
        // for the method, so a grant without `GET` follows no redirects.
        let judge = || {
            let judged = self.grant.judge_request(Method::GET.as_str(), from.as_str())?;
            self.grant.judge_redirect(&judged, Method::GET.as_str(), to.as_str()).map(|_judged| ())
        };
        let judged = judge().map_err(|denial| self.refuse(denial));
        let redirect = match judged {
            Ok(()) if !self.stops_at_redirects => return Ok(()),
            Ok(()) => Redirect::Allowed(to.clone()),
            Err(_) => Redirect::Refused,
        };
        *self.redirect.lock() = Some(redirect);
        // A refused redirect returns the policy's refusal. An allowed redirect only ends this request.
        judged?;
        Err(Refusal {
            code: "redirect_not_followed",
            reason: "the caller follows redirects itself".to_owned(),
        })
    }

    fn credentials(&self) -> &[Credential] {
        self.secrets.get().map_or(&[], |(credentials, _)| credentials)
    }

    fn known_secrets(&self) -> Vec<Credential> {
        let Some((own_credentials, known_secrets)) = self.secrets.get() else { return Vec::new() };
        let mut all_credentials = known_secrets.all();
        // This request's secrets may have been evicted, if a great many others were read in the meantime.
        let unlisted = own_credentials
            .iter()
            .filter(|credential| !all_credentials.iter().any(|listed| listed.has_value_of(credential)));
        let unlisted: Vec<Credential> = unlisted.cloned().collect();
        all_credentials.extend(unlisted);
        all_credentials
    }

    fn should_attach(&self, credential: &Credential, url: &Url) -> bool {
        self.grant.attaches_secret(credential.name(), url.as_str())
    }

    fn may_repeat_a_secret(&self, url: &Url) -> bool {
        self.secrets.get().is_some_and(|(_, known_secrets)| known_secrets.has_secret_of_host(url))
            || self.grant.secrets_for(url.as_str()).next().is_some()
    }

    fn on_attached(&self, credential: &Credential) {
        let mut sent_secrets = self.sent_secrets.lock();
        sent_secrets.insert(credential.name().to_owned());
    }

    fn pool_identity(&self) -> Option<PoolIdentity> {
        self.key.clone()
    }

    fn limits(&self) -> RequestLimits {
        // Starting the client and reading the secrets count towards the same timeout.
        let total_timeout = self.deadline.saturating_duration_since(Instant::now());
        RequestLimits { total_timeout, ..self.limits.clone() }
    }
}
