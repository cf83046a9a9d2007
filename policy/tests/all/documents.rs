//! Compares the numbers and lists in the documents with the shipped values.

use std::{fs, path::Path};

use portcullis_policy::{
    DEFAULT_POLICY, DenialCode, EgressSettings, Limits, MAX_URL_BYTES, ToolOrigin, shipped_tools,
};

use crate::support::{BASE, load, try_load};

/// A document of the repository.
fn document(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("below the root");
    fs::read_to_string(root.join(path)).expect("readable")
}

/// The words in backticks of a text.
fn words(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[test]
fn the_table_of_denials_has_every_code_and_no_other() {
    let text = document("docs/policy.md");
    let (_, section) = text.split_once("| `path_escapes_mount` |").expect("the table's first row");
    let documented =
        section.lines().take_while(|line| line.is_empty() || line.starts_with('|') || line.starts_with(' '));
    let mut documented: Vec<&str> =
        documented.filter(|line| line.starts_with("| `")).map(|line| words(line)[0]).collect();
    documented.push("path_escapes_mount");
    documented.sort_unstable();
    let mut codes = DenialCode::ALL.map(DenialCode::as_str);
    codes.sort_unstable();
    assert_eq!(documented, codes);
}

#[test]
fn the_table_of_origins_has_every_shipped_tool() {
    let text = document("docs/policy.md");
    let cell = |beginning: &str| {
        text.lines().find_map(|line| line.strip_prefix(beginning)?.split(" | ").next()).expect("a row")
    };
    let (_, operations) = text.split_once("An operation runs in steps").expect("the list of operations");
    let (operations, _) = operations.split_once("| origin |").expect("the table after the list");
    for (location, origin) in [
        (cell("| core module: "), ToolOrigin::ShippedModule),
        (operations, ToolOrigin::ShippedOperation),
        (cell("| shipped native: "), ToolOrigin::ShippedNative),
    ] {
        let mut listed = words(location);
        listed.sort_unstable();
        let tools = shipped_tools().filter(|tool| tool.origin == origin);
        let shipped: Vec<String> = tools.map(|tool| tool.name.to_string()).collect();
        assert_eq!(listed, shipped, "{origin:?}");
    }
}

#[test]
fn the_protected_names_are_listed_as_they_are_shipped() {
    let policy: toml::Table = DEFAULT_POLICY.parse().expect("TOML");
    let list = |key: &str| -> Vec<&str> {
        let list = policy["protect"][key].as_array().expect("a list");
        list.iter().filter_map(|name| name.as_str()).collect()
    };
    let shipped = list("paths");
    let text = document("docs/policy.md");
    let (_, documented) = text.split_once("which hold in every policy: ").expect("the list");
    assert_eq!(words(documented.lines().next().expect("a line")), shipped);
    let changes = document("CHANGELOG.md");
    let line = changes.lines().find(|line| line.starts_with("- No tool writes")).expect("a line");
    // The line gives examples; the manual has the full list.
    assert!(!words(line).is_empty() && words(line).iter().all(|name| shipped.contains(name)), "{line}");
    // The manual groups the kinds by their purpose.
    let (_, groups) = text.split_once("which hold in every policy:\n\n").expect("the kinds");
    let (groups, _) = groups.split_once("\n\n").expect("their end");
    let (mut documented, mut kinds) = (words(groups), list("kinds"));
    documented.sort_unstable();
    kinds.sort_unstable();
    assert_eq!(documented, kinds);
}

#[test]
fn egress_defaults_match_the_shipped_policy_and_documents() {
    let egress = EgressSettings::default();
    let shipped: toml::Table = DEFAULT_POLICY.parse().expect("TOML");
    let shipped = shipped["egress"].as_table().expect("a table");
    assert_eq!(shipped["max_response"].as_str(), Some(&*egress.max_response.to_string()));
    assert_eq!(shipped["max_redirects"].as_integer(), Some(egress.max_redirects.into()));
    let response = egress.max_response.to_string().replace("MiB", " MiB");
    for (key, value) in [("max_response", response), ("max_redirects", egress.max_redirects.to_string())] {
        let beginning = format!("| `{key}` | {value} |");
        assert!(document("docs/policy.md").contains(&beginning), "docs/policy.md has no row {beginning}");
        let row = format!("(`{key}`) | {value} |");
        assert!(document("docs/limits.md").contains(&row), "docs/limits.md has no row {row}");
    }
    assert_eq!(shipped["robots"].as_str(), Some(egress.robots.as_str()));
    let row = format!("| `robots` | `\"{}\"` |", egress.robots);
    assert!(document("docs/policy.md").contains(&row), "docs/policy.md has no row {row}");
    let bytes = format!("{},{:03} bytes", MAX_URL_BYTES / 1000, MAX_URL_BYTES % 1000);
    for path in ["docs/policy.md", "docs/limits.md"] {
        assert!(document(path).contains(&bytes), "{path}");
    }
}

#[test]
fn the_default_limits_are_those_of_policy_and_documents() {
    let limits = Limits::default();
    let shipped: toml::Table = DEFAULT_POLICY.parse().expect("TOML");
    let shipped = shipped["limits"].as_table().expect("a table");
    // The documents write `16 KiB` for the policy's `16KiB`.
    let sized = |size: String| size.replace("KiB", " KiB").replace("MiB", " MiB");
    let output = sized(limits.max_output_bytes.to_string());
    let memory = sized(limits.wasm_memory.to_string());
    let defaults: [(&str, String); 4] = [
        ("concurrency", limits.concurrency.to_string()),
        ("calls_per_minute", limits.calls_per_minute.to_string()),
        ("max_output_bytes", output.clone()),
        ("wasm_memory", memory),
    ];
    for (key, value) in &defaults {
        let in_file = match &shipped[*key] {
            toml::Value::String(text) => text.clone(),
            toml::Value::Integer(number) => number.to_string(),
            other => panic!("{key}: {other:?}"),
        };
        assert_eq!(in_file, value.replace(' ', ""), "{key} in default.toml");
        let beginning = format!("| `{key}` | {value} |");
        assert!(document("docs/policy.md").contains(&beginning), "docs/policy.md has no row {beginning}");
        let of_limits = document("docs/limits.md");
        let row =
            of_limits.lines().find(|line| line.contains(&format!("(`{key}`"))).expect("a row of limits.md");
        assert!(row.contains(&format!("| {value}")), "docs/limits.md: {row}");
    }
    let operating = document("docs/operating.md");
    assert!(operating.contains(&format!("`max_output_bytes` ({output})")), "docs/operating.md");
    let minutes = limits.max_timeout.as_secs() / 60;
    assert_eq!(shipped["max_timeout"].as_str(), Some(&*format!("{minutes}m")));
    let policy = document("docs/policy.md");
    assert!(policy.contains(&format!("| `max_timeout` | {minutes} min |")), "docs/policy.md");
    let row = document("docs/limits.md");
    assert!(row.contains(&format!("(`max_timeout`) | {minutes} min |")), "docs/limits.md");
}

/// A key, its default as a policy writes it, and its bounds as the documents and as a policy write them.
type Bounded<'a> = (&'a str, &'a str, [(&'a str, &'a str); 2], [&'a str; 2]);

/// Checks that each key of a section accepts its least and its most value, and no value beyond them.
#[track_caller]
fn check_bounds(section: &str, (key, _, bounds, beyond): &Bounded<'_>) {
    let is_accepted = |value: &str| {
        let lift = if section == "shell" { "[limits]\nmax_timeout = \"24h\"\n" } else { "" };
        try_load(&format!("{BASE}\n{lift}[{section}]\n{key} = {value}\n"), None).is_ok()
    };
    for (_, value) in bounds {
        assert!(is_accepted(value), "[{section}] {key} = {value}");
    }
    for value in beyond {
        assert!(!is_accepted(value), "[{section}] {key} = {value}");
    }
}

#[test]
fn the_bounds_of_limits_are_those_of_the_documents() {
    let output = Limits::default().max_output_bytes.to_string().replace("KiB", " KiB");
    let table: [Bounded<'_>; 5] = [
        ("concurrency", "10", [("1", "1"), ("1,024", "1024")], ["0", "1025"]),
        ("calls_per_minute", "600", [("1", "1"), ("1,000,000", "1000000")], ["0", "1000001"]),
        ("max_output_bytes", output.as_str(), [("1 B", "1"), ("64 MiB", "\"64MiB\"")], ["0", "67108865"]),
        ("wasm_memory", "64 MiB", [("64 KiB", "65536"), ("4 GiB", "\"4GiB\"")], ["65535", "4294967297"]),
        ("max_timeout", "10 min", [("1 ms", "\"1ms\""), ("24 h", "\"24h\"")], ["\"0s\"", "\"86400001ms\""]),
    ];
    let (policy, limits) = (document("docs/policy.md"), document("docs/limits.md"));
    for row in &table {
        let (key, default, [(least, _), (most, _)], _) = row;
        let beginning = format!("| `{key}` | {default} | {least} | {most} |");
        assert!(policy.contains(&beginning), "docs/policy.md has no row {beginning}");
        let line =
            limits.lines().find(|line| line.contains(&format!("(`{key}`"))).expect("a row of limits.md");
        assert!(line.contains(&format!("| {least} – {most} |")), "docs/limits.md: {line}");
        check_bounds("limits", row);
    }
}

#[test]
fn the_table_of_the_shell_has_its_defaults_and_bounds() {
    let policy = document("docs/policy.md");
    let row = |key: &str, default: &str| {
        let beginning = format!("| `{key}` | {default} |");
        let line = policy.lines().find(|line| line.starts_with(&beginning));
        line.unwrap_or_else(|| panic!("docs/policy.md has no row {beginning}")).to_owned()
    };
    let defaults = load(&format!("{BASE}\n[shell]"));
    let defaults = defaults.shell().expect("a shell");
    let quoted = |text: String| format!("`\"{text}\"`");
    row("enabled", "`true`");
    row("posture", &quoted(defaults.posture.to_string()));
    row("mounts", "none");
    assert!(defaults.mounts.is_empty());
    row("timeout", &quoted(format!("{}s", defaults.timeout.as_secs())));
    row("environment", "`[]`");
    row("deny", "`[]`");
    row("allow", "all");
    row("operators", "all");
    row("unasked", "none");
    row("read", "none");
    row("path", "none");
    row("variables", "none");
    assert!(defaults.toolchain.is_empty());
    assert!(defaults.environment.is_empty() && defaults.commands.is_empty());
    let (memory, file_size, output) =
        (defaults.memory.to_string(), defaults.file_size.to_string(), defaults.output.to_string());
    let table: [(Bounded<'_>, String); 4] = [
        (
            (
                "memory",
                "1GiB",
                [("16 MiB", "\"16MiB\""), ("1 TiB", "\"1TiB\"")],
                ["16777215", "1099511627777"],
            ),
            quoted(memory),
        ),
        (
            ("processes", "256", [("8", "8"), ("32,768", "32768")], ["7", "32769"]),
            format!("`{}`", defaults.processes),
        ),
        (
            (
                "file_size",
                "1GiB",
                [("1 MiB", "\"1MiB\""), ("1 TiB", "\"1TiB\"")],
                ["1048575", "1099511627777"],
            ),
            quoted(file_size),
        ),
        (
            ("output", "16MiB", [("1 KiB", "\"1KiB\""), ("1 GiB", "\"1GiB\"")], ["1023", "1073741825"]),
            quoted(output),
        ),
    ];
    for (bounded, default) in &table {
        let (key, value, [(least, _), (most, _)], _) = bounded;
        assert!(default.contains(value), "{key}: {default}");
        let line = row(key, default);
        assert!(line.contains(&format!("; {least} to {most}")), "{line}");
        check_bounds("shell", bounded);
    }
}
