//! The first working directory and the environment of a session's commands.

use std::path::{Path, PathBuf};

use crate::{network, wire::SessionSetup};

/// The first working directory, and the environment.
#[derive(Debug)]
pub(super) struct SessionEnvironment {
    pub(super) home: PathBuf,
    pub(super) environment: Vec<(String, String)>,
}

impl SessionEnvironment {
    /// The environment of a session. The mounts' paths are the paths in the session's own file tree, or the real paths
    /// without one. The variables of a network come last, so that no variable from outside bypasses the
    /// network.
    pub(super) fn new(setup: &SessionSetup, has_tree: bool, has_network: bool) -> Self {
        let mounts = setup.mounts.iter().zip(&setup.paths);
        let mounts: Vec<(&str, &Path)> = mounts
            .map(|(name, path)| (name.as_str(), if has_tree { path.target.as_path() } else { &path.path }))
            .collect();
        let home = mounts.get(setup.home).map_or_else(|| PathBuf::from("/"), |(_, home)| home.to_path_buf());
        let mut environment = vec![
            ("PATH".to_owned(), search_path(&setup.search_path)),
            ("HOME".to_owned(), home.display().to_string()),
            ("TERM".to_owned(), "dumb".to_owned()),
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
        ];
        for (name, path) in mounts {
            let path = path.display().to_string();
            if name == "tmp" {
                environment.push(("TMPDIR".to_owned(), path.clone()));
                let folder =
                    |(variable, below): &(&str, &str)| ((*variable).to_owned(), format!("{path}/{below}"));
                environment.extend(OUTSIDE_THE_HOME.iter().map(folder));
            }
            environment.push((format!("PORTCULLIS_{}", name.to_ascii_uppercase().replace('-', "_")), path));
        }
        if !has_network {
            environment.extend(OFFLINE.map(|(variable, value)| (variable.to_owned(), value.to_owned())));
        }
        environment.extend(setup.environment.iter().cloned());
        if has_network {
            environment.extend(network::variables());
        }
        Self { home, environment }
    }
}

/// Variables with folders below the mount `tmp`. Otherwise programs would write their caches and settings into the
/// home, which may be a person's repository. The later ones are for programs that do not read
/// `XDG_CACHE_HOME`.
const OUTSIDE_THE_HOME: [(&str, &str); 8] = [
    ("XDG_CACHE_HOME", ".cache"),
    ("XDG_CONFIG_HOME", ".config"),
    ("XDG_DATA_HOME", ".local/share"),
    ("XDG_STATE_HOME", ".local/state"),
    ("CARGO_HOME", ".cargo"),
    ("GOPATH", ".cache/go"),
    ("PYTHONUSERBASE", ".local"),
    ("npm_config_cache", ".cache/npm"),
];

/// Variables that tell package managers that there is no network. Otherwise they try for minutes before they fail, and
/// cargo does not use what it has if a project has no `Cargo.lock`.
const OFFLINE: [(&str, &str); 5] = [
    ("CARGO_NET_OFFLINE", "true"),
    ("GOPROXY", "off"),
    ("PIP_NO_INDEX", "1"),
    ("UV_OFFLINE", "1"),
    ("npm_config_offline", "true"),
];

/// Returns the folders of programs: the operator's, then the system's.
fn search_path(folders: &[PathBuf]) -> String {
    let folders = folders.iter().map(|folder| folder.display().to_string());
    folders.chain([PATH.to_owned()]).collect::<Vec<_>>().join(":")
}

const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";
