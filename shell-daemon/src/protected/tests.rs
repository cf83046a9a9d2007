//! Finding protected paths, and attempts to hide them.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::fs::{PermissionsExt as _, symlink},
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use portcullis_confine::{Canary, ProcessLimits};
use portcullis_types::ShellPosture;
use tempfile::TempDir;

use super::*;
use crate::{
    PostureChoice, SessionMount,
    limits::{PROTECTED_CONTENT, PROTECTED_DEPTH},
};

struct World(TempDir);

impl World {
    fn new() -> Self {
        Self::at(tempfile::tempdir().unwrap())
    }

    fn at(root: TempDir) -> Self {
        for folder in ["state", "shared/a/.git/hooks", "shared/plain/deep", "read/.git/hooks"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        fs::write(root.path().join("shared/.bashrc"), "old").unwrap();
        fs::write(root.path().join("shared/a/.git/hooks/pre-commit"), "old").unwrap();
        Self(root)
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.0.path().join("shared").join(relative)
    }

    /// Waits for several ticks of the file system's clock.
    fn waits_for_another_time() {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(100) {
            std::thread::yield_now();
        }
    }

    fn protected(&self, patterns: &[&str]) -> ProtectedScanner {
        self.protected_within(patterns, USUAL_BOUNDS)
    }

    /// With a first scan within these bounds.
    fn protected_within(&self, patterns: &[&str], bounds: ScanBounds) -> ProtectedScanner {
        let mount = |name: &str, access| SessionMount {
            name: name.to_owned(),
            path: self.0.path().join(name),
            access,
        };
        let spec = SessionSpec {
            launcher: PathBuf::new(),
            mounts: vec![mount("shared", PathAccess::Write), mount("read", PathAccess::Read)],
            home: "shared".to_owned(),
            environment: Vec::new(),
            limits: ProcessLimits {
                descriptors: 0,
                memory_bytes: 0,
                file_bytes: 0,
                processes: None,
                cpu: None,
            },
            group: None,
            canary: Canary::create(&self.0.path().join("state")).unwrap(),
            posture: PostureChoice::AtLeast(ShellPosture::Contained),
            waived: Vec::new(),
            network: None,
            protect: ProtectedPaths::parse(patterns.iter().copied()).unwrap(),
        };
        ProtectedScanner::within(&spec, bounds).unwrap()
    }
}

const PATTERNS: [&str; 3] = [".git/hooks", ".bashrc", ".vscode/tasks.json"];

#[track_caller]
fn check(change: impl Fn(&World), expected: &[&str]) {
    let world = World::new();
    let mut protected = world.protected(&PATTERNS);
    assert_eq!(protected.scan(), ProtectedFound { created: Vec::new(), complete: true }, "before");
    change(&world);
    assert_eq!(
        protected.scan(),
        ProtectedFound { created: expected.iter().map(|&path| path.to_owned()).collect(), complete: true }
    );
    assert_eq!(protected.scan().created, Vec::<String>::new(), "it is told once");
}

#[test]
fn existing_paths_are_found_once_and_only_in_writable_mounts() {
    let places = World::new().protected(&PATTERNS).places();
    assert_eq!(places.read_only, [Path::new("/shared/.bashrc"), Path::new("/shared/a/.git/hooks")]);
    assert_eq!(places.fixed, [Path::new("/shared/a/.git")]);
    assert_eq!(World::new().protected(&[]).places(), ProtectedPlaces::default());
}

#[test]
fn new_protected_path_is_reported_at_any_depth() {
    check(|_| (), &[]);
    check(|world| fs::write(world.path("new"), "x").unwrap(), &[]);
    check(|world| fs::write(world.path("plain/.bashrc"), "x").unwrap(), &["/shared/plain/.bashrc"]);
    check(|world| fs::write(world.path("plain/.BashRC"), "x").unwrap(), &["/shared/plain/.BashRC"]);
    check(
        |world| {
            fs::create_dir_all(world.path("x/y/.git/hooks")).unwrap();
            fs::write(world.path("x/y/.git/hooks/post"), "x").unwrap();
        },
        &["/shared/x/y/.git/hooks", "/shared/x/y/.git/hooks/post"],
    );
    check(|world| fs::write(world.path("a/.git/hooks/post"), "x").unwrap(), &["/shared/a/.git/hooks/post"]);
}

#[test]
fn changed_moved_or_linked_path_is_reported() {
    check(|world| fs::write(world.path(".bashrc"), "new").unwrap(), &["/shared/.bashrc"]);
    check(
        |world| {
            fs::create_dir_all(world.path("plain/deep/hooks")).unwrap();
            fs::rename(world.path("plain/deep"), world.path("plain/.git")).unwrap();
        },
        &["/shared/plain/.git/hooks"],
    );
    check(|world| symlink("a", world.path("plain/.vscode")).unwrap(), &["/shared/plain/.vscode"]);
    check(|world| symlink("a", world.path("plain/.bashrc")).unwrap(), &["/shared/plain/.bashrc"]);
    check(
        |world| {
            fs::write(world.path("other"), "x").unwrap();
            fs::hard_link(world.path("other"), world.path("plain/.bashrc")).unwrap();
        },
        &["/shared/plain/.bashrc"],
    );
    // A new folder in the place of another one, with different times.
    check(
        |world| {
            fs::rename(world.path("plain"), world.path("away")).unwrap();
            fs::create_dir_all(world.path("plain/deep/.git/hooks")).unwrap();
        },
        &["/shared/plain/deep/.git/hooks"],
    );
    check(|world| fs::remove_file(world.path(".bashrc")).unwrap(), &[]);
}

#[test]
fn a_change_right_after_a_look_is_not_lost() {
    let world = World::new();
    let mut protected = world.protected(&PATTERNS);
    for number in 0..200 {
        let path = world.path(&format!("plain/{number}"));
        fs::create_dir_all(path.join(".git")).unwrap();
        protected.scan();
        fs::create_dir(path.join(".git/hooks")).unwrap();
        assert_eq!(protected.scan().created, [format!("/shared/plain/{number}/.git/hooks")]);
    }
}

#[test]
fn a_file_changed_again_right_after_a_look_is_told_again() {
    let world = World::new();
    let mut protected = world.protected(&PATTERNS);
    for _ in 0..50 {
        // The same length as before, so that only the time differs.
        fs::write(world.path(".bashrc"), "new").unwrap();
        assert_eq!(protected.scan().created, ["/shared/.bashrc"]);
    }
}

#[test]
fn times_that_are_set_back_hide_nothing() {
    let world = World::new();
    let past = std::time::SystemTime::now() - Duration::from_secs(1000);
    let set_back = |path: &str| fs::File::open(world.path(path)).unwrap().set_modified(past).unwrap();
    set_back("plain");
    World::waits_for_another_time();
    let mut protected = world.protected(&PATTERNS);
    protected.scan();
    fs::write(world.path("plain/.bashrc"), "x").unwrap();
    set_back("plain");
    assert_eq!(protected.scan().created, ["/shared/plain/.bashrc"]);
}

#[test]
fn too_deep_folder_makes_the_scan_incomplete() {
    let world = World::new();
    let mut protected = world.protected(&PATTERNS);
    let mut deep = world.path("deep");
    for _ in 0..PROTECTED_DEPTH + 2 {
        deep.push("d");
    }
    fs::create_dir_all(&deep).unwrap();
    assert!(!protected.scan().complete);
}

#[test]
fn a_file_that_leads_git_elsewhere_is_found() {
    check(|world| fs::write(world.path("plain/.git"), "gitdir: ../x").unwrap(), &["/shared/plain/.git"]);
    check(|world| fs::write(world.path("plain/.Git"), "gitdir: ../x").unwrap(), &["/shared/plain/.Git"]);
    // A name that is no repository's leads Git nowhere.
    check(|world| fs::write(world.path("plain/.vscode"), "").unwrap(), &[]);
}

fn bare(world: &World, folder: &str) {
    for name in ["objects", "refs"] {
        fs::create_dir_all(world.path(folder).join(name)).unwrap();
    }
    fs::write(world.path(folder).join("HEAD"), "ref: refs/heads/x").unwrap();
}

#[test]
fn repository_of_any_name_is_scanned_like_dot_git() {
    check(
        |world| {
            bare(world, "plain/bare");
            fs::create_dir(world.path("plain/bare/hooks")).unwrap();
            fs::write(world.path("plain/bare/hooks/pre-commit"), "").unwrap();
            fs::write(world.path("plain/bare/index"), "").unwrap();
        },
        &["/shared/plain/bare/hooks", "/shared/plain/bare/hooks/pre-commit"],
    );
    // The mount itself as the repository.
    check(
        |world| {
            bare(world, "");
            symlink("plain", world.path("hooks")).unwrap();
        },
        &["/shared/hooks"],
    );
}

#[test]
fn hooks_of_a_folder_made_a_repository_are_reported() {
    let world = World::new();
    fs::create_dir_all(world.path("plain/hooks")).unwrap();
    fs::write(world.path("plain/hooks/pre-commit"), "").unwrap();
    let mut protected = world.protected(&PATTERNS);
    assert_eq!(protected.scan().created, Vec::<String>::new());
    bare(&world, "plain");
    assert_eq!(protected.scan().created, ["/shared/plain/hooks", "/shared/plain/hooks/pre-commit"]);
    fs::write(world.path("plain/hooks/pre-commit"), "changed").unwrap();
    assert_eq!(protected.scan().created, ["/shared/plain/hooks/pre-commit"]);
    // It stops being a repository.
    fs::remove_file(world.path("plain/HEAD")).unwrap();
    fs::write(world.path("plain/hooks/pre-commit"), "again").unwrap();
    protected.scan();
    fs::write(world.path("plain/hooks/pre-commit"), "and again").unwrap();
    assert_eq!(protected.scan(), ProtectedFound { created: Vec::new(), complete: true });
}

#[test]
fn an_existing_repository_keeps_its_place_and_its_hooks() {
    let world = World::new();
    bare(&world, "plain/deep");
    fs::create_dir(world.path("plain/deep/hooks")).unwrap();
    let places = world.protected(&PATTERNS).places();
    assert!(places.read_only.contains(&PathBuf::from("/shared/plain/deep/hooks")), "{places:?}");
    assert_eq!(places.fixed, [Path::new("/shared/a/.git"), Path::new("/shared/plain/deep")]);
}

/// Bounds that a few files exceed.
const SMALL_BOUNDS: ScanBounds = ScanBounds { entries: 100, share: 50, time: Duration::from_secs(60) };

#[test]
fn very_many_files_do_not_hide_a_repositorys_hooks() {
    for junk in ["", "plain", "a", "a/.git", "zz"] {
        let world = World::new();
        let mut protected = world.protected(&PATTERNS);
        protected.bounds = SMALL_BOUNDS;
        for folder in 0..40 {
            let folder = world.path(junk).join(format!("{folder}"));
            fs::create_dir_all(&folder).unwrap();
            (0..20).for_each(|file| fs::write(folder.join(format!("{file}")), "").unwrap());
        }
        fs::write(world.path("a/.git/hooks/pre-commit"), "new").unwrap();
        fs::create_dir_all(world.path("plain/.git/hooks")).unwrap();
        fs::write(world.path("plain/.git/hooks/pre-push"), "new").unwrap();
        fs::write(world.path(".bashrc"), "new").unwrap();
        let found = protected.scan();
        assert!(!found.complete, "{junk}");
        for path in ["/shared/a/.git/hooks/pre-commit", "/shared/plain/.git/hooks", "/shared/.bashrc"] {
            assert!(found.created.iter().any(|created| created == path), "{junk}: {found:?}");
        }
        // The folders left out are read as soon as there is room.
        protected.bounds = ScanBounds { entries: 10_000, ..SMALL_BOUNDS };
        assert!(protected.scan().complete, "{junk}");
    }
}

#[test]
fn a_folder_that_is_too_large_is_asked_for_the_protected_names() {
    let world = World::new();
    let mut protected = world.protected(&PATTERNS);
    protected.bounds = SMALL_BOUNDS;
    (0..1000).for_each(|file| fs::write(world.path(&format!("plain/{file}")), "").unwrap());
    fs::create_dir_all(world.path("plain/.git/hooks")).unwrap();
    fs::write(world.path("plain/.bashrc"), "new").unwrap();
    let found = protected.scan();
    assert!(!found.complete);
    for path in ["/shared/plain/.git/hooks", "/shared/plain/.bashrc"] {
        assert!(found.created.iter().any(|created| created == path), "{found:?}");
    }
}

#[test]
fn a_look_ends_in_time_and_says_that_it_is_not_complete() {
    let world = World::new();
    let mut protected = world.protected(&PATTERNS);
    fs::write(world.path("plain/.bashrc"), "new").unwrap();
    fs::create_dir_all(world.path(".git/hooks")).unwrap();
    fs::write(world.path(".git/hooks/pre-commit"), "new").unwrap();
    protected.bounds = ScanBounds { time: Duration::ZERO, ..protected.bounds };
    // The mount itself is still asked for the policy's names.
    let hooks = vec!["/shared/.git/hooks".to_owned()];
    assert_eq!(protected.scan(), ProtectedFound { created: hooks, complete: false });
    protected.bounds = ScanBounds { time: Duration::from_secs(60), ..protected.bounds };
    let expected = vec!["/shared/.git/hooks/pre-commit".to_owned(), "/shared/plain/.bashrc".to_owned()];
    assert_eq!(protected.scan(), ProtectedFound { created: expected, complete: true });
}

#[test]
fn git_hooks_are_reported_first() {
    let world = World::new();
    let mut protected = world.protected(&PATTERNS);
    for folder in 0..2 * PROTECTED_REPORTED {
        let folder = world.path(&format!(".a/{folder}"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(".bashrc"), "").unwrap();
    }
    fs::write(world.path("a/.git/hooks/pre-commit"), "new").unwrap();
    let found = protected.scan();
    assert_eq!(found.created[0], "/shared/a/.git/hooks/pre-commit");
    assert_eq!((found.created.len(), found.complete), (PROTECTED_REPORTED, false));
}

/// A folder that the first scan left out and that holds `before`; returns the report of a later scan.
fn left_out(before: &[&str], change: impl FnOnce(&World)) -> ProtectedFound {
    left_out_within(ScanBounds { time: Duration::ZERO, ..SMALL_BOUNDS }, before, change)
}

fn left_out_within(bounds: ScanBounds, before: &[&str], change: impl FnOnce(&World)) -> ProtectedFound {
    let world = World::new();
    for path in before {
        fs::create_dir_all(world.path(path).parent().unwrap()).unwrap();
        fs::write(world.path(path), "old").unwrap();
    }
    World::waits_for_another_time();
    let mut protected = world.protected_within(&PATTERNS, bounds);
    change(&world);
    protected.bounds = ScanBounds { time: Duration::from_secs(60), entries: 10_000, ..SMALL_BOUNDS };
    protected.scan()
}

#[test]
fn path_skipped_by_the_first_scan_is_not_new() {
    let before = ["plain/.git/hooks/pre-commit", "plain/deep/.bashrc", ".bashrc"];
    let found = left_out(&before, |_| ());
    assert_eq!(found, ProtectedFound { created: Vec::new(), complete: true });
    let found = left_out(&before, |world| {
        fs::write(world.path("plain/.git/hooks/pre-push"), "new").unwrap();
        fs::write(world.path("plain/deep/.bashrc"), "changed").unwrap();
        fs::create_dir_all(world.path("made/.git/hooks")).unwrap();
    });
    // All contents of a changed folder are reported.
    let told = [
        "/shared/made/.git/hooks",
        "/shared/plain/.git/hooks",
        "/shared/plain/.git/hooks/pre-commit",
        "/shared/plain/.git/hooks/pre-push",
        "/shared/plain/deep/.bashrc",
    ];
    assert_eq!(found.created, told);
}

#[test]
fn path_moved_into_a_skipped_folder_is_new() {
    let found = left_out(&["plain/x/.git/hooks/pre-commit"], |world| {
        fs::rename(world.path("plain/x"), world.path("plain/deep/x")).unwrap();
    });
    assert_eq!(
        found.created,
        ["/shared/plain/deep/x/.git/hooks", "/shared/plain/deep/x/.git/hooks/pre-commit"]
    );
}

#[test]
fn repositories_in_repositories_are_all_looked_at() {
    let world = World::new();
    let mut protected = world.protected(&PATTERNS);
    let mut folder = "plain".to_owned();
    for _ in 0..100 {
        bare(&world, &folder);
        folder += "/r";
    }
    fs::create_dir_all(world.path("plain/r/r/hooks")).unwrap();
    assert_eq!(
        protected.scan(),
        ProtectedFound { created: vec!["/shared/plain/r/r/hooks".to_owned()], complete: true }
    );
}

#[test]
fn whole_folder_that_becomes_a_repository_is_new() {
    let before = ["plain/q/hooks/pre-commit", "plain/q/config", "plain/q/objects/x", "plain/q/refs/x"];
    let found =
        left_out(&before, |world| fs::write(world.path("plain/q/HEAD"), "ref: refs/heads/x").unwrap());
    for path in ["/shared/plain/q/hooks", "/shared/plain/q/hooks/pre-commit"] {
        assert!(found.created.iter().any(|created| created == path), "{found:?}");
    }
}

#[test]
fn another_folder_in_the_place_of_one_that_was_left_out_is_new() {
    let junk: Vec<String> = (0..200).map(|file| format!("plain/q/{file}")).collect();
    let mut before: Vec<&str> = junk.iter().map(String::as_str).collect();
    before.push("plain/fix/i/.git/hooks/pre-commit");
    let found = left_out_within(SMALL_BOUNDS, &before, |world| {
        fs::remove_dir_all(world.path("plain/q")).unwrap();
        fs::rename(world.path("plain/fix/i"), world.path("plain/q")).unwrap();
    });
    let told = "/shared/plain/q/.git/hooks/pre-commit";
    assert!(found.created.iter().any(|created| created == told), "{found:?}");
}

#[test]
fn a_move_to_a_protected_name_in_a_large_folder_is_new() {
    let world = World::new();
    (0..200).for_each(|file| fs::write(world.path(&format!("{file}")), "").unwrap());
    fs::create_dir_all(world.path("x/hooks")).unwrap();
    fs::write(world.path("x/hooks/pre-commit"), "old").unwrap();
    World::waits_for_another_time();
    let mut protected = world.protected_within(&PATTERNS, SMALL_BOUNDS);
    fs::rename(world.path("x"), world.path(".git")).unwrap();
    let found = protected.scan();
    assert!(found.created.iter().any(|created| created == "/shared/.git/hooks"), "{found:?}");
}

#[test]
fn a_repository_that_is_too_large_is_one() {
    let world = World::new();
    let mut protected = world.protected_within(&PATTERNS, SMALL_BOUNDS);
    bare(&world, "plain/bare");
    (0..1000).for_each(|file| fs::write(world.path(&format!("plain/bare/{file}")), "").unwrap());
    fs::create_dir(world.path("plain/bare/hooks")).unwrap();
    let found = protected.scan();
    assert!(found.created.iter().any(|created| created == "/shared/plain/bare/hooks"), "{found:?}");
}

#[test]
fn unreadable_folder_is_new_once_readable() {
    if rustix::process::geteuid().is_root() {
        println!("skipped: root reads everything");
        return;
    }
    let world = World::new();
    fs::create_dir_all(world.path("p/.git/hooks")).unwrap();
    fs::write(world.path("p/.git/hooks/pre-commit"), "planted").unwrap();
    let mode = |mode| fs::set_permissions(world.path("p"), fs::Permissions::from_mode(mode)).unwrap();
    mode(0);
    World::waits_for_another_time();
    let mut protected = world.protected(&PATTERNS);
    assert!(!protected.scan().complete);
    mode(0o700);
    let found = protected.scan();
    assert_eq!(found.created, ["/shared/p/.git/hooks", "/shared/p/.git/hooks/pre-commit"]);
}

/// A folder whose names can be listed, and nothing else.
#[test]
fn names_that_can_only_be_listed_are_told_and_read_later() {
    if rustix::process::geteuid().is_root() {
        println!("skipped: root reads everything");
        return;
    }
    for folder in ["p", "p/.git", "p/.git/hooks"] {
        let world = World::new();
        fs::create_dir_all(world.path("p/.git/hooks")).unwrap();
        fs::write(world.path("p/.git/hooks/pre-commit"), "planted").unwrap();
        fs::write(world.path("p/.bashrc"), "planted").unwrap();
        let mode = |mode| fs::set_permissions(world.path(folder), fs::Permissions::from_mode(mode)).unwrap();
        mode(0o400);
        World::waits_for_another_time();
        let mut protected = world.protected(&PATTERNS);
        let found = protected.scan();
        assert!(!found.complete, "{folder}: {found:?}");
        mode(0o700);
        let found = protected.scan();
        assert!(found.complete, "{folder}: {found:?}");
        assert!(found.created.iter().any(|path| path.ends_with("pre-commit")), "{folder}: {found:?}");
    }
}

/// A process that has mapped a file, and writes to it through the mapping.
struct Mapping {
    writer: Child,
    answers: BufReader<ChildStdout>,
}

impl Mapping {
    /// Maps a file and reads its first three characters. None without perl.
    #[expect(clippy::disallowed_methods, reason = "the writer is another process, as a command would be")]
    fn of(file: &Path, expected: &str) -> Option<Self> {
        let script = format!(
            "$| = 1; open(F, \"+<\", $ARGV[0]); $a = syscall({mmap}, 0, 4096, 3, {shared}, fileno(F), 0); \
             $x = unpack(\"P3\", pack(\"Q\", $a)); print \"$x\\n\"; \
             while (<STDIN>) {{ pipe(R, W); syswrite(W, substr($_, 0, 1) x 3); \
             syscall({read}, fileno(R), $a, 3); print \"written\\n\" }}",
            mmap = libc::SYS_mmap,
            read = libc::SYS_read,
            shared = libc::MAP_SHARED,
        );
        let started = Command::new("perl")
            .arg("-e")
            .arg(script)
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut writer) = started else {
            println!("skipped: there is no perl");
            return None;
        };
        let answers = BufReader::new(writer.stdout.take()?);
        let mut this = Self { writer, answers };
        assert_eq!(this.answer(), expected);
        Some(this)
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line
    }

    /// Writes a character three times.
    fn write(&mut self, character: &str) {
        let input = self.writer.stdin.as_mut().unwrap();
        input.write_all(format!("{character}\n").as_bytes()).unwrap();
        assert_eq!(self.answer(), "written\n");
    }

    fn end(mut self) {
        drop(self.writer.stdin.take());
        self.writer.wait().unwrap();
    }
}

/// File systems in memory record no time for any of these writes, others none for the second one, as long as the
/// page is not yet on the disk.
#[test]
fn each_write_through_a_mapping_is_told() {
    let beside = tempfile::tempdir().unwrap();
    for root in ["/dev/shm", beside.path().to_str().unwrap()] {
        let Ok(root) = tempfile::tempdir_in(root) else {
            println!("skipped: there is no {root}");
            continue;
        };
        let world = World::at(root);
        let Some(mut mapping) = Mapping::of(&world.path(".bashrc"), "old\n") else { return };
        let mut protected = world.protected(&PATTERNS);
        for number in ["1", "2", "3"] {
            assert_eq!(protected.scan(), ProtectedFound { created: Vec::new(), complete: true });
            mapping.write(number);
            assert_eq!(fs::read_to_string(world.path(".bashrc")).unwrap(), number.repeat(3));
            assert_eq!(protected.scan().created, ["/shared/.bashrc"], "{number}");
        }
        mapping.end();
    }
}

fn grow(file: &Path, bytes: u64) {
    fs::File::options().write(true).create(true).truncate(false).open(file).unwrap().set_len(bytes).unwrap();
}

#[test]
fn a_file_that_is_too_large_to_compare_is_told() {
    let world = World::new();
    grow(&world.path(".bashrc"), PROTECTED_CONTENT + 1);
    let mut protected = world.protected(&PATTERNS);
    assert_eq!(protected.scan(), ProtectedFound { created: Vec::new(), complete: false });
}

/// A look that could not compare a file does not forget how the file was.
#[test]
fn a_change_beside_a_large_file_is_told_when_that_is_gone() {
    let world = World::new();
    // This name is looked at first.
    grow(&world.path(".bashRC"), 0);
    let mut protected = world.protected(&PATTERNS);
    let Some(mut mapping) = Mapping::of(&world.path(".bashrc"), "old\n") else { return };
    for number in ["1", "2", "3"] {
        assert_eq!(protected.scan(), ProtectedFound { created: Vec::new(), complete: true });
        grow(&world.path(".bashRC"), PROTECTED_CONTENT);
        assert_eq!(
            protected.scan(),
            ProtectedFound { created: vec!["/shared/.bashRC".to_owned()], complete: false }
        );
        mapping.write(number);
        grow(&world.path(".bashRC"), 0);
        let found = protected.scan();
        assert_eq!(found.created, ["/shared/.bashRC", "/shared/.bashrc"], "{number}");
    }
    mapping.end();
}

/// Nothing says how the file was before.
#[test]
fn a_file_that_is_compared_for_the_first_time_is_told() {
    let world = World::new();
    // This name is looked at first, and leaves nothing of the budget.
    grow(&world.path(".bashRC"), PROTECTED_CONTENT);
    let mut protected = world.protected(&PATTERNS);
    fs::write(world.path(".bashrc"), "new").unwrap();
    let told = |path: &str| ProtectedFound { created: vec![path.to_owned()], complete: false };
    assert_eq!(protected.scan(), told("/shared/.bashrc"));
    grow(&world.path(".bashRC"), 0);
    assert_eq!(protected.scan(), told("/shared/.bashRC"));
    assert_eq!(protected.scan(), ProtectedFound { created: Vec::new(), complete: true });
}

/// The mapping stays when the file's mode takes the right to read it.
#[test]
fn a_file_of_our_own_that_cannot_be_read_is_told() {
    if rustix::process::geteuid().is_root() {
        println!("skipped: root reads everything");
        return;
    }
    let world = World::new();
    let mut protected = world.protected(&PATTERNS);
    let mode = |mode| fs::set_permissions(world.path(".bashrc"), fs::Permissions::from_mode(mode)).unwrap();
    mode(0o111);
    assert_eq!(
        protected.scan(),
        ProtectedFound { created: vec!["/shared/.bashrc".to_owned()], complete: false }
    );
    assert!(!protected.scan().complete);
    mode(0o600);
    assert!(protected.scan().complete);
}
