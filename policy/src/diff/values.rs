//! Compares values of the canonical form of a policy, each by the rule of its key.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Direction, EffectChange};
use crate::HostRule;

/// The way in which two values are ordered from less to more.
#[derive(Debug, Clone, Copy)]
enum Order {
    /// A larger number gives more.
    Number,
    /// A longer set gives more.
    Grants,
    /// A set of rules about hosts, one of which can cover another.
    Hosts,
    /// A longer set gives less.
    Restricts,
    /// A list of sets, each of which must allow a call; `[]` allows every call.
    AllMustAllow,
    /// A set of what is allowed; `null` allows everything.
    AllowedOrAll,
    /// Words, ordered from the one that gives least.
    Words(&'static [&'static str]),
    /// Presence gives more.
    Presence,
    /// Any difference needs a review.
    Unordered,
}

/// The order of each key that has one. A key without an entry is compared element by element if it is a table, and is
/// otherwise [`Order::Unordered`].
const ORDERS: &[(&str, Order)] = &[
    ("audit_sync", Order::Words(&["always", "interval"])),
    ("egress.allow_private", Order::Grants),
    ("egress.max_redirects", Order::Number),
    ("egress.max_response_bytes", Order::Number),
    ("egress.robots", Order::Words(&["obey", "ignore"])),
    ("flow", Order::Restricts),
    ("hide", Order::Restricts),
    ("kinds.endings", Order::Restricts),
    ("kinds.names", Order::Restricts),
    ("kinds", Order::Restricts),
    ("limits.*", Order::Number),
    ("modules_dir", Order::Presence),
    ("protect", Order::Restricts),
    ("require", Order::Restricts),
    ("notify", Order::Presence),
    ("search", Order::Presence),
    ("secrets.*", Order::Presence),
    ("secrets.*.enabled", Order::Words(&["false", "true"])),
    ("secrets.*.hosts", Order::Hosts),
    ("secrets.*.tools", Order::Grants),
    ("shell", Order::Presence),
    ("shell.commands.allow", Order::AllMustAllow),
    ("shell.commands.deny", Order::Restricts),
    ("shell.commands.operators", Order::AllowedOrAll),
    ("shell.commands.unasked", Order::Grants),
    ("shell.environment", Order::Grants),
    ("shell.file_size_bytes", Order::Number),
    ("shell.hosts", Order::Hosts),
    ("shell.memory_bytes", Order::Number),
    ("shell.output_bytes", Order::Number),
    ("shell.posture", Order::Words(&["strong", "contained", "minimal", "none"])),
    ("shell.processes", Order::Number),
    ("shell.timeout_ms", Order::Number),
    ("shell.toolchain.caches", Order::Grants),
    ("shell.toolchain.read", Order::Grants),
    ("with_undo", Order::Restricts),
];

/// The mounts of the shell. Their effect is compared as the grants of `shell_exec`.
const SHELL_MOUNTS: &str = "shell.mounts";

/// Adds the differences of two values of a key.
pub(super) fn compare(key: &str, old: &Value, new: &Value, changes: &mut Vec<EffectChange>) {
    if old == new || key == SHELL_MOUNTS {
        return;
    }
    let order = order_of(key);
    // A missing table without its own order has the same meaning as an empty one.
    let empty = Value::Object(serde_json::Map::new());
    let (old, new) = match (order, old, new) {
        (Order::Unordered, Value::Null, Value::Object(_)) => (&empty, new),
        (Order::Unordered, Value::Object(_), Value::Null) => (old, &empty),
        _ => (old, new),
    };
    if let (Value::Object(old), Value::Object(new)) = (old, new) {
        let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for name in keys {
            let null = Value::Null;
            let (before, after) = (old.get(name).unwrap_or(&null), new.get(name).unwrap_or(&null));
            compare(&format!("{key}.{name}"), before, after, changes);
        }
        return;
    }
    let mut add = |direction, old: String, new: String| {
        changes.push(EffectChange {
            direction,
            subject: key.to_owned(),
            aspect: String::new(),
            old,
            new,
            rule: key.to_owned(),
        });
    };
    let added = match order {
        Order::Grants | Order::Hosts => Some(Direction::Wider),
        Order::Restricts => Some(Direction::Narrower),
        Order::Number
        | Order::AllMustAllow
        | Order::AllowedOrAll
        | Order::Words(_)
        | Order::Presence
        | Order::Unordered => None,
    };
    let Some(added) = added.filter(|_| is_set(old) && is_set(new)) else {
        return add(direction(order, old, new), value_text(old), value_text(new));
    };
    let (old, new) = (elements(old), elements(new));
    let element_changes =
        if matches!(order, Order::Hosts) { host_changes(&old, &new) } else { set_changes(&old, &new, added) };
    for (direction, element) in element_changes {
        let (before, after) = presence(direction == added, element);
        add(direction, before, after);
    }
}

fn direction(order: Order, old: &Value, new: &Value) -> Direction {
    let wider_if = |is_wider: bool| if is_wider { Direction::Wider } else { Direction::Narrower };
    match order {
        Order::Number => match (old.as_u64(), new.as_u64()) {
            (Some(old), Some(new)) => wider_if(new > old),
            _ => Direction::Changed,
        },
        Order::Presence if old.is_null() || new.is_null() => wider_if(old.is_null()),
        Order::Words(words) => {
            let position = |value: &Value| words.iter().position(|word| *word == value_text(value));
            match (position(old), position(new)) {
                (Some(old), Some(new)) => wider_if(new > old),
                _ => Direction::Changed,
            }
        }
        Order::AllMustAllow => {
            let (old, new) = (elements(old), elements(new));
            // A further list takes permissions away, so a superset of the lists allows less.
            if new.is_superset(&old) {
                Direction::Narrower
            } else if old.is_superset(&new) {
                Direction::Wider
            } else {
                Direction::Changed
            }
        }
        Order::AllowedOrAll if old.is_null() || new.is_null() => wider_if(new.is_null()),
        Order::AllowedOrAll => {
            let (old, new) = (elements(old), elements(new));
            if new.is_superset(&old) {
                Direction::Wider
            } else if old.is_superset(&new) {
                Direction::Narrower
            } else {
                Direction::Changed
            }
        }
        Order::Grants | Order::Hosts | Order::Restricts | Order::Presence | Order::Unordered => {
            Direction::Changed
        }
    }
}

fn order_of(key: &str) -> Order {
    let is_match = |pattern: &str| {
        let (pattern, key) = (pattern.split('.'), key.split('.'));
        pattern.clone().count() == key.clone().count()
            && pattern.zip(key).all(|(pattern, name)| pattern == "*" || pattern == name)
    };
    ORDERS.iter().find(|(pattern, _)| is_match(pattern)).map_or(Order::Unordered, |(_, order)| *order)
}

/// Returns the elements that only one of two sets has, in order. `added` is the direction of an element that
/// only the new set has.
pub(super) fn set_changes<'a>(
    old: &'a BTreeSet<String>,
    new: &'a BTreeSet<String>,
    added: Direction,
) -> Vec<(Direction, &'a str)> {
    let removed = match added {
        Direction::Wider => Direction::Narrower,
        Direction::Changed => Direction::Changed,
        Direction::Narrower => Direction::Wider,
    };
    let removals = old.difference(new).map(|element| (removed, element.as_str()));
    removals.chain(new.difference(old).map(|element| (added, element.as_str()))).collect()
}

/// Returns the rules about hosts that only one of two sets has, without those that a rule of the other set
/// covers.
pub(super) fn host_changes<'a>(
    old: &'a BTreeSet<String>,
    new: &'a BTreeSet<String>,
) -> Vec<(Direction, &'a str)> {
    let covers = |rules: &BTreeSet<String>, text: &str| {
        let parse = |text: &str| text.parse::<HostRule>().ok();
        parse(text).is_some_and(|rule| {
            rules.iter().filter_map(|known| parse(known)).any(|known| known.covers_rule(&rule))
        })
    };
    let changes = set_changes(old, new, Direction::Wider).into_iter();
    changes
        .filter(|(direction, text)| !covers(if *direction == Direction::Wider { old } else { new }, text))
        .collect()
}

/// Returns the old and the new value of an element that one of two sets has.
pub(super) fn presence(is_in_new: bool, element: &str) -> (String, String) {
    if is_in_new { (ABSENT.to_owned(), element.to_owned()) } else { (element.to_owned(), ABSENT.to_owned()) }
}

const ABSENT: &str = "–";

/// Returns whether a value is a set. A missing one is the empty set.
fn is_set(value: &Value) -> bool {
    value.is_array() || value.is_null()
}

fn elements(value: &Value) -> BTreeSet<String> {
    value.as_array().into_iter().flatten().map(value_text).collect()
}

fn value_text(value: &Value) -> String {
    match value {
        Value::Null => ABSENT.to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}
