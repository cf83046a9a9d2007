//! Reads a file of expectations.

use portcullis_types::{Access, GuestPath, ToolName};

use crate::{
    Approval, DenialCode, Expectations, ExpectedHosts, ExpectedSource, ExpectedSubject, ExpectedTools,
    ExpectedVerdict, FlowLabel, ForbiddenFlow, HostRule, InvalidHostRule, KnownTools, MAX_EXPECTATIONS,
    MAX_EXPECTATIONS_BYTES, MountName, PathPattern, PinnedDigest, PolicyFault, ProfileName, SecretName,
    SourceLocation, WorkspaceSecurityPolicy, expect::Day,
};

use super::{
    Faults, did_you_mean,
    invalid::InvalidValue,
    keys,
    read::{check_version, read_document_root},
    section::{Section, SectionEntry},
    value::{choice_parser, parse_tool_name},
};

/// The maximum number of tools, paths or labels of one expectation.
const MAX_ELEMENTS: usize = 256;

/// The minimum length of the beginning of a digest: 12 characters.
pub(super) const MIN_DIGEST_CHARS: usize = 12;

/// The length of a whole digest.
const DIGEST_CHARS: usize = 64;

/// Reads the whole text. The result is valid only if there are no faults.
pub(crate) fn read_expectations(
    faults: &mut Faults<'_>,
    policy: &WorkspaceSecurityPolicy,
    known: &KnownTools,
) -> Expectations {
    let mut expectations = Expectations::default();
    let names = Names { policy, known_tools: known };
    read_document_root(faults, MAX_EXPECTATIONS_BYTES, |root, faults| {
        root.refuse_unknown(keys::EXPECTATIONS, faults);
        if let Some(entry) = root.entry("version") {
            check_version(&entry, faults);
        }
        let lists = ["expect", "never", "unchanged"].map(|key| sections(root, key, faults));
        let count: usize = lists.iter().map(Vec::len).sum();
        if count > MAX_EXPECTATIONS {
            faults.add(0, "", format!("{count} expectations; at most {MAX_EXPECTATIONS} are allowed"));
            return;
        }
        let [expect, never, unchanged] = lists;
        expectations = Expectations {
            answers: expect.iter().filter_map(|section| names.read_answer(section, faults)).collect(),
            never: never.iter().filter_map(|section| names.read_flow(section, faults)).collect(),
            unchanged: unchanged.iter().filter_map(|section| pinned_digest(section, faults)).collect(),
        };
    });
    expectations
}

/// Returns the tables of a list. Empty if the key is absent.
fn sections<'t>(root: &Section<'t>, key: &str, faults: &mut Faults<'_>) -> Vec<Section<'t>> {
    let Some(entry) = root.entry(key) else { return Vec::new() };
    let elements = entry.list(faults).unwrap_or_default();
    elements.iter().filter_map(|element| element.section(faults)).collect()
}

/// The names that an expectation may use.
struct Names<'a> {
    policy: &'a WorkspaceSecurityPolicy,
    known_tools: &'a KnownTools,
}

impl Names<'_> {
    fn read_answer(&self, section: &Section<'_>, faults: &mut Faults<'_>) -> Option<ExpectedVerdict> {
        section.refuse_unknown(keys::EXPECT, faults);
        // Read all keys before the first `?`, so that each fault is reported.
        let tools = self.tools(section, faults);
        let code = section.entry("code").and_then(|entry| {
            entry.parsed(faults, choice_parser("code", DenialCode::ALL, DenialCode::as_str))
        });
        let subjects = self.subjects(section, code, faults);
        let access = access(section, faults);
        let is_path = |subject: &ExpectedSubject| {
            matches!(subject, ExpectedSubject::Path(_) | ExpectedSubject::Paths(_))
        };
        if let Some(entry) = section.entry("access").filter(|_| !subjects.iter().any(is_path)) {
            entry.refuse(faults, "only a path is accessed; write `path` or `paths`, or remove the key");
        }
        let verdict = match section.entry("verdict") {
            Some(entry) => entry.parsed(faults, choice_parser("verdict", Approval::ALL, Approval::as_str)),
            None => {
                let message = "missing key; write `verdict = \"allow\"`, `\"ask\"` or `\"deny\"`";
                faults.add(section.offset, &section.path_of("verdict"), message);
                None
            }
        };
        if let Some(entry) = section.entry("code")
            && verdict.is_some_and(|verdict| verdict != Approval::Deny)
        {
            entry.refuse(faults, "only a denial has a code; write `verdict = \"deny\"`, or remove the key");
        }
        let after = read_elements(section, "after", faults);
        let after = after.iter().filter_map(|element| self.label(element, faults)).collect();
        Some(ExpectedVerdict {
            name: text(section, "name", faults),
            location: location(section, faults),
            tools: tools?,
            subjects,
            access,
            verdict: verdict?,
            code,
            after,
        })
    }

    fn tools(&self, section: &Section<'_>, faults: &mut Faults<'_>) -> Option<ExpectedTools> {
        let given: Vec<&str> =
            ["tool", "tools", "profile"].into_iter().filter(|key| section.entry(key).is_some()).collect();
        match given.as_slice() {
            ["profile"] => {
                let entry = section.entry("profile")?;
                let name = entry.text(faults)?;
                let profiles = || self.policy.profiles().map(|(profile, _)| profile);
                let found = profiles().find(|profile| profile.as_str() == name).cloned();
                let found = found.or_else(|| self.shell_profile(name));
                if found.is_none() {
                    let known: Vec<&str> = profiles().map(|profile| profile.as_str()).collect();
                    let suggestion = did_you_mean(name, known.iter().copied());
                    entry.refuse(faults, format!("the policy has no such profile; {suggestion}"));
                }
                found.map(ExpectedTools::OfProfile)
            }
            [key] => {
                let elements = read_elements(section, key, faults);
                let texts: Vec<(&SectionEntry<'_>, &str)> =
                    elements.iter().filter_map(|element| Some((element, element.text(faults)?))).collect();
                // `*` means all tools, so names beside it add nothing.
                if texts.iter().any(|(_, name)| *name == "*") {
                    return Some(ExpectedTools::All);
                }
                let names: Vec<ToolName> =
                    texts.iter().filter_map(|(element, name)| self.tool(element, name, faults)).collect();
                Some(ExpectedTools::Named(names))
            }
            [] => {
                let message = "missing key; write `tool = \"NAME\"`, `tools = \"*\"` or `profile = \"NAME\"`";
                faults.add(section.offset, &section.path_of("tool"), message);
                None
            }
            [_, key, ..] => {
                let message = "write one of `tool`, `tools` and `profile`";
                faults.add(section.offset, &section.path_of(key), message);
                None
            }
        }
    }

    /// Returns the profile of commands, if the policy has a shell.
    fn shell_profile(&self, name: &str) -> Option<ProfileName> {
        (name == ProfileName::SHELL && self.policy.shell().is_some()).then(ProfileName::shell)
    }

    fn tool(&self, element: &SectionEntry<'_>, name: &str, faults: &mut Faults<'_>) -> Option<ToolName> {
        if let Some(message) = self.known_tools.unknown(name) {
            element.refuse(faults, message);
            return None;
        }
        element.parsed(faults, parse_tool_name)
    }

    fn subjects(
        &self,
        section: &Section<'_>,
        code: Option<DenialCode>,
        faults: &mut Faults<'_>,
    ) -> Vec<ExpectedSubject> {
        let mut subjects = Vec::new();
        for key in ["path", "paths"] {
            for element in read_elements(section, key, faults) {
                subjects.extend(element.parsed(faults, |text| self.path(text, code)));
            }
        }
        for element in read_elements(section, "url", faults) {
            subjects.extend(element.text(faults).map(|url| ExpectedSubject::Url(url.to_owned())));
        }
        for element in read_elements(section, "command", faults) {
            subjects.extend(element.text(faults).map(|command| ExpectedSubject::Command(command.to_owned())));
        }
        subjects
    }

    /// Parses a path or a pattern. The mount must exist, unless its absence is expected.
    fn path(&self, text: &str, code: Option<DenialCode>) -> Result<ExpectedSubject, InvalidValue> {
        let home = self.policy.home();
        let (subject, mount) = if text.contains('*') {
            let pattern = PathPattern::parse(text)?;
            let mount = pattern.mount(home).to_owned();
            (ExpectedSubject::Paths(pattern), mount)
        } else {
            let absolute = if text.starts_with('/') || text.is_empty() {
                text.to_owned()
            } else {
                format!("/{home}/{text}")
            };
            let path = GuestPath::parse(&absolute)?;
            let mount = path.mount().unwrap_or_default().to_owned();
            (ExpectedSubject::Path(path), mount)
        };
        let is_known = self.policy.mounts().iter().any(|known| known.name.as_str() == mount);
        let is_expected = matches!(code, Some(DenialCode::UnknownMount | DenialCode::PathEscapesMount));
        if is_known || is_expected { Ok(subject) } else { Err(self.no_mount(&mount)) }
    }

    fn no_mount(&self, name: &str) -> InvalidValue {
        let known = self.policy.mounts().iter().map(|mount| mount.name.as_str());
        InvalidValue::NotInPolicy { noun: "mount", suggestion: did_you_mean(name, known) }
    }

    fn mount(&self, name: &str) -> Result<MountName, InvalidValue> {
        let found = self.policy.mounts().iter().find(|mount| mount.name.as_str() == name);
        found.map(|mount| mount.name.clone()).ok_or_else(|| self.no_mount(name))
    }

    fn secret(&self, name: &str) -> Result<SecretName, InvalidValue> {
        let known = || self.policy.secrets().map(|(secret, _)| secret);
        let found = known().find(|secret| secret.as_str() == name).cloned();
        found.ok_or_else(|| {
            let names: Vec<&str> = known().map(SecretName::as_str).collect();
            let suggestion = did_you_mean(name, names.iter().copied());
            InvalidValue::NotInPolicy { noun: "secret", suggestion }
        })
    }

    fn label(&self, element: &SectionEntry<'_>, faults: &mut Faults<'_>) -> Option<FlowLabel> {
        element.parsed(faults, |text| match (text, text.split_once(':')) {
            ("vault", _) => self.mount(text).map(|name| FlowLabel::of_mount(&name)),
            ("web", _) => Ok(FlowLabel::Web),
            (_, Some(("mount", name))) => self.mount(name).map(|name| FlowLabel::of_mount(&name)),
            (_, Some(("secret", name))) => self.secret(name).map(FlowLabel::Secret),
            _ => Err(InvalidValue::Label),
        })
    }

    fn read_flow(&self, section: &Section<'_>, faults: &mut Faults<'_>) -> Option<ForbiddenFlow> {
        section.refuse_unknown(keys::NEVER, faults);
        let keys = ["reads", "writes", "reaches"];
        if keys.iter().all(|key| section.entry(key).is_none()) {
            faults.add(section.offset, section.path(), "missing key; write `reads`, `writes` or `reaches`");
        }
        let before = faults.count();
        let reads = section.entry("reads").and_then(|entry| entry.parsed(faults, |text| self.source(text)));
        let writes = section.entry("writes").and_then(|entry| entry.parsed(faults, |text| self.mount(text)));
        let reaches = section.entry("reaches").and_then(|entry| entry.parsed(faults, hosts));
        let only_unasked = section.entry("unasked").and_then(|entry| entry.boolean(faults));
        // A key that cannot be read must not weaken the expectation.
        (faults.count() == before).then(|| ForbiddenFlow {
            name: text(section, "name", faults),
            location: location(section, faults),
            reads,
            writes,
            reaches,
            only_unasked: only_unasked.unwrap_or_default(),
        })
    }

    fn source(&self, text: &str) -> Result<ExpectedSource, InvalidValue> {
        match text.split_once(':') {
            None if text == "web" => Ok(ExpectedSource::Web),
            None => self.mount(text).map(ExpectedSource::Mount),
            Some(("mount", name)) => self.mount(name).map(ExpectedSource::Mount),
            Some(("secret", name)) => self.secret(name).map(ExpectedSource::Secret),
            Some(("env", name)) => {
                let known: Vec<&str> = self
                    .policy
                    .shell()
                    .into_iter()
                    .flat_map(|shell| shell.environment.iter().map(|variable| variable.as_str()))
                    .collect();
                if known.contains(&name) {
                    Ok(ExpectedSource::Variable(name.to_owned()))
                } else {
                    let suggestion = did_you_mean(name, known.iter().copied());
                    Err(InvalidValue::NoVariable { suggestion })
                }
            }
            Some(_) => Err(InvalidValue::Source),
        }
    }
}

/// Parses the hosts of `reaches`: all, a rule of `hosts`, or a host with any scheme and port.
fn hosts(text: &str) -> Result<ExpectedHosts, InvalidHostRule> {
    let rule = |text: &str| text.parse::<HostRule>();
    match text {
        "web" => Ok(ExpectedHosts::Any),
        _ if text.contains("://") => rule(text).map(ExpectedHosts::Rule),
        _ => rule(&format!("https://{text}")).map(ExpectedHosts::Host),
    }
}

fn pinned_digest(section: &Section<'_>, faults: &mut Faults<'_>) -> Option<PinnedDigest> {
    section.refuse_unknown(keys::UNCHANGED, faults);
    let digest = match section.entry("digest") {
        Some(entry) => entry.parsed(faults, |text| {
            let is_digest = (MIN_DIGEST_CHARS..=DIGEST_CHARS).contains(&text.len())
                && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            if is_digest { Ok(text.to_ascii_lowercase()) } else { Err(InvalidValue::Digest) }
        }),
        None => {
            faults.add(section.offset, &section.path_of("digest"), "missing key");
            None
        }
    };
    let until = match section.entry("until") {
        Some(entry) => Some(entry.day(faults, Day::parse)?),
        None => None,
    };
    let by = text(section, "by", faults);
    Some(PinnedDigest { location: location(section, faults), digest: digest?, until, by })
}

/// Reads how paths are accessed. Without the key, both accesses are meant.
fn access(section: &Section<'_>, faults: &mut Faults<'_>) -> Vec<Access> {
    let both = || vec![Access::Read, Access::Write];
    let words = |word: &'static str| word;
    let parser = choice_parser("access", ["read", "write", "any"], words);
    match section.entry("access").and_then(|entry| entry.parsed(faults, parser)) {
        Some("read") => vec![Access::Read],
        Some("write") => vec![Access::Write],
        _ => both(),
    }
}

/// Returns the elements of a list, or the single value. Empty if the key is absent.
fn read_elements<'t>(section: &Section<'t>, key: &str, faults: &mut Faults<'_>) -> Vec<SectionEntry<'t>> {
    let Some(entry) = section.entry(key) else { return Vec::new() };
    if !entry.is_list() {
        return vec![entry];
    }
    let elements = entry.list(faults).unwrap_or_default();
    // Otherwise `paths = []` would mean the calls that name no subject.
    if elements.is_empty() {
        entry.refuse(faults, "an empty list; write at least one element, or remove the key");
    }
    if elements.len() > MAX_ELEMENTS {
        entry.refuse(faults, format!("{} elements; at most {MAX_ELEMENTS} are allowed", elements.len()));
        return Vec::new();
    }
    elements
}

fn text(section: &Section<'_>, key: &str, faults: &mut Faults<'_>) -> Option<String> {
    section.entry(key)?.text(faults).map(str::to_owned)
}

fn location(section: &Section<'_>, faults: &Faults<'_>) -> SourceLocation {
    let PolicyFault { file, line, column, .. } = faults.fault_at(section.offset, "", "");
    SourceLocation { file, line, column }
}
