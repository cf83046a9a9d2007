//! [`Denial`]: a refusal as a value, with the refused subject, the reason, and an alternative for the model.

use std::fmt;

use portcullis_types::{EscapedText, ToolError};
use serde::Serialize;

/// The refusal of a call. It names guest paths, names of the policy, and the call's own commands and
/// addresses, but no host path and no secret, so a model may see all of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Denial {
    /// The stable code.
    pub code: DenialCode,
    /// The rule that refuses the call, as a path in the policy, such as `profiles.FileReadOnly.mounts.vault`.
    pub rule: String,
    /// The refused subject: a guest path, an address, a command, or a tool's name.
    pub subject: String,
    /// A hint about an alternative for the model. May be empty.
    pub hint: String,
}

portcullis_types::word_enum! {
    /// The stable codes of all denials. Other crates raise some of them: for links, special files, approvals, hooks and
    /// requests.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
    pub enum DenialCode {
        /// `..` leads out of the mount.
        PathEscapesMount = "path_escapes_mount",
        /// The path is not below any mount of the policy.
        UnknownMount = "unknown_mount",
        /// The tool's profile does not grant the path's mount.
        MountNotGranted = "mount_not_granted",
        /// The tool's profile grants the path's mount for reading only.
        MountReadOnly = "mount_read_only",
        /// The path is protected: no tool may write it.
        ProtectedPath = "protected_path",
        /// A name in the path is hidden: no tool may see it.
        HiddenPath = "hidden_path",
        /// A link leads out of the mount. Raised where files are opened.
        LinkEscapesMount = "link_escapes_mount",
        /// The path is a FIFO, a socket or a device. Raised where files are opened.
        SpecialFile = "special_file",
        /// The file has hard links: the call would also read or change it under its other names. Raised where files are
        /// opened.
        HardLink = "hard_link",
        /// The file may be a hard link to a private file: there are too many private files to compare, or they could
        /// not be examined in time. Raised where files are opened.
        LinksUnknown = "links_unknown",
        /// The tool has `enabled = false`.
        ToolDisabled = "tool_disabled",
        /// The tool's module or its declarations differ from what the operator approved.
        ModuleChanged = "module_changed",
        /// The tool is a native tool of an embedder and is not enabled by name.
        NativeNotEnabled = "native_not_enabled",
        /// The policy, or the calling program, denies the tool's calls.
        ApprovalDenied = "approval_denied",
        /// A person was asked and refused. Raised where people are asked.
        ApprovalRefused = "approval_refused",
        /// There is no approver, or asking failed. Raised where people are asked.
        ApprovalUnavailable = "approval_unavailable",
        /// No answer arrived in time. Raised where people are asked.
        ApprovalTimedOut = "approval_timed_out",
        /// A hook of the embedding program refuses the call. Raised where hooks are asked.
        HookRefused = "hook_refused",
        /// The tool's profile has no hosts.
        EgressNotGranted = "egress_not_granted",
        /// The text is not a URL that can be fetched.
        UrlRefused = "url_refused",
        /// The tool does not declare the URL's scheme, host and port. Raised where requests are made.
        HostNotDeclared = "host_not_declared",
        /// No rule of the tool's profile covers the URL's scheme, host and port.
        HostNotGranted = "host_not_granted",
        /// The tool's profile does not grant the request's method.
        MethodNotGranted = "method_not_granted",
        /// The address is not public or belongs to a metadata service, and the policy does not allow it explicitly.
        /// Raised before and after a name is resolved.
        AddressNotPublic = "address_not_public",
        /// A redirect leads from `https` to `http`, or exceeds the allowed number of redirects.
        RedirectRefused = "redirect_refused",
        /// The host's `robots.txt` disallows the page. Raised where pages are requested.
        RobotsDisallowed = "robots_disallowed",
        /// The host's `robots.txt` cannot be read, which disallows every page. Raised where pages are requested.
        RobotsUnreadable = "robots_unreadable",
        /// The policy grants no shell, or does not grant it to this tool.
        CommandsNotGranted = "commands_not_granted",
        /// The policy's shell has `enabled = false`.
        ShellDisabled = "shell_disabled",
        /// A rule of the policy's shell refuses the command.
        CommandDenied = "command_denied",
        /// A flow rule denies the call because of what earlier calls of its run have read.
        FlowDenied = "flow_denied",
        /// The call would write a file of a protected kind that its arguments do not name, in a run to which a flow
        /// rule about protected kinds applies. Raised where files are opened.
        KindWithheld = "kind_withheld",
    }
}

impl Denial {
    /// Returns the message for a model, without the hint. Characters that a terminal would act on are
    /// escaped.
    #[must_use]
    pub fn message(&self) -> String {
        // The subject can be text from a model, which must not control the operator's terminal.
        let subject = EscapedText(&self.subject);
        match self.code {
            DenialCode::PathEscapesMount => format!("`{subject}` leads out of its mount"),
            DenialCode::UnknownMount => format!("`{subject}` is not below any mount"),
            DenialCode::MountNotGranted => format!("`{subject}` is in a mount that this tool does not have"),
            DenialCode::MountReadOnly => format!("`{subject}` is read-only for this tool"),
            DenialCode::ProtectedPath => format!("`{subject}` is protected and never written by a tool"),
            DenialCode::HiddenPath => format!("`{subject}` has a name that is hidden from tools"),
            DenialCode::LinkEscapesMount => {
                format!("`{subject}` is or passes a link that leads out of its mount")
            }
            DenialCode::SpecialFile => format!("`{subject}` is neither a file nor a directory"),
            DenialCode::HardLink => format!("`{subject}` has other names (hard links)"),
            DenialCode::LinksUnknown => {
                format!("`{subject}` may be a private file under another name (a hard link)")
            }
            DenialCode::ToolDisabled => format!("tool `{subject}` is disabled by policy"),
            DenialCode::ModuleChanged => {
                format!("tool `{subject}` is quarantined: it differs from what was approved")
            }
            DenialCode::NativeNotEnabled => {
                format!("tool `{subject}` runs outside the sandbox and is not enabled by policy")
            }
            DenialCode::ApprovalDenied => format!("calls of `{subject}` are denied by policy"),
            DenialCode::ApprovalRefused => format!("the call of `{subject}` was not approved"),
            DenialCode::ApprovalUnavailable => {
                format!("the call of `{subject}` needs an approval, and no approver is available")
            }
            DenialCode::ApprovalTimedOut => {
                format!("the call of `{subject}` needs an approval, and no answer came in time")
            }
            DenialCode::HookRefused => {
                format!("the call of `{subject}` was refused by the embedding program")
            }
            DenialCode::EgressNotGranted => format!("reaching `{subject}` is not granted"),
            DenialCode::UrlRefused => format!("`{subject}` is not a URL that can be fetched"),
            DenialCode::HostNotDeclared => {
                format!("`{subject}` is not among the hosts that this tool declares")
            }
            DenialCode::HostNotGranted => format!("`{subject}` is not among the hosts of this tool"),
            DenialCode::MethodNotGranted => format!("the method of `{subject}` is not granted"),
            DenialCode::AddressNotPublic => format!("`{subject}` does not resolve to a public address"),
            DenialCode::RedirectRefused => format!("the redirect at `{subject}` is not followed"),
            DenialCode::RobotsDisallowed => format!("`{subject}` is not requested: robots.txt disallows it"),
            DenialCode::RobotsUnreadable => {
                format!("`{subject}` is not requested: robots.txt of its host cannot be read")
            }
            DenialCode::CommandsNotGranted => format!("running `{subject}` is not granted"),
            DenialCode::ShellDisabled => {
                format!("running `{subject}` is not possible: the shell is disabled by policy")
            }
            DenialCode::CommandDenied => format!("running `{subject}` is denied by policy"),
            DenialCode::KindWithheld => {
                format!(
                    "`{subject}` is not written by a call that does not name it, after what this run has read"
                )
            }
            DenialCode::FlowDenied => format!("calling `{subject}` is denied after what this run has read"),
        }
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())?;
        if self.hint.is_empty() { Ok(()) } else { write!(f, " ({})", self.hint) }
    }
}

impl From<Denial> for ToolError {
    fn from(denial: Denial) -> Self {
        let error = Self::denied(denial.message())
            .with_code(denial.code.as_str())
            // Only the operator reads the rule: it can contain an address that the model must not learn.
            .with_operator_detail(format!("refused by {}", denial.rule));
        if denial.hint.is_empty() { error } else { error.with_hint(denial.hint) }
    }
}

#[cfg(test)]
mod tests {
    use portcullis_types::ToolErrorKind;

    use super::*;

    #[test]
    fn every_code_has_its_own_name_and_message() {
        let denial = |code| Denial { code, rule: "r".into(), subject: "s".into(), hint: String::new() };
        for (index, code) in DenialCode::ALL.iter().enumerate() {
            assert_eq!(serde_json::to_value(code).expect("serializes"), code.as_str());
            for earlier in &DenialCode::ALL[..index] {
                assert_ne!(code.as_str(), earlier.as_str());
                assert_ne!(denial(*code).message(), denial(*earlier).message());
            }
        }
    }

    #[test]
    fn a_denial_becomes_a_tool_error_with_code_message_and_hint() {
        let denial = Denial {
            code: DenialCode::MountReadOnly,
            rule: "profiles.FileReadOnly.mounts.vault".into(),
            subject: "/vault/\u{1b}[2Jx".into(),
            hint: "nothing is writable for this tool".into(),
        };
        let error = ToolError::from(denial);
        assert_eq!(error.kind(), ToolErrorKind::Denied);
        assert_eq!(error.code(), "mount_read_only");
        assert_eq!(
            error.to_string(),
            "`/vault/\\u{1b}[2Jx` is read-only for this tool (nothing is writable for this tool)"
        );
        assert_eq!(error.operator_detail(), Some("refused by profiles.FileReadOnly.mounts.vault"));
    }
}
