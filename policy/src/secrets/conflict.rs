//! Conflicts between secrets, and between a secret and the shell.

use crate::file::{Faults, PolicyFile, SecretEntry};

/// Refuses two secrets that could set the same header of one request. The request can carry one of them only,
/// and the policy must say which.
pub(crate) fn check_headers(file: &PolicyFile, faults: &mut Faults<'_>) {
    for (index, later) in file.secrets.iter().enumerate() {
        let meets = |earlier: &&SecretEntry| {
            let same_tool =
                later.tools.iter().any(|tool| earlier.tools.iter().any(|it| it.value == tool.value));
            let same_host = later.hosts.iter().any(|host| {
                let overlaps =
                    |it: &crate::HostRule| it.covers_rule(&host.value) || host.value.covers_rule(it);
                earlier.hosts.iter().any(|it| overlaps(&it.value))
            });
            same_tool && same_host && earlier.header.value.name() == later.header.value.name()
        };
        if let Some(earlier) = file.secrets[..index].iter().find(meets) {
            let (name, header) = (&earlier.name.value, later.header.value.name());
            faults.add_at(
                &later.header,
                format!("`{name}` sets `{header}` for the same tool and host; a request carries one of them"),
            );
        }
    }
}

/// A variable with a secret must not be one that commands get.
pub(crate) fn check_environment(file: &PolicyFile, faults: &mut Faults<'_>) {
    let variables = file.shell.iter().flat_map(|shell| shell.environment.iter().flatten());
    for variable in variables {
        let holds = |entry: &&SecretEntry| matches!(&entry.source, crate::SecretSource::Environment(name) if name == variable.value.as_str());
        if let Some(secret) = file.secrets.iter().find(holds) {
            let name = &secret.name.value;
            faults.add_at(
                variable,
                format!("this is the secret `{name}`, which no command gets; leave it out"),
            );
        }
    }
}
