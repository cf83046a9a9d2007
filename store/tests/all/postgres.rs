//! The suite on PostgreSQL, and the faults of a server.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    sync::Arc,
    time::Duration,
};

use portcullis_store::{
    DatabaseFailure, OpenError, PostgresOptions, RunStore, StoreError, open, open_gateway, open_postgres,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::{
    conformance::{self, NOW, add_run, commit, foreach_case, guard, new_run},
    postgres_server::{Server, USER},
    sqlite::block_on,
};

pub(crate) async fn open_default(url: &str) -> Arc<dyn RunStore> {
    open(url).await.expect("opens")
}

/// A store with short timeouts for its server.
async fn open_hasty(url: &str) -> Arc<dyn RunStore> {
    let options =
        PostgresOptions { statement_timeout: Duration::from_millis(400), ..PostgresOptions::default() };
    open_postgres(url, options).await.expect("opens")
}

macro_rules! each_case_runs {
    ($($module:ident::$case:ident,)+) => {
        #[test]
        fn every_case_of_the_suite_holds() {
            let Some(server) = Server::start() else { return };
            block_on(async {
                $(
                    println!("{}", stringify!($case));
                    let store = open_gateway(&server.new_database().await).await.expect("opens");
                    conformance::$module::$case(&*store).await;
                    store.close().await;
                )+
            });
        }
    };
}
foreach_case!(each_case_runs);

#[test]
fn a_server_that_goes_away_is_reported_and_found_again() {
    let Some(server) = Server::start() else { return };
    block_on(async {
        let url = server.new_database().await;
        let store = open_default(&url).await;
        add_run(&*store, "r").await;
        server.stop();
        for _ in 0..3 {
            let error = store.run("r").await.expect_err("away");
            assert_eq!(error.failure(), Some(DatabaseFailure::Unavailable), "{error:?}");
            let error = store.commit_step(commit("r", 1)).await.expect_err("away");
            assert_eq!(error.failure(), Some(DatabaseFailure::Unavailable), "{error:?}");
        }
        let error = open(&url).await.expect_err("away");
        assert_eq!(error.failure(), Some(DatabaseFailure::Unavailable), "{error:?}");
        server.launch();
        store.run("r").await.expect("there again");
        assert_eq!(store.commit_step(commit("r", 1)).await.expect("committed"), 2);
    });
}

#[test]
fn a_connection_that_the_server_ends_is_replaced() {
    let Some(server) = Server::start() else { return };
    block_on(async {
        let store = open_default(&server.new_database().await).await;
        add_run(&*store, "r").await;
        let client = server.client("postgres").await;
        let ours = "from pg_stat_activity where application_name = 'portcullis'";
        let ended = client.execute(&format!("select pg_terminate_backend(pid) {ours}"), &[]).await;
        let ended = ended.expect("asked to end");
        // The server ends its processes shortly after it has answered.
        let left = format!("select 1 {ours}");
        while !client.query(&left, &[]).await.expect("listed").is_empty() {
            tokio::task::yield_now().await;
        }
        // `tokio_postgres` may learn of the end of each connection only with a statement, which then fails.
        for _ in 0..ended {
            if let Err(error) = store.ping().await {
                assert_eq!(error.failure(), Some(DatabaseFailure::Unavailable), "{error:?}");
            }
        }
        store.run("r").await.expect("a new connection");
    });
}

#[test]
fn a_slow_server_is_given_up() {
    let Some(server) = Server::start() else { return };
    block_on(async {
        let store = open_hasty(&server.new_database().await).await;
        add_run(&*store, "r").await;
        let slow = "create function slow() returns trigger language plpgsql as \
             'begin perform pg_sleep(60); return new; end'; \
             create trigger slow before insert on portcullis.runs execute function slow()";
        server.execute("test0", slow).await;
        let error = store.create_run(new_run("s")).await.expect_err("slow");
        assert_eq!(error.failure(), Some(DatabaseFailure::TimedOut), "{error:?}");
        store.run("r").await.expect("a statement that is not slow");
        store.run("s").await.expect_err("rolled back");

        // The stopped server processes cannot even report the timeout.
        let client = server.client("postgres").await;
        let pids = "select pid from pg_stat_activity where application_name = 'portcullis'";
        let pids: Vec<i32> =
            client.query(pids, &[]).await.expect("listed").iter().map(|row| row.get(0)).collect();
        assert!(!pids.is_empty());
        let signal = |signal| {
            for pid in &pids {
                let pid = rustix::process::Pid::from_raw(*pid).expect("a process");
                rustix::process::kill_process(pid, signal).expect("signalled");
            }
        };
        signal(rustix::process::Signal::STOP);
        let error = store.run("r").await.expect_err("no answer");
        signal(rustix::process::Signal::CONT);
        assert_eq!(error.failure(), Some(DatabaseFailure::TimedOut), "{error:?}");
        store.run("r").await.expect("a new connection");
    });
}

#[test]
fn a_lock_that_is_held_too_long_is_reported() {
    let Some(server) = Server::start() else { return };
    block_on(async {
        let store = open_hasty(&server.new_database().await).await;
        add_run(&*store, "r").await;
        let client = server.client("test0").await;
        client.batch_execute("begin; update portcullis.runs set agent = agent").await.expect("locked");
        let error = store.renew_lease(guard("r"), NOW + 9).await.expect_err("locked");
        assert_eq!(error.failure(), Some(DatabaseFailure::Busy), "{error:?}");
        client.batch_execute("rollback").await.expect("unlocked");
        store.renew_lease(guard("r"), NOW + 9).await.expect("unlocked");
    });
}

#[test]
fn a_server_that_refuses_is_reported() {
    let Some(server) = Server::start() else { return };
    block_on(async {
        let url = server.new_database().await;
        open_default(&url).await;
        let refused =
            |error: StoreError| assert_eq!(error.failure(), Some(DatabaseFailure::Refused), "{error:?}");
        refused(open(&server.url("none")).await.expect_err("no database"));
        refused(open(&url.replace(USER, "stranger")).await.expect_err("no user"));
        // A role that may only use the tables needs no right to create any.
        let roles = "create role reader login; create role user1 login; \
             grant usage on schema portcullis to reader, user1; \
             grant select on all tables in schema portcullis to reader; \
             grant select, insert, update, delete on all tables in schema portcullis to user1";
        server.execute("test0", roles).await;
        let store = open_default(&url.replace(USER, "user1")).await;
        add_run(&*store, "r").await;
        let reader = open_default(&url.replace(USER, "reader")).await;
        reader.run("r").await.expect("readable");
        refused(reader.create_run(new_run("s")).await.expect_err("may not write"));
        // A standby server accepts no writes. A role without any right to write stands in for it.
        let writes = "alter table portcullis.runs disable trigger all; \
             create function read_only() returns trigger language plpgsql as \
             $$ begin raise exception 'follower' using errcode = '25006'; end $$; \
             create trigger read_only before insert on portcullis.runs execute function read_only()";
        server.execute("test0", writes).await;
        let error = store.create_run(new_run("s")).await.expect_err("read only");
        assert_eq!(error.failure(), Some(DatabaseFailure::ReadOnly), "{error:?}");
    });
}

#[test]
fn versions_and_encodings_that_do_not_fit_are_refused() {
    let Some(server) = Server::start() else { return };
    block_on(async {
        let url = server.new_database().await;
        open_default(&url).await;
        server.execute("test0", "update portcullis.store_version set version = 7").await;
        let error = open(&url).await.expect_err("newer");
        let expected = matches!(error, StoreError::Open(OpenError::NewerVersion { found: 7, supported: 4 }));
        assert!(expected, "{error:?}");
        server.execute("test0", "delete from portcullis.store_version").await;
        assert_eq!(open(&url).await.expect_err("damaged").failure(), Some(DatabaseFailure::Corrupt));
        server.execute("postgres", "create database ascii template template0 encoding 'SQL_ASCII'").await;
        let error = open(&server.url("ascii")).await.expect_err("encoding");
        assert!(matches!(error, StoreError::Open(OpenError::Encoding { .. })), "{error:?}");
    });
}

#[test]
fn processes_that_open_a_new_database_at_once_all_can() {
    let Some(server) = Server::start() else { return };
    block_on(async {
        let url = server.new_database().await;
        let stores = futures_util::future::join_all((0..8).map(|_| open(&url))).await;
        for (number, store) in stores.into_iter().enumerate() {
            add_run(&*store.expect("opens"), &number.to_string()).await;
        }
    });
}

#[test]
fn a_server_without_tls_is_refused_where_tls_is_demanded() {
    // The server refuses TLS, so it must get nothing more: no user name, no password.
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let port = listener.local_addr().expect("an address").port();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut request = [0; 8];
        stream.read_exact(&mut request).expect("a request");
        stream.write_all(b"N").expect("answered");
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        (request, rest)
    });
    let error = block_on(open(&format!("postgres://u:hunter2@127.0.0.1:{port}/db"))).expect_err("no TLS");
    assert_eq!(error.failure(), Some(DatabaseFailure::Refused), "{error:?}");
    assert!(!format!("{error:?}").contains("hunter2"));
    let (request, rest) = server.join().expect("ends");
    assert_eq!((request, rest), ([0, 0, 0, 8, 4, 210, 22, 47], Vec::new()));
}

/// A certificate authority for tests.
fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a certificate")
}

#[test]
fn tls_verifies_authority_and_name() {
    let (ours, other) = (authority(), authority());
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
    let certificate = params.signed_by(&key, &ours).expect("a certificate");
    // Another process could take the port before the server does, but the interval is short.
    let port = TcpListener::bind("127.0.0.1:0").expect("listens").local_addr().expect("an address").port();
    let server = Server::start_with(|folder| {
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).expect("written");
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("set");
            path.display().to_string()
        };
        let hba = "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n";
        format!(
            "-c ssl=on -c ssl_cert_file={} -c ssl_key_file={} -c hba_file={} -c port={port} \
             -c listen_addresses=127.0.0.1",
            write("cert.pem", &certificate.pem()),
            write("key.pem", &key.serialize_pem()),
            write("hba.conf", hba),
        )
    });
    let Some(server) = server else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let roots = |name: &str, authority: &CertifiedIssuer<'_, KeyPair>| {
        let path = folder.path().join(name);
        fs::write(&path, authority.pem()).expect("written");
        path.display().to_string()
    };
    let (ours, other) = (roots("ours", &ours), roots("other", &other));
    block_on(async {
        // The name of the socket contains the port.
        let socket = format!("{}&port={port}", server.url("postgres"));
        let (client, connection) =
            tokio_postgres::connect(&socket, tokio_postgres::NoTls).await.expect("connects");
        #[expect(clippy::disallowed_methods, reason = "the connection ends with its client")]
        tokio::spawn(connection);
        client.batch_execute("alter user portcullis password 'hunter2'").await.expect("set");
        let url = |host: &str, password: &str, settings: &str| {
            format!("postgres://{USER}:{password}@{host}:{port}/postgres?{settings}")
        };
        let check_refused = async |url: String| {
            let error = open(&url).await.expect_err("refused");
            assert_eq!(error.failure(), Some(DatabaseFailure::Refused), "{url}: {error:?}");
            assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        };
        let store = open_default(&url("localhost", "hunter2", &format!("sslrootcert={ours}"))).await;
        add_run(&*store, "r").await;
        let encrypted = "select count(*) from pg_stat_ssl join pg_stat_activity using (pid) \
             where ssl and application_name = 'portcullis'";
        assert_eq!(client.query_one(encrypted, &[]).await.expect("counted").get::<_, i64>(0), 1);
        let bound = format!("sslrootcert={ours}&channel_binding=require");
        open_default(&url("localhost", "hunter2", &bound)).await;
        for mode in ["require", "verify-full", "prefer"] {
            check_refused(url("localhost", "hunter2", &format!("sslmode={mode}&sslrootcert={other}"))).await;
            check_refused(url("127.0.0.1", "hunter2", &format!("sslmode={mode}&sslrootcert={ours}"))).await;
        }
        check_refused(url("localhost", "wrong", &format!("sslrootcert={ours}"))).await;
        check_refused(url("localhost", "hunter2", "sslmode=disable")).await;
        let error =
            open(&url("localhost", "hunter2", "sslrootcert=/none")).await.expect_err("no authorities");
        assert!(matches!(error, StoreError::Open(OpenError::Roots { .. })), "{error:?}");
    });
}
