//! `read`, `caches`, `path` and `variables` of a shell.

use portcullis_policy::{HostPath, ShellPolicy, Toolchain};

use crate::support::{BASE, load, load_with, try_load};

const SECTION: &str = "[shell]\nread = ['~/.cargo/bin', '/opt/node', '~/.cargo/bin/']\ncaches = ['~/.npm', \
                       '~/.cargo/registry']\npath = ['/opt/node/bin', \
                       '~/.cargo/bin']\nvariables = { CARGO_HOME = '~/.cargo', CI = 'yes' }\n";

fn toolchain(shell: Option<&ShellPolicy>) -> Toolchain {
    shell.expect("a shell").toolchain.clone()
}

fn texts<'a>(paths: impl IntoIterator<Item = &'a HostPath>) -> Vec<&'a str> {
    paths.into_iter().map(HostPath::as_str).collect()
}

#[test]
fn a_toolchain_is_read_and_shown_as_it_holds() {
    let policy = load(&format!("{BASE}\n{SECTION}"));
    let toolchain = toolchain(policy.shell());
    assert_eq!(texts(&toolchain.read), ["/opt/node", "~/.cargo/bin"]);
    assert_eq!(texts(&toolchain.caches), ["~/.cargo/registry", "~/.npm"]);
    // The order is the search order.
    assert_eq!(texts(&toolchain.path), ["/opt/node/bin", "~/.cargo/bin"]);
    assert_eq!(toolchain.variables.len(), 2);
    let again = load(&policy.effective_toml());
    assert_eq!((again.digest(), again.shell()), (policy.digest(), policy.shell()));
    let sent = serde_json::to_string(policy.shell().expect("a shell")).expect("encodes");
    assert_eq!(serde_json::from_str::<ShellPolicy>(&sent).ok().as_ref(), policy.shell());
    assert!(load(&format!("{BASE}\n[shell]\n")).shell().expect("a shell").toolchain.is_empty());
}

#[test]
fn a_path_that_commands_cannot_read_is_a_fault() {
    for (section, fault) in [
        ("path = ['/opt/node/bin']", "shell.path[0]: not inside any folder of `read`"),
        ("read = ['/opt/node']\npath = ['/opt/nodes']", "shell.path[0]: not inside any folder of `read`"),
        ("read = ['opt']", "shell.read[0]: `opt` is not a host path"),
        ("read = ['~']", "shell.read[0]: `~` contains the whole file system"),
        ("read = ['/']", "shell.read[0]: `/` contains the whole file system"),
        ("read = ['/opt/../etc']", "is not a plain path"),
        ("read = [\"/opt\\n\"]", "is not a plain path"),
        ("read = ['~/.a']\ncaches = ['~/.a']", "shell.caches[0]: overlaps `~/.a`"),
        ("read = ['~/.a']\ncaches = ['~/.a/b']", "shell.caches[0]: overlaps `~/.a`"),
        ("read = ['~/.a/b']\ncaches = ['~/.a']", "shell.caches[0]: overlaps `~/.a/b`"),
        ("caches = ['~/.a', '~/.a/b']", "shell.caches[1]: overlaps `~/.a`"),
        ("caches = ['~/.a']\npath = ['~/.a']", "shell.path[0]: not inside any folder of `read`"),
        ("variables = { PATH = '/x' }", "`PATH` is set by the session itself"),
        ("variables = { LD_PRELOAD = '/x' }", "`LD_PRELOAD` changes what every program runs"),
        ("variables = { A = 1 }", "shell.variables.A"),
        ("variables = { A = \"\\u0000\" }", "NUL character"),
    ] {
        let error = try_load(&format!("{BASE}\n[shell]\n{section}\n"), None).expect_err(section);
        assert!(error.to_string().contains(fault), "{section}: {error}");
    }
}

#[test]
fn a_reduction_shortens_read_and_the_search_follows() {
    let operator = format!("{BASE}\n{SECTION}");
    let reduced = toolchain(load_with(&operator, "shell.read = ['/opt/node']").shell());
    assert_eq!((texts(&reduced.read), texts(&reduced.path)), (vec!["/opt/node"], vec!["/opt/node/bin"]));
    assert!(toolchain(load_with(&operator, "shell.read = []").shell()).path.is_empty());
    let reduced = toolchain(load_with(&operator, "shell.caches = ['~/.npm']").shell());
    assert_eq!((texts(&reduced.caches), reduced.read.len()), (vec!["~/.npm"], 2));
    assert!(toolchain(load_with(&operator, "shell.caches = []").shell()).caches.is_empty());
    for overlay in [
        "shell.caches = ['~/.npm/x']",
        "shell.read = ['/opt']",
        "shell.path = ['/opt/node']",
        "shell.variables = { CI = 'no' }",
    ] {
        assert!(try_load(&operator, Some(overlay)).is_err(), "{overlay}");
    }
}
