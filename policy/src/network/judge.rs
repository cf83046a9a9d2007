//! Judges requests, redirects and addresses against the network of a grant.
//!
//! A request is judged before its host's name is resolved. Every address of the name is judged before one is
//! dialled. Every redirect is judged like a new request. Only this module can create [`JudgedRequest`] and
//! [`JudgedAddress`], so dialling code can require them as proof.

use std::{
    collections::BTreeSet,
    fmt::Display,
    net::{IpAddr, SocketAddr},
};

use portcullis_types::ToolName;
use url::Url;

use crate::{Denial, DenialCode, Grant, GrantedMount, ProfileName, ShellNetwork, WorkspaceSecurityPolicy};

use super::{
    Authority, HostRule, HttpMethod, InvalidUrl, NetworkGrant, PrivateEndpoint, REDIRECT_BOUNDS, Scheme,
    UrlHost,
    address::{METADATA, is_metadata_name, reason_not_public},
    url_text::{parse_target, parse_url},
};

/// A request that was allowed. Only [`Grant::judge_request`] and [`Grant::judge_redirect`] create it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JudgedRequest {
    method: HttpMethod,
    url: Url,
    authority: Authority,
    redirects: u32,
}

/// An address that was allowed and may be dialled. Only [`Grant::judge_address`] and
/// [`ShellNetwork::judge_address`] create it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct JudgedAddress(SocketAddr);

impl JudgedRequest {
    /// Returns the method.
    #[must_use]
    pub fn method(&self) -> HttpMethod {
        self.method
    }

    /// Returns the URL in canonical form, without user info and fragment. Send this URL, because the judged
    /// text may be a different spelling.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Returns the authority that the request goes to. Credentials and pooled connections must never be used
    /// for another authority.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Returns the number of redirects that led to this request. It is 0 for the first request.
    #[must_use]
    pub fn redirects(&self) -> u32 {
        self.redirects
    }
}

impl JudgedAddress {
    /// Returns the address and port to dial. An IPv4-mapped address is replaced by its IPv4 address.
    #[must_use]
    pub fn socket_addr(self) -> SocketAddr {
        self.0
    }
}

impl Grant {
    /// Judges the first request of a fetch: the URL's text, the host by the profile's `hosts`, the method by the
    /// profile's `methods`, and a host that is an address by [`Self::judge_address`].
    ///
    /// # Errors
    /// A [`Denial`] with one of these codes:
    /// - [`DenialCode::EgressNotGranted`]: the profile has no hosts.
    /// - [`DenialCode::UrlRefused`]: the text is not a URL that can be fetched.
    /// - [`DenialCode::HostNotGranted`]: no rule covers scheme, host and port.
    /// - [`DenialCode::MethodNotGranted`]: the profile does not grant the method. Methods are case-sensitive
    ///   (RFC 9110, section 9.1).
    /// - [`DenialCode::AddressNotPublic`]: the host is a metadata service or an address that is not public.
    pub fn judge_request(&self, method: &str, url: &str) -> Result<JudgedRequest, Denial> {
        let judge = RequestJudge::from_grant(self, url)?;
        let (url, authority) = parse_url(url).map_err(|error| judge.url_refused(url, error))?;
        judge.request(method, url, authority, 0)
    }

    /// Judges a redirect. The target must pass every rule of [`Self::judge_request`], `https` must not become `http`,
    /// and the number of redirects must be within the limit.
    ///
    /// `location` is the header's text, relative or absolute. `method` is the method of the next request, which
    /// follows from the status (RFC 9110, section 15.4).
    ///
    /// # Errors
    /// A [`Denial`] as from [`Self::judge_request`], or with [`DenialCode::RedirectRefused`]. The denial names only the
    /// target's origin, because the rest of the URL may contain the server's secrets.
    pub fn judge_redirect(
        &self,
        redirecting: &JudgedRequest,
        method: &str,
        location: &str,
    ) -> Result<JudgedRequest, Denial> {
        let origin = redirecting.authority.to_string();
        let judge = RequestJudge::from_grant(self, &origin)?;
        if redirecting.redirects >= judge.network.max_redirects {
            return Err(judge.too_many_redirects(&origin));
        }
        // Name only the origin, because the rest of the URL may contain the server's secrets.
        let subject = format!("a redirect of {origin}");
        let (url, target) =
            parse_target(&redirecting.url, location).map_err(|error| judge.url_refused(&subject, error))?;
        if redirecting.authority.scheme() == Scheme::Https && target.scheme() == Scheme::Http {
            return Err(judge.downgrade_denial(&target));
        }
        judge.request(method, url, target, redirecting.redirects + 1)
    }

    /// Judges one address: an address to which the name of a judged request was resolved, or the address in
    /// the request's URL. Call it for every address of a name before dialling any of them: if one address is
    /// refused, the name must not be used at all.
    ///
    /// Globally routable addresses are public. An IPv4-mapped address counts as its IPv4 address; an address with the
    /// NAT64 prefix `64:ff9b::/96` (RFC 6052) counts as its embedded address. Addresses of 6to4, Teredo and local
    /// translators are never public.
    ///
    /// # Errors
    /// A [`Denial`] with [`DenialCode::EgressNotGranted`], or with [`DenialCode::AddressNotPublic`] if
    /// `allow_private` does not list the address with its port.
    pub fn judge_address(&self, host: &UrlHost, port: u16, address: IpAddr) -> Result<JudgedAddress, Denial> {
        let judge = RequestJudge::from_grant(self, &format!("{host}:{port}"))?;
        judge_address(&judge.network.allow_private, host, port, address)
    }
}

impl ShellNetwork {
    /// Judges the target of a command's tunnel by the shell's `hosts`. `url` is `https://host:port/`.
    ///
    /// # Errors
    /// A [`Denial`] with one of these codes:
    /// - [`DenialCode::UrlRefused`]: the text is not a URL of this form.
    /// - [`DenialCode::HostNotGranted`]: no rule covers host and port, or the host is an address.
    /// - [`DenialCode::AddressNotPublic`]: the host is a metadata service.
    pub fn judge_tunnel(&self, url: &str) -> Result<(), Denial> {
        let (_, target) = parse_url(url).map_err(|error| Denial {
            code: DenialCode::UrlRefused,
            rule: "shell.hosts".to_owned(),
            subject: url.to_owned(),
            hint: format!("no policy allows it: {error}"),
        })?;
        let hosts = self.hosts.iter().map(|rule| rule.rule());
        match target.host() {
            UrlHost::Name(_) => judge_authority(hosts, &self.allow_private, "shell", &target).map(|_rule| ()),
            UrlHost::Address(_) => Err(host_not_granted(hosts, "shell", &target)),
        }
    }

    /// Judges one address of a tunnel's host, like [`Grant::judge_address`].
    ///
    /// # Errors
    /// A [`Denial`] with [`DenialCode::AddressNotPublic`] if `allow_private` does not list the address with its port.
    pub fn judge_address(&self, host: &UrlHost, port: u16, address: IpAddr) -> Result<JudgedAddress, Denial> {
        judge_address(&self.allow_private, host, port, address)
    }
}

impl WorkspaceSecurityPolicy {
    /// Judges the URL that the configuration of a tool names, as far as possible before a call and without a
    /// profile: the URL's text, and a host that is an address or the name of a metadata service.
    ///
    /// # Errors
    /// A [`Denial`] with one of these codes:
    /// - [`DenialCode::UrlRefused`]: the text is not a URL that can be fetched.
    /// - [`DenialCode::AddressNotPublic`]: `allow_private` does not list the address with its port.
    pub fn judge_configured_url(&self, url: &str) -> Result<(), Denial> {
        let (_, target) = parse_url(url).map_err(|error| Denial {
            code: DenialCode::UrlRefused,
            rule: "egress".to_owned(),
            subject: url.to_owned(),
            hint: format!("no policy allows it: {error}"),
        })?;
        judge_host(&self.egress().allow_private, &target)
    }
}

/// Checks the URL of an argument before a call runs, when the method is not known yet. Returns the rule that
/// covers the URL.
pub(crate) fn check_url<'n>(
    network: Option<&'n NetworkGrant>,
    profile: &'n ProfileName,
    mounts: &[GrantedMount],
    tool: &ToolName,
    url: &str,
) -> Result<&'n HostRule, Denial> {
    let judge =
        RequestJudge::new(network, profile).ok_or_else(|| egress_not_granted(profile, mounts, tool, url))?;
    let (_, target) = parse_url(url).map_err(|error| judge.url_refused(url, error))?;
    judge.authority(&target)
}

/// Judges requests by one profile's network. Its denials name the profile.
#[derive(Clone, Copy)]
struct RequestJudge<'a> {
    network: &'a NetworkGrant,
    profile: &'a ProfileName,
}

impl<'a> RequestJudge<'a> {
    fn new(network: Option<&'a NetworkGrant>, profile: &'a ProfileName) -> Option<Self> {
        network.map(|network| Self { network, profile })
    }

    /// # Errors
    /// A [`Denial`] for a grant without a network.
    fn from_grant(grant: &'a Grant, subject: &str) -> Result<Self, Denial> {
        let Grant { network, profile, mounts, tool, .. } = grant;
        Self::new(network.as_deref(), profile)
            .ok_or_else(|| egress_not_granted(profile, mounts, tool, subject))
    }

    fn request(
        &self,
        method: &str,
        url: Url,
        authority: Authority,
        redirects: u32,
    ) -> Result<JudgedRequest, Denial> {
        self.authority(&authority)?;
        let granted = method.parse().ok().filter(|method| self.network.methods.contains(method));
        let method = granted.ok_or_else(|| self.method_not_granted(method, &authority))?;
        Ok(JudgedRequest { method, url, authority, redirects })
    }

    fn authority(&self, target: &Authority) -> Result<&'a HostRule, Denial> {
        let NetworkGrant { hosts, allow_private, .. } = self.network;
        judge_authority(hosts.iter(), allow_private, &format!("profiles.{}", self.profile), target)
    }

    fn method_not_granted(&self, method: &str, target: &Authority) -> Denial {
        let methods = self.network.methods.iter();
        let granted = quoted_list(methods.clone());
        let hint = match method.parse::<HttpMethod>() {
            Ok(method) => {
                let methods_to_allow: Vec<String> =
                    methods.chain([&method]).map(|method| format!("\"{method}\"")).collect();
                let (methods_to_allow, profile) = (methods_to_allow.join(", "), self.profile);
                format!(
                    "granted: {granted}; an operator allows it with `methods = [{methods_to_allow}]` under `[profiles.{profile}]` in the policy"
                )
            }
            Err(_) => {
                format!("granted: {granted}; a policy can grant only {}", quoted_list(HttpMethod::ALL.iter()))
            }
        };
        let short_method: String = method.chars().take(MAX_METHOD_CHARS).collect();
        self.deny(DenialCode::MethodNotGranted, "methods", &format!("{short_method} {target}"), hint)
    }

    fn url_refused(&self, subject: &str, error: InvalidUrl) -> Denial {
        self.deny(DenialCode::UrlRefused, "hosts", &subject, format!("no policy allows it: {error}"))
    }

    fn downgrade_denial(&self, target: &Authority) -> Denial {
        let hint = "no policy allows it: `https` never leads to `http`; ask for an `https` URL of the target";
        self.deny(DenialCode::RedirectRefused, "hosts", target, hint.to_owned())
    }

    fn too_many_redirects(&self, origin: &str) -> Denial {
        let followed = self.network.max_redirects;
        let needed = u64::from(followed) + 1;
        let hint = if needed <= REDIRECT_BOUNDS.max {
            format!(
                "{followed} were followed; an operator allows more with `max_redirects = {needed}` under `[egress]` in the policy"
            )
        } else {
            format!("{followed} were followed, and no policy allows more")
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

/// Builds the denial for a profile without hosts, with all lines that would allow the request. `Nothing` and
/// a profile with the vault can never have hosts, so for these the hint proposes a new profile for the tool.
fn egress_not_granted(
    profile: &ProfileName,
    mounts: &[GrantedMount],
    tool: &ToolName,
    subject: &str,
) -> Denial {
    let hosts = match parse_url(subject) {
        Ok((_, target)) => format!("`hosts = [\"{target}\"]`"),
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

/// Judges the host by the rules of a section of the policy, and by its name or address as far as possible before the
/// name is resolved. Returns the rule that covers the host.
fn judge_authority<'r>(
    hosts: impl ExactSizeIterator<Item = &'r HostRule> + Clone,
    allow_private: &BTreeSet<PrivateEndpoint>,
    section: &str,
    target: &Authority,
) -> Result<&'r HostRule, Denial> {
    let Some(covering) = hosts.clone().find(|rule| rule.covers(target)) else {
        return Err(host_not_granted(hosts, section, target));
    };
    judge_host(allow_private, target)?;
    Ok(covering)
}

/// Judges a host as far as possible before its name is resolved.
fn judge_host(allow_private: &BTreeSet<PrivateEndpoint>, target: &Authority) -> Result<(), Denial> {
    match target.host() {
        UrlHost::Address(address) => {
            judge_address(allow_private, target.host(), target.port(), *address).map(|_judged| ())
        }
        UrlHost::Name(_) => judge_name(allow_private, target.host(), target.port()),
    }
}

fn judge_address(
    allow_private: &BTreeSet<PrivateEndpoint>,
    host: &UrlHost,
    port: u16,
    address: IpAddr,
) -> Result<JudgedAddress, Denial> {
    judge_name(allow_private, host, port)?;
    // An address in a URL needs no resolution, so only that address may be dialled.
    if let UrlHost::Address(literal) = host
        && literal.to_canonical() != address.to_canonical()
    {
        return Err(unexpected_address_denial(host, port, "another address than the URL's", &address));
    }
    let socket_address = SocketAddr::new(address.to_canonical(), port);
    match reason_not_public(socket_address.ip()) {
        Some(reason) if !allow_private.contains(&PrivateEndpoint::Address(socket_address)) => {
            Err(match host {
                UrlHost::Address(_) => private_address_denial(host, port, reason, &socket_address),
                UrlHost::Name(_) => unexpected_address_denial(host, port, reason, &socket_address),
            })
        }
        Some(_) | None => Ok(JudgedAddress(socket_address)),
    }
}

/// Refuses the names of metadata services before they are resolved.
fn judge_name(allow_private: &BTreeSet<PrivateEndpoint>, host: &UrlHost, port: u16) -> Result<(), Denial> {
    match host.name().filter(|name| is_metadata_name(name)) {
        Some(name) if !allow_private.contains(&PrivateEndpoint::Name(name.clone(), port)) => {
            Err(private_address_denial(host, port, METADATA, &format!("{name}:{port}")))
        }
        Some(_) | None => Ok(()),
    }
}

fn host_not_granted<'r>(
    hosts: impl ExactSizeIterator<Item = &'r HostRule>,
    section: &str,
    target: &Authority,
) -> Denial {
    Denial {
        code: DenialCode::HostNotGranted,
        rule: format!("{section}.hosts"),
        subject: target.to_string(),
        hint: format!(
            "granted: {}; an operator allows it with `hosts = [\"{target}\"]` under `[{section}]` in the policy",
            quoted_list(hosts)
        ),
    }
}

fn private_address_denial(host: &UrlHost, port: u16, reason: &str, entry: &dyn Display) -> Denial {
    Denial {
        code: DenialCode::AddressNotPublic,
        rule: "egress.allow_private".to_owned(),
        subject: format!("{host}:{port}"),
        hint: format!(
            "`{entry}` is {reason}; an operator allows it with `allow_private = [\"{entry}\"]` under `[egress]` in the policy"
        ),
    }
}

/// Builds the denial of an address that the caller did not name. Its text omits the address, because models,
/// modules and commands must not see the answers of an internal name server. The rule contains the address,
/// for the audit row and the operator.
fn unexpected_address_denial(host: &UrlHost, port: u16, reason: &str, address: &dyn Display) -> Denial {
    Denial {
        code: DenialCode::AddressNotPublic,
        rule: format!("egress.allow_private[\"{address}\"]"),
        subject: format!("{host}:{port}"),
        hint: format!(
            "`{host}` resolves to an address that is {reason}; the operator can find the address in the `rule` field of the audit row, and allow it with `allow_private` under `[egress]` in the policy"
        ),
    }
}

/// Formats the first [`MAX_LISTED`] values.
fn quoted_list(values: impl ExactSizeIterator<Item: Display>) -> String {
    let ellipsis = if values.len() > MAX_LISTED { ", …" } else { "" };
    let quoted_values: Vec<String> = values.take(MAX_LISTED).map(|value| format!("`{value}`")).collect();
    format!("{}{ellipsis}", quoted_values.join(", "))
}

/// The maximum number of rules that a hint repeats.
const MAX_LISTED: usize = 20;

/// The maximum number of characters of an unknown method that a denial repeats.
const MAX_METHOD_CHARS: usize = 32;
