//! Paths that no command may write: existing ones are read-only in a session's own file tree, and new or
//! changed ones are reported.
#![expect(clippy::unwrap_used, reason = "test code, which clippy.toml lets off by function only")]

use std::{fs, time::Duration};

use portcullis_shell_daemon::{Completion, Ending, Interruption};

use crate::world::{World, ever_longer, with_timeout};

fn with_hooks(world: &World) {
    for repository in ["shared", "shared/deep/er"] {
        fs::create_dir_all(world.path(repository).join(".git/hooks")).unwrap();
        fs::write(world.path(repository).join(".git/hooks/pre-commit"), "old").unwrap();
        fs::write(world.path(repository).join(".git/index"), "old").unwrap();
    }
    fs::write(world.path("shared/.bashrc"), "old").unwrap();
}

/// All paths below a folder.
fn listing(world: &World) -> Vec<String> {
    fn below(folder: &std::path::Path, all: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            all.push(entry.path().display().to_string());
            if entry.file_type().unwrap().is_dir() {
                below(&entry.path(), all);
            }
        }
    }
    let mut all = Vec::new();
    below(&world.path("shared"), &mut all);
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
    World::strong().iter().for_each(|world| {
        with_hooks(world);
        let before = listing(world);
        let mut session = world.session();
        assert_eq!(session.0.read_only_paths(), 3);
        for attack in ATTACKS {
            let ran = session.run(attack);
            assert_ne!(ran.end.ending, Ending::Code(0), "{attack}: {ran:?}");
            session.run("rm -f plain");
        }
        assert_eq!(session.output("cat .git/hooks/pre-commit .bashrc; echo x > .git/index"), "oldold");
        session.0.end().unwrap();
        assert_eq!(listing(world), before, "no ghosts");
        let mut session = world.session();
        // The folder whose name makes the path protected keeps its place against every replacement.
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
            "in it one writes"
        );
        // A folder further up can be moved away; its replacement is reported.
        let ran = session
            .run("mv deep away && mkdir -p deep/er/.git/hooks && echo > deep/er/.git/hooks/pre-commit");
        assert_eq!(ran.end.ending, Ending::Code(0), "{ran:?}");
        assert!(
            ran.end.protected.created.contains(&"/shared/deep/er/.git/hooks/pre-commit".to_owned()),
            "{ran:?}"
        );
        drop(session);
        assert_eq!(fs::read_to_string(world.path("shared/.bashrc")).unwrap(), "old");
    });
}

#[test]
fn without_a_file_tree_the_same_is_told() {
    for attack in ATTACKS {
        let Some(world) = World::new() else { return };
        with_hooks(&world);
        let mut session = world.session();
        assert_eq!(session.0.read_only_paths(), 0);
        let ran = session.run(attack);
        assert_eq!(ran.end.ending, Ending::Code(0), "the control: {attack}: {ran:?}");
        // A path that was only removed runs nothing.
        let is_told =
            !attack.starts_with("rm ") && !["mv .bashrc other", "mv .git/hooks .git/other"].contains(&attack);
        assert_eq!(!ran.end.protected.created.is_empty(), is_told, "{attack}: {ran:?}");
        assert!(ran.end.protected.complete);
    }
}

#[test]
fn new_protected_path_is_reported_in_every_posture() {
    World::each(|world| {
        let mut session = world.session();
        for (command, told) in [
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
            let ran = session.run(command);
            assert_eq!(ran.end.ending, Ending::Code(0), "{command}: {ran:?}");
            assert_eq!(ran.end.protected.created, told, "{command}");
        }
        let attempt = |limit| {
            let mut killed = with_timeout("echo x > deep.bashrc; echo x > .bashrc; sleep 30", limit);
            killed.0.max_output_bytes = 1;
            session.attempt(killed).unwrap()
        };
        let mut all = ever_longer(Duration::from_millis(300)).map(attempt);
        let ran = all.find(|_| world.path("shared/.bashrc").exists()).expect("it was made in time");
        assert_eq!(ran.end.completion, Completion::Interrupted(Interruption::Timeout));
        assert_eq!(ran.end.protected.created, ["/shared/.bashrc"], "also of a command that was killed");
    });
}
