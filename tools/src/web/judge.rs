//! Answers the HTTP client's questions by the grant of the call.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use portcullis_egress::{Credential, GrantKey, Judge, Method, Refusal, RequestLimits, Url};
use portcullis_policy::{Denial, DenialCode, Grant, JudgedRequest, UrlHost};

use super::{DeclaredHosts, known_secrets::KnownSecrets};
use crate::{audit::RecordedRequest, call::Caller};

/// The judge of one call's requests.
#[derive(Debug)]
pub(crate) struct GrantJudge {
    grant: Grant,
    /// The hosts that the tool declares, if it is a tool of a module.
    declared: Option<DeclaredHosts>,
    /// Whose connections the requests may use and leave.
    key: Option<GrantKey>,
    limits: RequestLimits,
    /// When the requests must have ended.
    deadline: Instant,
    /// The denial behind the refusal that the client reports, with its rule and hint.
    denial: Mutex<Option<Denial>>,
    /// The secrets that requests of the grant may carry, and those of all tools as far as they were read; set before the
    /// request is sent.
    secrets: OnceLock<(Vec<Credential>, Arc<KnownSecrets>)>,
    /// The names of those that a request has carried.
    sent_secrets: Mutex<BTreeSet<String>>,
    /// The redirects that the grant allows, those before this request included.
    max_redirects: u32,
    /// Whether the caller follows redirects itself.
    stops_at_redirects: bool,
    /// The redirect at which the request ended.
    redirect: Mutex<Option<Redirect>>,
    /// The requests that were let through, with the address that was dialled last for each.
    requests: Mutex<Vec<(Url, Option<SocketAddr>)>>,
}

/// A redirect that is not followed.
#[derive(Debug, Clone)]
pub(crate) enum Redirect {
    /// The policy lets it through, and the caller follows it.
    Allowed(Url),
    /// The policy refuses it.
    Refused,
}

impl GrantJudge {
    /// A judge for requests that may take `time_limit`.
    pub(crate) fn new(grant: Grant, declared: Option<DeclaredHosts>, time_limit: Duration) -> Self {
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
            declared,
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

    /// Lets the requests use connections that requests of the same identity have left: same policy, tool, agent and run,
    /// same network part of the grant, same secrets, same declared hosts. The policy's digest is a part of the identity,
    /// so no connection outlives a policy. Agent and run are parts of it, so a server cannot link the requests of two
    /// runs. If the identity cannot be serialised, no connection is used again.
    pub(crate) fn keeping_connections(mut self, policy: &str, tool: &str, caller: &Caller) -> Self {
        let Grant { profile, network, secrets, .. } = &self.grant;
        let declared = self.declared.as_ref().map(DeclaredHosts::rules);
        let (agent, run) = (&caller.agent_id, &caller.run_id);
        let identity = (policy, tool, agent, run, profile, network, secrets, declared);
        self.key = serde_json::to_string(&identity).ok().map(GrantKey::new);
        self
    }

    /// The grant.
    pub(super) fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Gives the judge the secrets that its requests may carry, and that no response may repeat. Without them it
    /// attaches none.
    pub(super) fn set_credentials(&self, credentials: Vec<Credential>, known: Arc<KnownSecrets>) {
        // Each judge serves one request, so they are set once.
        let _again = self.secrets.set((credentials, known));
    }

    /// The names of the secrets that were sent so far, also if the request failed.
    pub(super) fn sent_secrets(&self) -> BTreeSet<String> {
        self.sent_secrets.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Judges a request by the grant, then by the tool's declaration.
    pub(crate) fn judge(&self, method: &str, url: &str) -> Result<JudgedRequest, Denial> {
        let judged = self.grant.judge_request(method, url)?;
        if let Some(declared) = &self.declared {
            declared.judge(judged.authority())?;
        }
        Ok(judged)
    }

    /// The same judge, following no redirects.
    pub(crate) fn without_redirects(mut self) -> Self {
        (self.limits.max_redirects, self.max_redirects) = (0, 0);
        self
    }

    /// A judge under which no response is larger.
    pub(crate) fn with_response_bytes(mut self, most: usize) -> Self {
        self.limits.wire_bytes = self.limits.wire_bytes.min(most);
        self.limits.response_bytes = self.limits.response_bytes.min(most);
        self
    }

    /// A judge whose caller follows redirects itself, and has followed this many.
    pub(crate) fn stopping_at_redirects(mut self, followed: u32) -> Self {
        self.limits.max_redirects = self.max_redirects.saturating_sub(followed);
        self.stops_at_redirects = true;
        self
    }

    /// The redirect at which the request ended, if it did.
    pub(crate) fn take_redirect(&self) -> Option<Redirect> {
        self.redirect.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The redirects that the grant allows.
    pub(super) fn max_redirects(&self) -> u32 {
        self.max_redirects
    }

    /// The requests that were let through so far, the last one first.
    pub(super) fn requests(&self) -> Vec<RecordedRequest> {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let recorded = |(url, address): &(Url, Option<SocketAddr>)| RecordedRequest {
            url: url.as_str().into(),
            address: address.map(|address| address.to_string().into()),
        };
        requests.iter().rev().map(recorded).collect()
    }

    /// The denial of a refused request.
    pub(crate) fn take_denial(&self) -> Option<Denial> {
        self.denial.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn refuse(&self, denial: Denial) -> Refusal {
        let refusal = Refusal { code: denial.code.as_str(), reason: denial.message() };
        *self.denial.lock().unwrap_or_else(PoisonError::into_inner) = Some(denial);
        refusal
    }
}

impl Judge for GrantJudge {
    fn request(&self, method: &Method, url: &Url) -> Result<(), Refusal> {
        self.judge(method.as_str(), url.as_str()).map_err(|denial| self.refuse(denial))?;
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push((url.clone(), None));
        Ok(())
    }

    fn dialled(&self, address: SocketAddr) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, dialled)) = requests.last_mut() {
            *dialled = Some(address);
        }
    }

    fn address(&self, host: &str, port: u16, address: IpAddr) -> Result<(), Refusal> {
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

    fn redirect(&self, from: &Url, to: &Url) -> Result<(), Refusal> {
        let judge = || {
            let from = self.grant.judge_request(Method::GET.as_str(), from.as_str())?;
            self.grant.judge_redirect(&from, Method::GET.as_str(), to.as_str()).map(|_judged| ())
        };
        let judged = judge().map_err(|denial| self.refuse(denial));
        let redirect = match judged {
            Ok(()) if !self.stops_at_redirects => return Ok(()),
            Ok(()) => Redirect::Allowed(to.clone()),
            Err(_) => Redirect::Refused,
        };
        *self.redirect.lock().unwrap_or_else(PoisonError::into_inner) = Some(redirect);
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
        let Some((own, known)) = self.secrets.get() else { return Vec::new() };
        let mut all = known.all();
        // Those of this request may be forgotten, if very many became known meanwhile.
        let missing = own.iter().filter(|own| !all.iter().any(|other| other.has_value_of(own)));
        let missing: Vec<Credential> = missing.cloned().collect();
        all.extend(missing);
        all
    }

    fn attaches(&self, credential: &Credential, url: &Url) -> bool {
        self.grant.attaches_secret(credential.name(), url.as_str())
    }

    fn may_repeat_a_secret(&self, url: &Url) -> bool {
        self.secrets.get().is_some_and(|(_, known)| known.reached(url))
            || self.grant.secrets_for(url.as_str()).next().is_some()
    }

    fn attached(&self, credential: &Credential) {
        let mut sent_secrets = self.sent_secrets.lock().unwrap_or_else(PoisonError::into_inner);
        sent_secrets.insert(credential.name().to_owned());
    }

    fn grant_key(&self) -> Option<GrantKey> {
        self.key.clone()
    }

    fn limits(&self) -> RequestLimits {
        // Starting the client and reading secrets takes from the same time.
        let total = self.deadline.saturating_duration_since(Instant::now());
        RequestLimits { total, ..self.limits.clone() }
    }
}
