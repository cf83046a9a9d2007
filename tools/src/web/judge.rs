//! Answers the questions of the HTTP client by the grant of the call.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::{Mutex, OnceLock, PoisonError},
    time::Duration,
};

use portcullis_egress::{Credential, GrantKey, Judge, Limits, Method, Refusal, Url};
use portcullis_policy::{Denial, DenialCode, Grant, Host, JudgedRequest};

use super::DeclaredHosts;
use crate::call::Caller;

/// The grant of one call, as the client's judge.
#[derive(Debug)]
pub(crate) struct GrantJudge {
    grant: Grant,
    /// The hosts that the tool declares, if it is a tool of a module.
    declared: Option<DeclaredHosts>,
    /// Whose connections the requests may use and leave.
    key: Option<GrantKey>,
    limits: Limits,
    /// The denial behind the refusal that the client reports, with its rule and hint.
    denial: Mutex<Option<Denial>>,
    /// The secrets of all tools, as far as they were read; set before the request is sent.
    credentials: OnceLock<Vec<Credential>>,
    /// The names of those that a request has carried.
    carried: Mutex<BTreeSet<String>>,
}

impl GrantJudge {
    /// A judge for requests that take this long at most.
    pub(crate) fn new(grant: Grant, declared: Option<DeclaredHosts>, time_limit: Duration) -> Self {
        let (max_redirects, bytes) = match &grant.network {
            Some(network) => (network.max_redirects, network.max_response.0),
            None => (0, 0),
        };
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let limits = Limits {
            max_redirects,
            wire_bytes: bytes,
            response_bytes: bytes,
            total: time_limit,
            ..Limits::default()
        };
        Self {
            grant,
            declared,
            key: None,
            limits,
            denial: Mutex::new(None),
            credentials: OnceLock::new(),
            carried: Mutex::default(),
        }
    }

    /// Lets the requests use connections that others of the same identity have left: same policy, tool, agent and run,
    /// same network part of the grant, same secrets, same declared hosts. The policy's digest is in it, so that no
    /// connection outlives a policy; agent and run are, so that a server cannot join what two of them ask. A grant that
    /// cannot be written as text has a connection for each request.
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
    pub(super) fn arm(&self, credentials: Vec<Credential>) {
        // A judge is that of one request.
        let _again = self.credentials.set(credentials);
    }

    /// The secrets that the request has carried so far, by name, also if it failed.
    pub(super) fn carried(&self) -> BTreeSet<String> {
        self.carried.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Judges a request by the grant, then by what the tool declares.
    pub(crate) fn judge(&self, method: &str, url: &str) -> Result<JudgedRequest, Denial> {
        let judged = self.grant.judge_request(method, url)?;
        if let Some(declared) = &self.declared {
            declared.judge(judged.authority())?;
        }
        Ok(judged)
    }

    /// A judge under which no redirect is followed.
    pub(crate) fn without_redirects(mut self) -> Self {
        self.limits.max_redirects = 0;
        self
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
        self.judge(method.as_str(), url.as_str()).map(|_judged| ()).map_err(|denial| self.refuse(denial))
    }

    fn address(&self, host: &str, port: u16, address: IpAddr) -> Result<(), Refusal> {
        let host = Host::parse(host).map_err(|_invalid| {
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
        judge().map_err(|denial| self.refuse(denial))
    }

    fn credentials(&self) -> &[Credential] {
        self.credentials.get().map_or(&[], Vec::as_slice)
    }

    fn attaches(&self, credential: &Credential, url: &Url) -> bool {
        self.grant.attaches_secret(credential.name(), url.as_str())
    }

    fn attached(&self, credential: &Credential) {
        let mut carried = self.carried.lock().unwrap_or_else(PoisonError::into_inner);
        carried.insert(credential.name().to_owned());
    }

    fn grant_key(&self) -> Option<GrantKey> {
        self.key.clone()
    }

    fn limits(&self) -> Limits {
        self.limits.clone()
    }
}
