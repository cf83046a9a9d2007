//! Paths that no command may write: existing ones are read-only in a session's own file tree, and new or
//! changed ones are reported.
#![expect(clippy::unwrap_used, reason = "test helpers: clippy.toml exempts only test functions")]

use std::{fs, time::Duration};

use portcullis_shell_daemon::{Completion, Ending, Interruption};

use crate::fixture::{Fixture, doubling_timeouts, request_with_timeout};

fn with_hooks(fixture: &Fixture) {
    for repository in ["shared", "shared/deep/er"] {
        fs::create_dir_all(fixture.path(repository).join(".git/hooks")).unwrap();
        fs::write(fixture.path(repository).join(".git/hooks/pre-commit"), "old").unwrap();
        fs::write(fixture.path(repository).join(".git/index"), "old").unwrap();
    }
    fs::write(fixture.path("shared/.bashrc"), "old").unwrap();
}

/// All paths below a folder.
fn listing(fixture: &Fixture) -> Vec<String> {
    fn collect_paths(folder: &std::path::Path, all: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            all.push(entry.path().display().to_string());
            if entry.file_type().unwrap().is_dir() {
                collect_paths(&entry.path(), all);
            }
        }
    }
    let mut all = Vec::new();
    collect_paths(&fixture.path("shared"), &mut all);
    all.sort();
    all
}

const ATTACKS: [&str; 9] = [
    "echo new > .git/hooks/pre-commit",
    "echo new > deep/er/.git/hooks/post-commit",
    "echo new > .bashrc",
    "rm .bashrc",
    "mv .bashrc other",
    "rm -r deep/er/.git/hooks",
    "echo x > plain; mv plain .bashrc",
    "mv .git/hooks .git/other",
    "chmod 777 .git/hooks/pre-commit",
];

#[test]
fn existing_protected_path_stays_unwritable() {
    Fixture::strong().iter().for_each(|fixture| {
        with_hooks(fixture);
        let before = listing(fixture);
        let mut session = fixture.session();
        assert_eq!(session.0.read_only_paths(), 3);
        for attack in ATTACKS {
            let result = session.run(attack);
            assert_ne!(result.end.ending, Ending::Code(0), "{attack}: {result:?}");
            session.run("rm -f plain");
        }
        assert_eq!(session.output("cat .git/hooks/pre-commit .bashrc; echo x > .git/index"), "oldold");
        session.0.end().unwrap();
        assert_eq!(listing(fixture), before, "no file was left");
        let mut session = fixture.session();
        // The folder whose name makes the path protected cannot be replaced.
        for attack in [
            "mv .git away",
            "mv deep/er/.git away",
            "mkdir -p made/hooks && mv -T made .git",
            "rm -rf .git && ln -s made .git",
            "mv -T --exchange made .git",
        ] {
            assert_ne!(session.run(attack).end.ending, Ending::Code(0), "{attack}");
        }
        assert_eq!(session.output("cat .git/hooks/pre-commit deep/er/.git/hooks/pre-commit"), "oldold");
        assert_eq!(
            session.output("echo x > .git/other; mkdir .git/new; mv .git/other .git/new; cat .git/new/other"),
            "x\n",
            "files below `.git` stay writable"
        );
        // A folder further up can be moved away; its replacement is reported.
        let result = session
            .run("mv deep away && mkdir -p deep/er/.git/hooks && echo > deep/er/.git/hooks/pre-commit");
        assert_eq!(result.end.ending, Ending::Code(0), "{result:?}");
        assert!(
            result.end.protected.changed_paths.contains(&"/shared/deep/er/.git/hooks/pre-commit".to_owned()),
            "{result:?}"
        );
        drop(session);
        assert_eq!(fs::read_to_string(fixture.path("shared/.bashrc")).unwrap(), "old");
    });
}

#[test]
fn without_a_file_tree_the_same_paths_are_reported() {
    for attack in ATTACKS {
        let Some(fixture) = Fixture::new() else { return };
        with_hooks(&fixture);
        let mut session = fixture.session();
        assert_eq!(session.0.read_only_paths(), 0);
        let result = session.run(attack);
        assert_eq!(result.end.ending, Ending::Code(0), "the control: {attack}: {result:?}");
        // A path that was only removed is not reported, because no program can run it.
        let is_told =
            !attack.starts_with("rm ") && !["mv .bashrc other", "mv .git/hooks .git/other"].contains(&attack);
        assert_eq!(!result.end.protected.changed_paths.is_empty(), is_told, "{attack}: {result:?}");
        assert!(result.end.protected.complete);
    }
}

#[test]
fn new_protected_path_is_reported_in_every_posture() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        for (command, expected_paths) in [
            ("echo x > file", &[][..]),
            (
                "mkdir -p new/.git/hooks; echo x > new/.git/hooks/pre-commit",
                &["/shared/new/.git/hooks", "/shared/new/.git/hooks/pre-commit"],
            ),
            ("echo x > $PORTCULLIS_TMP/.bashrc", &["/tmp/.bashrc"]),
            ("mkdir .vscode; ln -s ../file .vscode/tasks.json", &["/shared/.vscode/tasks.json"]),
            // By another name, like the folder that holds a read-only one.
            ("mkdir -p a/hooks; mv a b; mv b .git", &["/shared/.git/hooks"]),
            ("true", &[]),
        ] {
            let result = session.run(command);
            assert_eq!(result.end.ending, Ending::Code(0), "{command}: {result:?}");
            assert_eq!(result.end.protected.changed_paths, expected_paths, "{command}");
        }
        let attempt = |limit| {
            let mut killed = request_with_timeout("echo x > deep.bashrc; echo x > .bashrc; sleep 30", limit);
            killed.0.max_output_bytes = 1;
            session.attempt(killed).unwrap()
        };
        let mut all = doubling_timeouts(Duration::from_millis(300)).map(attempt);
        let result = all.find(|_| fixture.path("shared/.bashrc").exists()).expect("it was made in time");
        assert_eq!(result.end.completion, Completion::Interrupted(Interruption::Timeout));
        assert_eq!(
            result.end.protected.changed_paths,
            ["/shared/.bashrc"],
            "even of a command that was killed"
        );
    });
}
