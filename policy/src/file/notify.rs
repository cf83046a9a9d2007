//! Reads `[notify]` of an operator's policy.

use crate::notify::{MailAddress, MailServer, MailSettings, MailUser, NotifySettings, NotifyUrl};

use super::{Faults, keys, section::Section, value::parse_text};

/// Reads the section.
pub(super) fn read_notify(section: &Section<'_>, faults: &mut Faults<'_>) -> Option<NotifySettings> {
    section.refuse_unknown(keys::NOTIFY, faults);
    // Read all keys before the first `?`, because each mistake is a separate fault.
    let slack = section.entry("slack").map(|entry| entry.parsed(faults, parse_text::<NotifyUrl>));
    let discord = section.entry("discord").map(|entry| entry.parsed(faults, parse_text::<NotifyUrl>));
    let server = section.entry("email").map(|entry| entry.parsed(faults, parse_text::<MailServer>));
    let from = section.entry("from").map(|entry| entry.parsed(faults, parse_text::<MailAddress>));
    let user = section.entry("user").map(|entry| entry.parsed(faults, parse_text::<MailUser>));
    let email = match (server, from) {
        (Some(server), Some(from)) => Some(MailSettings { server: server?, from: from?, user: given(user)? }),
        (Some(_), None) => {
            let message = "missing key; a message needs a sender, such as \"agent@example.com\"";
            faults.add(section.offset, &section.path_of("from"), message);
            return None;
        }
        (None, _) => {
            for name in ["from", "user"] {
                if let Some(entry) = section.entry(name) {
                    let message = "this key applies only to e-mail; set `email`, or remove this line";
                    faults.add(entry.key_offset, &entry.path, message);
                }
            }
            None
        }
    };
    // A wrong value was reported above, and must not count as a missing one.
    let (slack, discord) = (given(slack)?, given(discord)?);
    if slack.is_none() && discord.is_none() && email.is_none() {
        let message = "missing key; write one of `slack`, `discord`, `email`";
        faults.add(section.offset, section.path(), message);
        return None;
    }
    Some(NotifySettings { slack, discord, email })
}

/// Returns the value of a key that may be absent, or `None` if the key has a wrong value.
fn given<T>(entry: Option<Option<T>>) -> Option<Option<T>> {
    match entry {
        None => Some(None),
        Some(value) => value.map(Some),
    }
}
