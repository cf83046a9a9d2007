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
    /// The mounts' paths are those in the session's own file tree, or the real ones without it. The variables of a
    /// network come last, so that none from outside leads past it.
    pub(super) fn new(setup: &SessionSetup, has_tree: bool, has_network: bool) -> Self {
        let mounts = setup.mounts.iter().zip(&setup.paths);
        let mounts: Vec<(&str, &Path)> = mounts
            .map(|(name, path)| (name.as_str(), if has_tree { path.place.as_path() } else { &path.path }))
            .collect();
        let home = mounts.get(setup.home).map_or_else(|| PathBuf::from("/"), |(_, home)| home.to_path_buf());
        let mut environment = vec![
            ("PATH".to_owned(), PATH.to_owned()),
            ("HOME".to_owned(), home.display().to_string()),
            ("TERM".to_owned(), "dumb".to_owned()),
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
        ];
        for (name, path) in mounts {
            let place = path.display().to_string();
            if name == "tmp" {
                environment.push(("TMPDIR".to_owned(), place.clone()));
            }
            environment.push((format!("PORTCULLIS_{}", name.to_ascii_uppercase().replace('-', "_")), place));
        }
        environment.extend(setup.environment.iter().cloned());
        if has_network {
            environment.extend(network::variables());
        }
        Self { home, environment }
    }
}

const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";
