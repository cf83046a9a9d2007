//! A PostgreSQL server for one test: in a separate folder, as an ordinary user, reached through a socket.

use std::{
    env, fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
};

use tempfile::TempDir;
use tokio_postgres::NoTls;

/// Where Debian has the programs of each version.
const INSTALLED: &str = "/usr/lib/postgresql";

/// If this variable is set, a missing server is a failure.
const REQUIRED: &str = "PORTCULLIS_REQUIRE_POSTGRES";

/// The user of the database.
pub(crate) const USER: &str = "portcullis";

/// A running server. Dropping this ends it.
pub(crate) struct Server {
    programs: PathBuf,
    user: Option<(String, u32, u32)>,
    settings: String,
    databases: AtomicUsize,
    folder: TempDir,
}

impl Server {
    /// Starts a server. `None` if PostgreSQL is not installed.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(|_| String::new())
    }

    /// Starts a server with further settings, which may name files that are made in its folder.
    pub(crate) fn start_with(settings: impl FnOnce(&Path) -> String) -> Option<Self> {
        let Some(programs) = programs() else {
            assert!(env::var_os(REQUIRED).is_none(), "PostgreSQL is not installed, and {REQUIRED} is set");
            println!("skipped: PostgreSQL is not installed; `.ci/postgresql` installs it");
            return None;
        };
        let folder = tempfile::Builder::new().prefix("pg").tempdir().expect("a folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).expect("set");
        let settings = settings(folder.path());
        let mut server =
            Self { programs, user: ordinary_user(), settings, databases: AtomicUsize::new(0), folder };
        server.give_away();
        server.run("initdb", &["-A", "trust", "-U", USER, "-E", "UTF8", "--locale=C", "--no-sync"], "-D");
        // Commits do not wait for the disk, because the tests crash only the server, not the machine.
        server.settings = format!(
            "-c fsync=off -c unix_socket_directories={} {}",
            server.path().display(),
            server.settings
        );
        server.launch();
        Some(server)
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Gives the folder to the user that the server runs as.
    fn give_away(&self) {
        let Some((_, uid, gid)) = self.user else { return };
        for entry in fs::read_dir(self.path()).expect("readable") {
            chown(entry.expect("readable").path(), Some(uid), Some(gid)).expect("given");
        }
        chown(self.path(), Some(uid), Some(gid)).expect("given");
    }

    /// Starts the server, or starts it again.
    pub(crate) fn launch(&self) {
        let mut options = self.settings.clone();
        if !options.contains("listen_addresses") {
            options.push_str(" -c listen_addresses=");
        }
        let log = self.path().join("log");
        self.run(
            "pg_ctl",
            &["start", "-w", "-s", "-l", log.to_str().expect("the path is UTF-8"), "-o", &options],
            "-D",
        );
    }

    /// Ends the server immediately, as a crash would.
    pub(crate) fn stop(&self) {
        self.run("pg_ctl", &["stop", "-w", "-s", "-m", "immediate"], "-D");
    }

    fn run(&self, program: &str, arguments: &[&str], folder: &str) {
        let program = self.programs.join(program);
        #[expect(clippy::disallowed_methods, reason = "a test starts the server that it needs")]
        let mut command = match &self.user {
            Some((name, ..)) => {
                let mut command = Command::new("setpriv");
                command
                    .arg(format!("--reuid={name}"))
                    .arg(format!("--regid={name}"))
                    .arg("--clear-groups")
                    .arg(program);
                command
            }
            None => Command::new(program),
        };
        command.args(arguments).arg(folder).arg(self.data()).current_dir(self.path());
        // The server inherits no pipe, so that reading the output ends with the program.
        let output = self.path().join("output");
        let file = fs::File::create(&output).expect("the file can be made");
        command.stdin(Stdio::null()).stdout(file.try_clone().expect("cloned")).stderr(file);
        let status = command.status().expect("runs");
        let log = || fs::read_to_string(self.path().join("log")).unwrap_or_default();
        assert!(status.success(), "{}{}", fs::read_to_string(&output).unwrap_or_default(), log());
    }

    /// The URL of a database.
    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgresql:///{database}?host={}&user={USER}", self.path().display())
    }

    /// Makes an empty database, and returns its URL.
    pub(crate) async fn new_database(&self) -> String {
        let name = format!("test{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.execute("postgres", &format!("create database {name}")).await;
        self.url(&name)
    }

    /// Runs statements in a database directly, without the store.
    pub(crate) async fn execute(&self, database: &str, sql: &str) {
        self.client(database)
            .await
            .batch_execute(sql)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    /// A connection without the store.
    pub(crate) async fn client(&self, database: &str) -> tokio_postgres::Client {
        let (client, connection) =
            tokio_postgres::connect(&self.url(database), NoTls).await.expect("connects");
        #[expect(clippy::disallowed_methods, reason = "the connection ends with its client")]
        tokio::spawn(connection);
        client
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.data().join("postmaster.pid").exists() {
            self.stop();
        }
    }
}

/// The folder of the newest version's programs.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir(INSTALLED).ok()?.flatten().map(|entry| entry.path().join("bin"));
    versions.filter(|programs| programs.join("initdb").exists()).max()
}

/// An ordinary user, if this process is root's: PostgreSQL refuses to run as root.
fn ordinary_user() -> Option<(String, u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("readable");
    let found = ["postgres", "nobody"].iter().find_map(|wanted| {
        users.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let is_wanted = fields.first() == Some(wanted);
            is_wanted.then(|| {
                (fields[0].to_owned(), fields[2].parse().expect("an id"), fields[3].parse().expect("an id"))
            })
        })
    });
    Some(found.expect("an ordinary user"))
}
