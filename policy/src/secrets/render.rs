//! Renders secrets as sections of a policy file and for the summary. Values are not known here.

use std::{
    collections::BTreeMap,
    fmt::{self, Display, Write},
};

use crate::{
    SecretName,
    render::{quote, quoted_texts},
};

use super::SecretRule;

/// Writes the secrets in the syntax of a policy file.
pub(crate) fn write_secrets(out: &mut String, secrets: &BTreeMap<SecretName, SecretRule>) -> fmt::Result {
    for (name, rule) in secrets {
        let SecretRule { source, hosts, header, tools, enabled } = rule;
        writeln!(out, "\n[secrets.{name}]\nfrom = {}", quote(&source.to_string()))?;
        writeln!(out, "hosts = [{}]", quoted_texts(&texts(hosts)))?;
        writeln!(out, "header = {}", quote(&header.to_string()))?;
        writeln!(out, "tools = [{}]", quoted_texts(&texts(tools)))?;
        if !enabled {
            writeln!(out, "enabled = false")?;
        }
    }
    Ok(())
}

/// Writes one line per secret, for display.
pub(crate) fn write_secrets_summary(
    out: &mut String,
    secrets: &BTreeMap<SecretName, SecretRule>,
) -> fmt::Result {
    if !secrets.is_empty() {
        writeln!(out, "\nsecrets: the host attaches them, no tool sees them")?;
    }
    for (name, rule) in secrets {
        writeln!(out, "  {:<24} {}", name, rule.audience())?;
    }
    Ok(())
}

impl SecretRule {
    /// Returns the source and the audience in one line, for people.
    #[must_use]
    pub fn audience(&self) -> String {
        let Self { source, hosts, header, tools, enabled } = self;
        let (hosts, tools) = (texts(hosts).join(", "), texts(tools).join(", "));
        let disabled_note = if *enabled { "" } else { ", disabled" };
        format!(
            "{}, in `{}` to {hosts}, for {tools}{disabled_note}",
            quote(&source.to_string()),
            header.name()
        )
    }
}

fn texts<T: Display>(values: impl IntoIterator<Item = T>) -> Vec<String> {
    values.into_iter().map(|value| value.to_string()).collect()
}
