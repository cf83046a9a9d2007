//! Conflicts between secrets, and between a secret and the shell.

use crate::file::{Faults, PolicyFile, SecretEntry};

/// Refuses two secrets that could set the same header of one request. The request can carry only one of them,
/// so the policy must say which.
pub(crate) fn check_headers(file: &PolicyFile, faults: &mut Faults<'_>) {
    for (index, later) in file.secrets.iter().enumerate() {
        let conflicts = |earlier: &&SecretEntry| {
            let same_tool = later
                .tools
                .iter()
                .any(|tool| earlier.tools.iter().any(|earlier_tool| earlier_tool.value == tool.value));
            let same_host = later.hosts.iter().any(|host| {
                // Two host patterns overlap only if one of them covers the other.
                let overlaps =
                    |rule: &crate::HostRule| rule.covers_rule(&host.value) || host.value.covers_rule(rule);
                earlier.hosts.iter().any(|earlier_host| overlaps(&earlier_host.value))
            });
            same_tool && same_host && earlier.header.value.name() == later.header.value.name()
        };
        if let Some(earlier) = file.secrets[..index].iter().find(conflicts) {
            let (name, header) = (&earlier.name.value, later.header.value.name());
            faults.add_at(
                &later.header,
                format!("`{name}` sets `{header}` for the same tool and host; a request carries one of them"),
            );
        }
    }
}

/// Refuses a shell variable that is the source of a secret, because commands must not get the value.
pub(crate) fn check_environment(file: &PolicyFile, faults: &mut Faults<'_>) {
    let variables = file.shell.iter().flat_map(|shell| shell.environment.iter().flatten());
    for variable in variables {
        let uses_variable = |entry: &&SecretEntry| matches!(&entry.source, crate::SecretSource::Environment(name) if name == variable.value.as_str());
        if let Some(secret) = file.secrets.iter().find(uses_variable) {
            let name = &secret.name.value;
            faults.add_at(
                variable,
                format!("this is the secret `{name}`, which no command gets; leave it out"),
            );
        }
    }
}
