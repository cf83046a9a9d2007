//! Tests how protected paths are found, and attempts to hide them.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::fs::{PermissionsExt as _, symlink},
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use portcullis_confine::{CanaryFile, ProcessLimits};
use portcullis_types::ShellPosture;
use tempfile::TempDir;

use super::*;
use crate::{
    PostureChoice, SessionMount, SessionToolchain,
    limits::{MAX_PROTECTED_CONTENT_BYTES, MAX_PROTECTED_DEPTH},
};

struct Fixture(TempDir);

impl Fixture {
    fn new() -> Self {
        Self::in_folder(tempfile::tempdir().unwrap())
    }

    fn in_folder(root: TempDir) -> Self {
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
    fn wait_for_clock_tick() {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(100) {
            std::thread::yield_now();
        }
    }

    fn protected(&self, patterns: &[&str]) -> ProtectedScanner {
        self.scanner_within(patterns, USUAL_BOUNDS)
    }

    /// A scanner whose first scan keeps within these bounds.
    fn scanner_within(&self, patterns: &[&str], bounds: ScanBounds) -> ProtectedScanner {
        let mount = |name: &str, access| SessionMount {
            name: name.to_owned(),
            path: self.0.path().join(name),
            access,
        };
        let spec = SessionSpec {
            launcher: PathBuf::new(),
            mounts: vec![mount("shared", PathAccess::Write), mount("read", PathAccess::Read)],
            home: "shared".to_owned(),
            toolchain: SessionToolchain::default(),
            environment: Vec::new(),
            limits: ProcessLimits {
                descriptors: 0,
                memory_bytes: 0,
                file_bytes: 0,
                processes: None,
                cpu: None,
            },
            group: None,
            canary: CanaryFile::create(&self.0.path().join("state")).unwrap(),
            posture: PostureChoice::AtLeast(ShellPosture::Contained),
            waived: Vec::new(),
            watch_changes: false,
            network: None,
            protect: ProtectedPaths::parse(patterns.iter().copied()).unwrap(),
            hide: portcullis_policy::HiddenNames::default(),
        };
        ProtectedScanner::with_bounds(&spec, bounds).unwrap()
    }
}

const PATTERNS: [&str; 3] = [".git/hooks", ".bashrc", ".vscode/tasks.json"];

#[track_caller]
fn check(change: impl Fn(&Fixture), expected: &[&str]) {
    let fixture = Fixture::new();
    let mut protected = fixture.protected(&PATTERNS);
    assert_eq!(protected.scan(), ProtectedReport { changed_paths: Vec::new(), complete: true }, "before");
    change(&fixture);
    assert_eq!(
        protected.scan(),
        ProtectedReport {
            changed_paths: expected.iter().map(|&path| path.to_owned()).collect(),
            complete: true
        }
    );
    assert_eq!(protected.scan().changed_paths, Vec::<String>::new(), "a change is reported once");
}

#[test]
fn existing_paths_are_found_once_and_only_in_writable_mounts() {
    let paths = Fixture::new().protected(&PATTERNS).session_paths();
    assert_eq!(paths.read_only, [Path::new("/shared/.bashrc"), Path::new("/shared/a/.git/hooks")]);
    assert_eq!(paths.fixed, [Path::new("/shared/a/.git")]);
    assert_eq!(Fixture::new().protected(&[]).session_paths(), SessionProtectedPaths::default());
}

#[test]
fn new_protected_path_is_reported_at_any_depth() {
    check(|_| (), &[]);
    check(|fixture| fs::write(fixture.path("new"), "x").unwrap(), &[]);
    check(|fixture| fs::write(fixture.path("plain/.bashrc"), "x").unwrap(), &["/shared/plain/.bashrc"]);
    check(|fixture| fs::write(fixture.path("plain/.BashRC"), "x").unwrap(), &["/shared/plain/.BashRC"]);
    check(
        |fixture| {
            fs::create_dir_all(fixture.path("x/y/.git/hooks")).unwrap();
            fs::write(fixture.path("x/y/.git/hooks/post"), "x").unwrap();
        },
        &["/shared/x/y/.git/hooks", "/shared/x/y/.git/hooks/post"],
    );
    check(
        |fixture| fs::write(fixture.path("a/.git/hooks/post"), "x").unwrap(),
        &["/shared/a/.git/hooks/post"],
    );
}

#[test]
fn changed_moved_or_linked_path_is_reported() {
    check(|fixture| fs::write(fixture.path(".bashrc"), "new").unwrap(), &["/shared/.bashrc"]);
    check(
        |fixture| {
            fs::create_dir_all(fixture.path("plain/deep/hooks")).unwrap();
            fs::rename(fixture.path("plain/deep"), fixture.path("plain/.git")).unwrap();
        },
        &["/shared/plain/.git/hooks"],
    );
    check(|fixture| symlink("a", fixture.path("plain/.vscode")).unwrap(), &["/shared/plain/.vscode"]);
    check(|fixture| symlink("a", fixture.path("plain/.bashrc")).unwrap(), &["/shared/plain/.bashrc"]);
    check(
        |fixture| {
            fs::write(fixture.path("other"), "x").unwrap();
            fs::hard_link(fixture.path("other"), fixture.path("plain/.bashrc")).unwrap();
        },
        &["/shared/plain/.bashrc"],
    );
    // A new folder in place of another folder, with different times.
    check(
        |fixture| {
            fs::rename(fixture.path("plain"), fixture.path("away")).unwrap();
            fs::create_dir_all(fixture.path("plain/deep/.git/hooks")).unwrap();
        },
        &["/shared/plain/deep/.git/hooks"],
    );
    check(|fixture| fs::remove_file(fixture.path(".bashrc")).unwrap(), &[]);
}

#[test]
fn a_change_right_after_a_look_is_not_lost() {
    let fixture = Fixture::new();
    let mut protected = fixture.protected(&PATTERNS);
    for number in 0..200 {
        let path = fixture.path(&format!("plain/{number}"));
        fs::create_dir_all(path.join(".git")).unwrap();
        protected.scan();
        fs::create_dir(path.join(".git/hooks")).unwrap();
        assert_eq!(protected.scan().changed_paths, [format!("/shared/plain/{number}/.git/hooks")]);
    }
}

#[test]
fn a_file_changed_right_after_a_scan_is_reported_again() {
    let fixture = Fixture::new();
    let mut protected = fixture.protected(&PATTERNS);
    for _ in 0..50 {
        // The length stays equal, so that only the time differs.
        fs::write(fixture.path(".bashrc"), "new").unwrap();
        assert_eq!(protected.scan().changed_paths, ["/shared/.bashrc"]);
    }
}

#[test]
fn times_that_are_set_back_hide_nothing() {
    let fixture = Fixture::new();
    let past = std::time::SystemTime::now() - Duration::from_secs(1000);
    let set_back = |path: &str| fs::File::open(fixture.path(path)).unwrap().set_modified(past).unwrap();
    set_back("plain");
    Fixture::wait_for_clock_tick();
    let mut protected = fixture.protected(&PATTERNS);
    protected.scan();
    fs::write(fixture.path("plain/.bashrc"), "x").unwrap();
    set_back("plain");
    assert_eq!(protected.scan().changed_paths, ["/shared/plain/.bashrc"]);
}

#[test]
fn too_deep_folder_makes_the_scan_incomplete() {
    let fixture = Fixture::new();
    let mut protected = fixture.protected(&PATTERNS);
    let mut deep = fixture.path("deep");
    for _ in 0..MAX_PROTECTED_DEPTH + 2 {
        deep.push("d");
    }
    fs::create_dir_all(&deep).unwrap();
    assert!(!protected.scan().complete);
}

#[test]
fn a_file_that_redirects_git_is_found() {
    check(|fixture| fs::write(fixture.path("plain/.git"), "gitdir: ../x").unwrap(), &["/shared/plain/.git"]);
    check(|fixture| fs::write(fixture.path("plain/.Git"), "gitdir: ../x").unwrap(), &["/shared/plain/.Git"]);
    // Git does not follow a file whose name does not belong to a repository.
    check(|fixture| fs::write(fixture.path("plain/.vscode"), "").unwrap(), &[]);
}

fn make_bare_repository(fixture: &Fixture, folder: &str) {
    for name in ["objects", "refs"] {
        fs::create_dir_all(fixture.path(folder).join(name)).unwrap();
    }
    fs::write(fixture.path(folder).join("HEAD"), "ref: refs/heads/x").unwrap();
}

#[test]
fn repository_of_any_name_is_scanned_like_dot_git() {
    check(
        |fixture| {
            make_bare_repository(fixture, "plain/bare");
            fs::create_dir(fixture.path("plain/bare/hooks")).unwrap();
            fs::write(fixture.path("plain/bare/hooks/pre-commit"), "").unwrap();
            fs::write(fixture.path("plain/bare/index"), "").unwrap();
        },
        &["/shared/plain/bare/hooks", "/shared/plain/bare/hooks/pre-commit"],
    );
    // The mount itself as the repository.
    check(
        |fixture| {
            make_bare_repository(fixture, "");
            symlink("plain", fixture.path("hooks")).unwrap();
        },
        &["/shared/hooks"],
    );
}

#[test]
fn hooks_of_a_folder_made_a_repository_are_reported() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.path("plain/hooks")).unwrap();
    fs::write(fixture.path("plain/hooks/pre-commit"), "").unwrap();
    let mut protected = fixture.protected(&PATTERNS);
    assert_eq!(protected.scan().changed_paths, Vec::<String>::new());
    make_bare_repository(&fixture, "plain");
    assert_eq!(protected.scan().changed_paths, ["/shared/plain/hooks", "/shared/plain/hooks/pre-commit"]);
    fs::write(fixture.path("plain/hooks/pre-commit"), "changed").unwrap();
    assert_eq!(protected.scan().changed_paths, ["/shared/plain/hooks/pre-commit"]);
    // The folder stops being a repository.
    fs::remove_file(fixture.path("plain/HEAD")).unwrap();
    fs::write(fixture.path("plain/hooks/pre-commit"), "again").unwrap();
    protected.scan();
    fs::write(fixture.path("plain/hooks/pre-commit"), "and again").unwrap();
    assert_eq!(protected.scan(), ProtectedReport { changed_paths: Vec::new(), complete: true });
}

#[test]
fn an_existing_repository_keeps_its_place_and_its_hooks() {
    let fixture = Fixture::new();
    make_bare_repository(&fixture, "plain/deep");
    fs::create_dir(fixture.path("plain/deep/hooks")).unwrap();
    let paths = fixture.protected(&PATTERNS).session_paths();
    assert!(paths.read_only.contains(&PathBuf::from("/shared/plain/deep/hooks")), "{paths:?}");
    assert_eq!(paths.fixed, [Path::new("/shared/a/.git"), Path::new("/shared/plain/deep")]);
}

/// Bounds that a few files exceed.
const SMALL_BOUNDS: ScanBounds =
    ScanBounds { entries: 100, reserve_entries: 50, time: Duration::from_secs(60) };

#[test]
fn very_many_files_do_not_hide_a_repositorys_hooks() {
    for junk in ["", "plain", "a", "a/.git", "zz"] {
        let fixture = Fixture::new();
        let mut protected = fixture.protected(&PATTERNS);
        protected.bounds = SMALL_BOUNDS;
        for folder in 0..40 {
            let folder = fixture.path(junk).join(format!("{folder}"));
            fs::create_dir_all(&folder).unwrap();
            (0..20).for_each(|file| fs::write(folder.join(format!("{file}")), "").unwrap());
        }
        fs::write(fixture.path("a/.git/hooks/pre-commit"), "new").unwrap();
        fs::create_dir_all(fixture.path("plain/.git/hooks")).unwrap();
        fs::write(fixture.path("plain/.git/hooks/pre-push"), "new").unwrap();
        fs::write(fixture.path(".bashrc"), "new").unwrap();
        let found = protected.scan();
        assert!(!found.complete, "{junk}");
        for path in ["/shared/a/.git/hooks/pre-commit", "/shared/plain/.git/hooks", "/shared/.bashrc"] {
            assert!(found.changed_paths.iter().any(|changed| changed == path), "{junk}: {found:?}");
        }
        // The folders left out are read as soon as there is room.
        protected.bounds = ScanBounds { entries: 10_000, ..SMALL_BOUNDS };
        assert!(protected.scan().complete, "{junk}");
    }
}

#[test]
fn a_folder_that_is_too_large_is_asked_for_the_protected_names() {
    let fixture = Fixture::new();
    let mut protected = fixture.protected(&PATTERNS);
    protected.bounds = SMALL_BOUNDS;
    (0..1000).for_each(|file| fs::write(fixture.path(&format!("plain/{file}")), "").unwrap());
    fs::create_dir_all(fixture.path("plain/.git/hooks")).unwrap();
    fs::write(fixture.path("plain/.bashrc"), "new").unwrap();
    let found = protected.scan();
    assert!(!found.complete);
    for path in ["/shared/plain/.git/hooks", "/shared/plain/.bashrc"] {
        assert!(found.changed_paths.iter().any(|changed| changed == path), "{found:?}");
    }
}

#[test]
fn a_look_ends_in_time_and_says_that_it_is_not_complete() {
    let fixture = Fixture::new();
    let mut protected = fixture.protected(&PATTERNS);
    fs::write(fixture.path("plain/.bashrc"), "new").unwrap();
    fs::create_dir_all(fixture.path(".git/hooks")).unwrap();
    fs::write(fixture.path(".git/hooks/pre-commit"), "new").unwrap();
    protected.bounds = ScanBounds { time: Duration::ZERO, ..protected.bounds };
    // The policy's names are still looked up in the mount itself.
    let hooks = vec!["/shared/.git/hooks".to_owned()];
    assert_eq!(protected.scan(), ProtectedReport { changed_paths: hooks, complete: false });
    protected.bounds = ScanBounds { time: Duration::from_secs(60), ..protected.bounds };
    let expected = vec!["/shared/.git/hooks/pre-commit".to_owned(), "/shared/plain/.bashrc".to_owned()];
    assert_eq!(protected.scan(), ProtectedReport { changed_paths: expected, complete: true });
}

#[test]
fn git_hooks_are_reported_first() {
    let fixture = Fixture::new();
    let mut protected = fixture.protected(&PATTERNS);
    for folder in 0..2 * MAX_REPORTED_PROTECTED {
        let folder = fixture.path(&format!(".a/{folder}"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(".bashrc"), "").unwrap();
    }
    fs::write(fixture.path("a/.git/hooks/pre-commit"), "new").unwrap();
    let found = protected.scan();
    assert_eq!(found.changed_paths[0], "/shared/a/.git/hooks/pre-commit");
    assert_eq!((found.changed_paths.len(), found.complete), (MAX_REPORTED_PROTECTED, false));
}

/// Changes a folder that the first scan left out and that holds `before`. Returns the report of a later scan.
fn change_with_small_bounds(before: &[&str], change: impl FnOnce(&Fixture)) -> ProtectedReport {
    change_within(ScanBounds { time: Duration::ZERO, ..SMALL_BOUNDS }, before, change)
}

fn change_within(bounds: ScanBounds, before: &[&str], change: impl FnOnce(&Fixture)) -> ProtectedReport {
    let fixture = Fixture::new();
    for path in before {
        fs::create_dir_all(fixture.path(path).parent().unwrap()).unwrap();
        fs::write(fixture.path(path), "old").unwrap();
    }
    Fixture::wait_for_clock_tick();
    let mut protected = fixture.scanner_within(&PATTERNS, bounds);
    change(&fixture);
    protected.bounds = ScanBounds { time: Duration::from_secs(60), entries: 10_000, ..SMALL_BOUNDS };
    protected.scan()
}

#[test]
fn path_skipped_by_the_first_scan_is_not_new() {
    let before = ["plain/.git/hooks/pre-commit", "plain/deep/.bashrc", ".bashrc"];
    let found = change_with_small_bounds(&before, |_| ());
    assert_eq!(found, ProtectedReport { changed_paths: Vec::new(), complete: true });
    let found = change_with_small_bounds(&before, |fixture| {
        fs::write(fixture.path("plain/.git/hooks/pre-push"), "new").unwrap();
        fs::write(fixture.path("plain/deep/.bashrc"), "changed").unwrap();
        fs::create_dir_all(fixture.path("made/.git/hooks")).unwrap();
    });
    // All contents of a changed folder are reported.
    let expected_paths = [
        "/shared/made/.git/hooks",
        "/shared/plain/.git/hooks",
        "/shared/plain/.git/hooks/pre-commit",
        "/shared/plain/.git/hooks/pre-push",
        "/shared/plain/deep/.bashrc",
    ];
    assert_eq!(found.changed_paths, expected_paths);
}

#[test]
fn path_moved_into_a_skipped_folder_is_new() {
    let found = change_with_small_bounds(&["plain/x/.git/hooks/pre-commit"], |fixture| {
        fs::rename(fixture.path("plain/x"), fixture.path("plain/deep/x")).unwrap();
    });
    assert_eq!(
        found.changed_paths,
        ["/shared/plain/deep/x/.git/hooks", "/shared/plain/deep/x/.git/hooks/pre-commit"]
    );
}

#[test]
fn repositories_in_repositories_are_all_looked_at() {
    let fixture = Fixture::new();
    let mut protected = fixture.protected(&PATTERNS);
    let mut folder = "plain".to_owned();
    for _ in 0..100 {
        make_bare_repository(&fixture, &folder);
        folder += "/r";
    }
    fs::create_dir_all(fixture.path("plain/r/r/hooks")).unwrap();
    assert_eq!(
        protected.scan(),
        ProtectedReport { changed_paths: vec!["/shared/plain/r/r/hooks".to_owned()], complete: true }
    );
}

#[test]
fn whole_folder_that_becomes_a_repository_is_new() {
    let before = ["plain/q/hooks/pre-commit", "plain/q/config", "plain/q/objects/x", "plain/q/refs/x"];
    let found = change_with_small_bounds(&before, |fixture| {
        fs::write(fixture.path("plain/q/HEAD"), "ref: refs/heads/x").unwrap();
    });
    for path in ["/shared/plain/q/hooks", "/shared/plain/q/hooks/pre-commit"] {
        assert!(found.changed_paths.iter().any(|changed| changed == path), "{found:?}");
    }
}

#[test]
fn a_folder_that_replaces_a_skipped_one_is_new() {
    let junk: Vec<String> = (0..200).map(|file| format!("plain/q/{file}")).collect();
    let mut before: Vec<&str> = junk.iter().map(String::as_str).collect();
    before.push("plain/fix/i/.git/hooks/pre-commit");
    let found = change_within(SMALL_BOUNDS, &before, |fixture| {
        fs::remove_dir_all(fixture.path("plain/q")).unwrap();
        fs::rename(fixture.path("plain/fix/i"), fixture.path("plain/q")).unwrap();
    });
    let expected_path = "/shared/plain/q/.git/hooks/pre-commit";
    assert!(found.changed_paths.iter().any(|changed| changed == expected_path), "{found:?}");
}

#[test]
fn a_move_to_a_protected_name_in_a_large_folder_is_new() {
    let fixture = Fixture::new();
    (0..200).for_each(|file| fs::write(fixture.path(&format!("{file}")), "").unwrap());
    fs::create_dir_all(fixture.path("x/hooks")).unwrap();
    fs::write(fixture.path("x/hooks/pre-commit"), "old").unwrap();
    Fixture::wait_for_clock_tick();
    let mut protected = fixture.scanner_within(&PATTERNS, SMALL_BOUNDS);
    fs::rename(fixture.path("x"), fixture.path(".git")).unwrap();
    let found = protected.scan();
    assert!(found.changed_paths.iter().any(|changed| changed == "/shared/.git/hooks"), "{found:?}");
}

#[test]
fn a_repository_that_is_too_large_is_one() {
    let fixture = Fixture::new();
    let mut protected = fixture.scanner_within(&PATTERNS, SMALL_BOUNDS);
    make_bare_repository(&fixture, "plain/bare");
    (0..1000).for_each(|file| fs::write(fixture.path(&format!("plain/bare/{file}")), "").unwrap());
    fs::create_dir(fixture.path("plain/bare/hooks")).unwrap();
    let found = protected.scan();
    assert!(found.changed_paths.iter().any(|changed| changed == "/shared/plain/bare/hooks"), "{found:?}");
}

#[test]
fn unreadable_folder_is_new_once_readable() {
    if rustix::process::geteuid().is_root() {
        println!("skipped: root reads everything");
        return;
    }
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.path("p/.git/hooks")).unwrap();
    fs::write(fixture.path("p/.git/hooks/pre-commit"), "planted").unwrap();
    let mode = |mode| fs::set_permissions(fixture.path("p"), fs::Permissions::from_mode(mode)).unwrap();
    mode(0);
    Fixture::wait_for_clock_tick();
    let mut protected = fixture.protected(&PATTERNS);
    assert!(!protected.scan().complete);
    mode(0o700);
    let found = protected.scan();
    assert_eq!(found.changed_paths, ["/shared/p/.git/hooks", "/shared/p/.git/hooks/pre-commit"]);
}

/// The folder's names can be listed, but not looked up.
#[test]
fn list_only_names_are_reported_and_read_later() {
    if rustix::process::geteuid().is_root() {
        println!("skipped: root reads everything");
        return;
    }
    for folder in ["p", "p/.git", "p/.git/hooks"] {
        let fixture = Fixture::new();
        fs::create_dir_all(fixture.path("p/.git/hooks")).unwrap();
        fs::write(fixture.path("p/.git/hooks/pre-commit"), "planted").unwrap();
        fs::write(fixture.path("p/.bashrc"), "planted").unwrap();
        let mode =
            |mode| fs::set_permissions(fixture.path(folder), fs::Permissions::from_mode(mode)).unwrap();
        mode(0o400);
        Fixture::wait_for_clock_tick();
        let mut protected = fixture.protected(&PATTERNS);
        let found = protected.scan();
        assert!(!found.complete, "{folder}: {found:?}");
        mode(0o700);
        let found = protected.scan();
        assert!(found.complete, "{folder}: {found:?}");
        assert!(found.changed_paths.iter().any(|path| path.ends_with("pre-commit")), "{folder}: {found:?}");
    }
}

/// A process that has mapped a file, and writes to it through the mapping.
struct Mapping {
    writer: Child,
    answers: BufReader<ChildStdout>,
}

impl Mapping {
    /// Maps a file and reads its first three characters. `None` without perl.
    #[expect(clippy::disallowed_methods, reason = "the writer is another process, as a command would be")]
    fn find(file: &Path, expected: &str) -> Option<Self> {
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
        let mut writer_process = Self { writer, answers };
        assert_eq!(writer_process.answer(), expected);
        Some(writer_process)
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

/// File systems in memory record a time for none of these writes. Other file systems record no time for the second
/// write as long as the page is not yet on the disk.
#[test]
fn each_write_through_a_mapping_is_reported() {
    let disk_folder = tempfile::tempdir().unwrap();
    for root in ["/dev/shm", disk_folder.path().to_str().unwrap()] {
        let Ok(root) = tempfile::tempdir_in(root) else {
            println!("skipped: there is no {root}");
            continue;
        };
        let fixture = Fixture::in_folder(root);
        let Some(mut mapping) = Mapping::find(&fixture.path(".bashrc"), "old\n") else { return };
        let mut protected = fixture.protected(&PATTERNS);
        for number in ["1", "2", "3"] {
            assert_eq!(protected.scan(), ProtectedReport { changed_paths: Vec::new(), complete: true });
            mapping.write(number);
            assert_eq!(fs::read_to_string(fixture.path(".bashrc")).unwrap(), number.repeat(3));
            assert_eq!(protected.scan().changed_paths, ["/shared/.bashrc"], "{number}");
        }
        mapping.end();
    }
}

fn grow(file: &Path, bytes: u64) {
    fs::File::options().write(true).create(true).truncate(false).open(file).unwrap().set_len(bytes).unwrap();
}

#[test]
fn a_file_too_large_to_compare_is_reported() {
    let fixture = Fixture::new();
    grow(&fixture.path(".bashrc"), MAX_PROTECTED_CONTENT_BYTES + 1);
    let mut protected = fixture.protected(&PATTERNS);
    assert_eq!(protected.scan(), ProtectedReport { changed_paths: Vec::new(), complete: false });
}

/// A scan that could not compare a file does not forget the file's earlier content.
#[test]
fn a_change_is_reported_once_the_large_file_beside_it_is_gone() {
    let fixture = Fixture::new();
    // This name is scanned first.
    grow(&fixture.path(".bashRC"), 0);
    let mut protected = fixture.protected(&PATTERNS);
    let Some(mut mapping) = Mapping::find(&fixture.path(".bashrc"), "old\n") else { return };
    for number in ["1", "2", "3"] {
        assert_eq!(protected.scan(), ProtectedReport { changed_paths: Vec::new(), complete: true });
        grow(&fixture.path(".bashRC"), MAX_PROTECTED_CONTENT_BYTES);
        assert_eq!(
            protected.scan(),
            ProtectedReport { changed_paths: vec!["/shared/.bashRC".to_owned()], complete: false }
        );
        mapping.write(number);
        grow(&fixture.path(".bashRC"), 0);
        let found = protected.scan();
        assert_eq!(found.changed_paths, ["/shared/.bashRC", "/shared/.bashrc"], "{number}");
    }
    mapping.end();
}

/// The file's earlier content is unknown.
#[test]
fn a_file_compared_for_the_first_time_is_reported() {
    let fixture = Fixture::new();
    // This name is scanned first, and uses up the budget.
    grow(&fixture.path(".bashRC"), MAX_PROTECTED_CONTENT_BYTES);
    let mut protected = fixture.protected(&PATTERNS);
    fs::write(fixture.path(".bashrc"), "new").unwrap();
    let found_over_limit =
        |path: &str| ProtectedReport { changed_paths: vec![path.to_owned()], complete: false };
    assert_eq!(protected.scan(), found_over_limit("/shared/.bashrc"));
    grow(&fixture.path(".bashRC"), 0);
    assert_eq!(protected.scan(), found_over_limit("/shared/.bashRC"));
    assert_eq!(protected.scan(), ProtectedReport { changed_paths: Vec::new(), complete: true });
}

/// A mapping stays valid when the file's mode no longer permits reading.
#[test]
fn an_unreadable_file_of_this_user_is_reported() {
    if rustix::process::geteuid().is_root() {
        println!("skipped: root reads everything");
        return;
    }
    let fixture = Fixture::new();
    let mut protected = fixture.protected(&PATTERNS);
    let mode = |mode| fs::set_permissions(fixture.path(".bashrc"), fs::Permissions::from_mode(mode)).unwrap();
    mode(0o111);
    assert_eq!(
        protected.scan(),
        ProtectedReport { changed_paths: vec!["/shared/.bashrc".to_owned()], complete: false }
    );
    assert!(!protected.scan().complete);
    mode(0o600);
    assert!(protected.scan().complete);
}
