//! Judges requests, redirects and addresses against the network of a grant.
//!
//! A request is judged before a name is resolved, every address of the name before one is dialled, and every
//! redirect like a request of its own. The results are types that only this module makes, so that code which
//! dials can demand them.

use std::{
    collections::BTreeSet,
    fmt::Display,
    net::{IpAddr, SocketAddr},
};

use portcullis_types::ToolName;
use url::Url;

use crate::{Denial, DenialCode, Grant, GrantedMount, ProfileName, ShellNetwork};

use super::{
    Authority, HostRule, HttpMethod, InvalidUrl, MAX_REDIRECTS, NetworkGrant, PrivateEndpoint, Scheme,
    UrlHost,
    address::{METADATA, is_metadata_name, reason_not_public},
    url_text::{parse_target, parse_url},
};

/// A request that passed. Made by [`Grant::judge_request`] and [`Grant::judge_redirect`] alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JudgedRequest {
    method: HttpMethod,
    url: Url,
    authority: Authority,
    redirects: u32,
}

/// An address that passed and may be dialled. Made by [`Grant::judge_address`] and [`ShellNetwork::judge_address`]
/// alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct JudgedAddress(SocketAddr);

impl JudgedRequest {
    /// The method.
    #[must_use]
    pub fn method(&self) -> HttpMethod {
        self.method
    }

    /// The URL in its canonical form, without user info and fragment. It is what must be sent: the judged text
    /// may be another spelling.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Where the request goes. Credentials and pooled connections are never used for another authority.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The number of redirects that led here; 0 for the first request.
    #[must_use]
    pub fn redirects(&self) -> u32 {
        self.redirects
    }
}

impl JudgedAddress {
    /// The address and port to dial; an IPv4-mapped address has become its IPv4 address.
    #[must_use]
    pub fn socket_addr(self) -> SocketAddr {
        self.0
    }
}

impl Grant {
    /// Judges the first request of a fetch: the URL's text, its host by the profile's `hosts`, the method by
    /// its `methods`, and a host that is an address by [`Self::judge_address`].
    ///
    /// # Errors
    /// A [`Denial`] with one of these codes:
    /// - [`DenialCode::EgressNotGranted`]: the profile has no hosts.
    /// - [`DenialCode::UrlRefused`]: the text is no URL that is fetched.
    /// - [`DenialCode::HostNotGranted`]: no rule covers scheme, host and port.
    /// - [`DenialCode::MethodNotGranted`]: the profile does not have the method. Methods are case-sensitive
    ///   (RFC 9110, section 9.1).
    /// - [`DenialCode::AddressNotPublic`]: the host is an address that is not public, or a metadata service.
    pub fn judge_request(&self, method: &str, url: &str) -> Result<JudgedRequest, Denial> {
        let judge = RequestJudge::of_grant(self, url)?;
        let parsed = parse_url(url).map_err(|error| judge.url_refused(url, error))?;
        judge.request(method, parsed, 0)
    }

    /// Judges a redirect. The target must pass every rule of [`Self::judge_request`]; `https` must not become
    /// `http`; and the number of redirects must be within the limit.
    ///
    /// `location` is the header's text, relative or absolute. `method` is that of the next request, which
    /// follows from the status (RFC 9110, section 15.4).
    ///
    /// # Errors
    /// A [`Denial`] as of [`Self::judge_request`], or with [`DenialCode::RedirectRefused`]. It names the
    /// target's origin only, since the rest may hold the server's secrets.
    pub fn judge_redirect(
        &self,
        from: &JudgedRequest,
        method: &str,
        location: &str,
    ) -> Result<JudgedRequest, Denial> {
        let origin = from.authority.to_string();
        let judge = RequestJudge::of_grant(self, &origin)?;
        if from.redirects >= judge.network.max_redirects {
            return Err(judge.too_many_redirects(&origin));
        }
        let subject = format!("a redirect of {origin}");
        let (url, to) =
            parse_target(&from.url, location).map_err(|error| judge.url_refused(&subject, error))?;
        if from.authority.scheme() == Scheme::Https && to.scheme() == Scheme::Http {
            return Err(judge.falls_to_http(&to));
        }
        judge.request(method, (url, to), from.redirects + 1)
    }

    /// Judges one address that a name of a judged request was resolved to, or the address that stands in its
    /// URL. Every address of a name must pass before one is dialled: a name with one address that is not public
    /// is not used at all.
    ///
    /// Public are the globally routable addresses. An IPv4-mapped address counts as its IPv4 address; that of
    /// the NAT64 prefix `64:ff9b::/96` (RFC 6052) is judged by the embedded one. Addresses of 6to4, Teredo and
    /// local translators never are public.
    ///
    /// # Errors
    /// A [`Denial`] with [`DenialCode::EgressNotGranted`], or with [`DenialCode::AddressNotPublic`] where
    /// address and port do not stand in `allow_private`.
    pub fn judge_address(&self, host: &UrlHost, port: u16, address: IpAddr) -> Result<JudgedAddress, Denial> {
        let judge = RequestJudge::of_grant(self, &format!("{host}:{port}"))?;
        judge_address(&judge.network.allow_private, host, port, address)
    }
}

impl ShellNetwork {
    /// Judges where a tunnel of a command leads, by the shell's `hosts`. `url` is `https://host:port/`.
    ///
    /// # Errors
    /// A [`Denial`] with one of these codes:
    /// - [`DenialCode::UrlRefused`]: the text is no such URL.
    /// - [`DenialCode::HostNotGranted`]: no rule covers host and port, or the host is an address.
    /// - [`DenialCode::AddressNotPublic`]: the host is a metadata service.
    pub fn judge_tunnel(&self, url: &str) -> Result<(), Denial> {
        let (_, to) = parse_url(url).map_err(|error| Denial {
            code: DenialCode::UrlRefused,
            rule: "shell.hosts".to_owned(),
            subject: url.to_owned(),
            hint: format!("no policy allows it: {error}"),
        })?;
        let hosts = self.hosts.iter().map(|rule| rule.rule());
        match to.host() {
            UrlHost::Name(_) => judge_authority(hosts, &self.allow_private, "shell", &to),
            UrlHost::Address(_) => Err(host_not_granted(hosts, "shell", &to)),
        }
    }

    /// Judges one address of a tunnel's host, as [`Grant::judge_address`] does.
    ///
    /// # Errors
    /// A [`Denial`] with [`DenialCode::AddressNotPublic`] where address and port do not stand in `allow_private`.
    pub fn judge_address(&self, host: &UrlHost, port: u16, address: IpAddr) -> Result<JudgedAddress, Denial> {
        judge_address(&self.allow_private, host, port, address)
    }
}

/// Checks the URL of an argument, before a call runs. The method is not known yet.
pub(crate) fn check_url(
    network: Option<&NetworkGrant>,
    profile: &ProfileName,
    mounts: &[GrantedMount],
    tool: &ToolName,
    url: &str,
) -> Result<(), Denial> {
    let judge =
        RequestJudge::of(network, profile).ok_or_else(|| egress_not_granted(profile, mounts, tool, url))?;
    let (_, to) = parse_url(url).map_err(|error| judge.url_refused(url, error))?;
    judge.authority(&to)
}

/// A network, and the profile that denials name.
#[derive(Clone, Copy)]
struct RequestJudge<'a> {
    network: &'a NetworkGrant,
    profile: &'a ProfileName,
}

impl<'a> RequestJudge<'a> {
    fn of(network: Option<&'a NetworkGrant>, profile: &'a ProfileName) -> Option<Self> {
        network.map(|network| Self { network, profile })
    }

    /// # Errors
    /// A [`Denial`] for a grant without a network.
    fn of_grant(grant: &'a Grant, subject: &str) -> Result<Self, Denial> {
        let Grant { network, profile, mounts, tool, .. } = grant;
        Self::of(network.as_deref(), profile)
            .ok_or_else(|| egress_not_granted(profile, mounts, tool, subject))
    }

    fn request(
        &self,
        method: &str,
        (url, authority): (Url, Authority),
        redirects: u32,
    ) -> Result<JudgedRequest, Denial> {
        self.authority(&authority)?;
        let granted = method.parse().ok().filter(|method| self.network.methods.contains(method));
        let method = granted.ok_or_else(|| self.method_not_granted(method, &authority))?;
        Ok(JudgedRequest { method, url, authority, redirects })
    }

    fn authority(&self, to: &Authority) -> Result<(), Denial> {
        let NetworkGrant { hosts, allow_private, .. } = self.network;
        judge_authority(hosts.iter(), allow_private, &format!("profiles.{}", self.profile), to)
    }

    fn method_not_granted(&self, method: &str, to: &Authority) -> Denial {
        let methods = self.network.methods.iter();
        let granted = listed(methods.clone());
        let hint = match method.parse::<HttpMethod>() {
            Ok(method) => {
                let all: Vec<String> =
                    methods.chain([&method]).map(|method| format!("\"{method}\"")).collect();
                let (all, profile) = (all.join(", "), self.profile);
                format!(
                    "granted: {granted}; an operator allows it with `methods = [{all}]` under `[profiles.{profile}]` in the policy"
                )
            }
            Err(_) => format!(
                "granted: {granted}; no policy grants other methods than these: {}",
                listed(HttpMethod::ALL.iter())
            ),
        };
        let shown: String = method.chars().take(MAX_METHOD_CHARS).collect();
        self.deny(DenialCode::MethodNotGranted, "methods", &format!("{shown} {to}"), hint)
    }

    fn url_refused(&self, subject: &str, error: InvalidUrl) -> Denial {
        self.deny(DenialCode::UrlRefused, "hosts", &subject, format!("no policy allows it: {error}"))
    }

    fn falls_to_http(&self, to: &Authority) -> Denial {
        let hint = "no policy allows it: `https` never leads to `http`; ask for an `https` URL of the target";
        self.deny(DenialCode::RedirectRefused, "hosts", to, hint.to_owned())
    }

    fn too_many_redirects(&self, origin: &str) -> Denial {
        let followed = self.network.max_redirects;
        let more = u64::from(followed) + 1;
        let hint = match more <= MAX_REDIRECTS.most {
            true => format!(
                "{followed} were followed; an operator allows more with `max_redirects = {more}` under `[egress]` in the policy"
            ),
            false => format!("{followed} were followed, and no policy allows more"),
        };
        Denial {
            code: DenialCode::RedirectRefused,
            rule: "egress.max_redirects".to_owned(),
            subject: origin.to_owned(),
            hint,
        }
    }

    fn deny(&self, code: DenialCode, key: &str, subject: &dyn Display, hint: String) -> Denial {
        Denial { code, rule: format!("profiles.{}.{key}", self.profile), subject: subject.to_string(), hint }
    }
}

/// The denial for a profile without hosts, with all lines that would allow it: `Nothing` never has hosts, and a profile
/// with the vault neither, so that the tool needs another one.
fn egress_not_granted(
    profile: &ProfileName,
    mounts: &[GrantedMount],
    tool: &ToolName,
    subject: &str,
) -> Denial {
    let hosts = match parse_url(subject) {
        Ok((_, to)) => format!("`hosts = [\"{to}\"]`"),
        Err(_) => "`hosts`".to_owned(),
    };
    let has_vault = mounts.iter().any(|mount| mount.name.is_vault());
    let hint = if profile.is_shell() {
        format!("an operator allows a command to reach it with {hosts} under `[shell]` in the policy")
    } else if has_vault || *profile == ProfileName::nothing() {
        format!(
            "the profile `{profile}` cannot have hosts; an operator allows it with a profile of the tool's own: {hosts} under `[profiles.{tool}]`, and `profile = \"{tool}\"` under `[tools.{tool}]` in the policy"
        )
    } else {
        format!("an operator allows it with {hosts} under `[profiles.{profile}]` in the policy")
    };
    Denial {
        code: DenialCode::EgressNotGranted,
        rule: format!("profiles.{profile}"),
        subject: subject.to_owned(),
        hint,
    }
}

/// Judges the host by the rules of a section of the policy, and by its address as far as it is known before
/// resolving.
fn judge_authority<'r>(
    hosts: impl ExactSizeIterator<Item = &'r HostRule> + Clone,
    allow_private: &BTreeSet<PrivateEndpoint>,
    section: &str,
    to: &Authority,
) -> Result<(), Denial> {
    if !hosts.clone().any(|rule| rule.covers(to)) {
        return Err(host_not_granted(hosts, section, to));
    }
    match to.host() {
        UrlHost::Address(address) => {
            judge_address(allow_private, to.host(), to.port(), *address).map(|_judged| ())
        }
        UrlHost::Name(_) => judge_name(allow_private, to.host(), to.port()),
    }
}

fn judge_address(
    allow_private: &BTreeSet<PrivateEndpoint>,
    host: &UrlHost,
    port: u16,
    address: IpAddr,
) -> Result<JudgedAddress, Denial> {
    judge_name(allow_private, host, port)?;
    if let UrlHost::Address(written) = host
        && written.to_canonical() != address.to_canonical()
    {
        return Err(leads_elsewhere(host, port, "another address than the URL's", &address));
    }
    let to = SocketAddr::new(address.to_canonical(), port);
    match reason_not_public(to.ip()) {
        Some(reason) if !allow_private.contains(&PrivateEndpoint::Address(to)) => Err(match host {
            UrlHost::Address(_) => not_public(host, port, reason, &to),
            UrlHost::Name(_) => leads_elsewhere(host, port, reason, &to),
        }),
        Some(_) | None => Ok(JudgedAddress(to)),
    }
}

/// Refuses the names of metadata services before they are resolved.
fn judge_name(allow_private: &BTreeSet<PrivateEndpoint>, host: &UrlHost, port: u16) -> Result<(), Denial> {
    match host.name().filter(|name| is_metadata_name(name)) {
        Some(name) if !allow_private.contains(&PrivateEndpoint::Name(name.clone(), port)) => {
            Err(not_public(host, port, METADATA, &format!("{name}:{port}")))
        }
        Some(_) | None => Ok(()),
    }
}

fn host_not_granted<'r>(
    hosts: impl ExactSizeIterator<Item = &'r HostRule>,
    section: &str,
    to: &Authority,
) -> Denial {
    Denial {
        code: DenialCode::HostNotGranted,
        rule: format!("{section}.hosts"),
        subject: to.to_string(),
        hint: format!(
            "granted: {}; an operator allows it with `hosts = [\"{to}\"]` under `[{section}]` in the policy",
            listed(hosts)
        ),
    }
}

fn not_public(host: &UrlHost, port: u16, reason: &str, entry: &dyn Display) -> Denial {
    Denial {
        code: DenialCode::AddressNotPublic,
        rule: "egress.allow_private".to_owned(),
        subject: format!("{host}:{port}"),
        hint: format!(
            "`{entry}` is {reason}; an operator allows it with `allow_private = [\"{entry}\"]` under `[egress]` in the policy"
        ),
    }
}

/// Without the address, which the caller has not named: answers of an internal name server are not for models, modules
/// and commands. The rule has it, for the row and the operator.
fn leads_elsewhere(host: &UrlHost, port: u16, reason: &str, address: &dyn Display) -> Denial {
    Denial {
        code: DenialCode::AddressNotPublic,
        rule: format!("egress.allow_private[\"{address}\"]"),
        subject: format!("{host}:{port}"),
        hint: format!(
            "`{host}` leads to an address that is {reason}; an operator finds the address as the rule in the audit log, and allows it with `allow_private` under `[egress]` in the policy"
        ),
    }
}

/// The first few values, as text.
fn listed(values: impl ExactSizeIterator<Item: Display>) -> String {
    let more = if values.len() > MAX_LISTED { ", …" } else { "" };
    let shown: Vec<String> = values.take(MAX_LISTED).map(|value| format!("`{value}`")).collect();
    format!("{}{more}", shown.join(", "))
}

/// The number of rules that a hint repeats.
const MAX_LISTED: usize = 20;

/// The part of an unknown method that a denial repeats.
const MAX_METHOD_CHARS: usize = 32;
