//! A policy is enforced only if no user except root and the current user can change it.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, chown},
};

use portcullis_testing::Fixture;
use portcullis_tools::BootstrapError;

use crate::modules::{portcullis, stderr};

#[test]
fn a_policy_that_others_can_write_is_refused_with_the_remedy() {
    let fixture = Fixture::new();
    let file = fixture.policy_file();
    fs::set_permissions(&file, Permissions::from_mode(0o666)).expect("opened");
    let output = portcullis(&fixture, &["call", "file_list"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let stderr_text = stderr(&output);
    assert!(
        stderr_text.contains("is refused") && stderr_text.contains("can be written by everybody (mode 0666)"),
        "{stderr_text}"
    );
    assert!(stderr_text.contains(&format!("chmod o-w {}", file.display())), "{stderr_text}");
    // Checking an untrusted file is harmless, and allowed.
    let output = portcullis(&fixture, &["policy", "check", file.to_str().expect("the path is UTF-8")]);
    assert!(
        output.status.success() && stderr(&output).contains("a start would not obey it"),
        "{}",
        stderr(&output)
    );
    fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("closed");
    fs::set_permissions(fixture.root(), Permissions::from_mode(0o777)).expect("opened");
    let stderr_text = stderr(&portcullis(&fixture, &["call", "file_list"]));
    assert!(
        stderr_text.contains("the folder `") && stderr_text.contains("can be written by everybody"),
        "{stderr_text}"
    );
    fs::set_permissions(fixture.root(), Permissions::from_mode(0o700)).expect("closed");
    assert!(portcullis(&fixture, &["call", "file_list"]).status.success());
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the program under test, with another home")]
fn a_home_that_others_can_write_stops_no_start_without_a_policy() {
    let fixture = Fixture::new();
    let home = fixture.root().join("home");
    fs::create_dir(&home).expect("the folder can be made");
    fs::set_permissions(&home, Permissions::from_mode(0o777)).expect("opened");
    let call = || {
        std::process::Command::new(portcullis_testing::binary())
            .args(&fixture.options()[..4])
            .args(["call", "add", r#"{"a":1,"b":2}"#])
            .env_remove("XDG_CONFIG_HOME")
            .env("HOME", &home)
            .output()
            .expect("starts")
    };
    if std::path::Path::new("/etc/portcullis/portcullis.toml").exists() {
        eprintln!("skipped: this machine has a policy of its own");
        return;
    }
    let output = call();
    assert!(output.status.success(), "{}", stderr(&output));
    let stderr_text = stderr(&output);
    assert!(
        stderr_text.contains("there is no policy file")
            && stderr_text.contains("can be written by everybody"),
        "{stderr_text}"
    );
    // An untrusted policy there is refused, and no other policy replaces it.
    fs::create_dir_all(home.join(".config/portcullis")).expect("the folder can be made");
    fs::copy(fixture.policy_file(), home.join(".config/portcullis/portcullis.toml")).expect("copied");
    let output = call();
    assert!(output.status.code() == Some(2) && stderr(&output).contains("is refused"), "{}", stderr(&output));
}

#[tokio::test]
async fn a_policy_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root gives files away");
        return;
    }
    let fixture = Fixture::new();
    let envelope = fixture.envelope();
    chown(fixture.root().join("policy.toml"), Some(12345), None).expect("given away");
    let error = portcullis_tools::runtime_builder(&envelope).await.expect_err("is refused");
    assert!(matches!(error, BootstrapError::UntrustedPolicy { .. }), "{error:?}");
    let cause = portcullis_types::error_chain(&error);
    assert!(cause.contains("belongs to user 12345"), "{cause}");
}

#[tokio::test]
async fn a_folder_of_modules_that_others_can_write_is_refused() {
    let fixture = Fixture::new().with_policy("[modules]\ndir = \"modules\"");
    let folder = fixture.root().join("modules");
    fs::create_dir(&folder).expect("the folder can be made");
    fs::set_permissions(&folder, Permissions::from_mode(0o777)).expect("opened");
    let error = portcullis_tools::runtime_builder(&fixture.envelope()).await.expect_err("is refused");
    assert!(portcullis_types::error_chain(&error).contains("can be written by everybody"), "{error:?}");
}
