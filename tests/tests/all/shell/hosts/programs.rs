//! git, cargo, pip and npm without settings, through the forwarder, with the test's own certificate authority.
//!
//! If a program is missing in sessions, its test is skipped with a message. With
//! `PORTCULLIS_REQUIRE_LANGUAGES` set, the test fails instead.

use std::{env, fs, io::Write as _, path::Path, process::Command};

use flate2::{Compression, write::GzEncoder};
use serde_json::json;

use super::{Server, Shell, connections, shell};

#[expect(clippy::print_stdout, reason = "a test that skips says why")]
pub(super) async fn has_program(shell: &Shell, program: &str) -> bool {
    let is_found = !shell.text(&format!("command -v {program}")).await.contains("[exit code");
    if !is_found {
        assert!(env::var_os("PORTCULLIS_REQUIRE_LANGUAGES").is_none(), "sessions have no {program}");
        println!("skipped: sessions have no {program}");
    }
    is_found
}

#[expect(clippy::disallowed_methods, reason = "the test makes a repository with the real git")]
fn git(folder: &Path, arguments: &[&str]) {
    let identity =
        ["-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "init.defaultBranch=main"];
    let output =
        Command::new("git").args(identity).args(arguments).current_dir(folder).output().expect("git runs");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Creates an archive of these files, compressed with gzip.
fn tar_gz(files: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (name, content) in files {
        let mut header = [0_u8; 512];
        let mut put =
            |offset: usize, text: &str| header[offset..offset + text.len()].copy_from_slice(text.as_bytes());
        put(0, name);
        put(100, "0000644\0");
        put(108, "0000000\0");
        put(116, "0000000\0");
        put(124, &format!("{:011o}\0", content.len()));
        put(136, "00000000000\0");
        put(148, "        ");
        put(156, "0");
        put(257, "ustar\0");
        put(263, "00");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        archive.extend_from_slice(&header);
        archive.extend_from_slice(content.as_bytes());
        archive.resize(archive.len().next_multiple_of(512), 0);
    }
    archive.resize(archive.len() + 1024, 0);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&archive).expect("in memory");
    encoder.finish().expect("in memory")
}

/// Returns the SHA-256 of a file of the server, computed by the shell's `sha256sum`.
async fn sha256(shell: &Shell, bytes: &[u8]) -> String {
    shell.fixture.put("sum", bytes);
    let text = shell.text("sha256sum /shared/sum").await;
    text.split(' ').next().expect("a sum").to_owned()
}

#[tokio::test]
async fn git_clones_over_https() {
    let server = Server::start();
    let shell = shell(&server).await;
    if !has_program(&shell, "git").await {
        return;
    }
    let work = tempfile::tempdir().expect("a folder");
    git(work.path(), &["init", "--quiet", "work"]);
    let repository = work.path().join("work");
    fs::write(repository.join("file"), "cloned content\n").expect("written");
    git(&repository, &["add", "file"]);
    git(&repository, &["commit", "--quiet", "--message", "one"]);
    git(work.path(), &["clone", "--quiet", "--bare", "work", "repo.git"]);
    let bare = work.path().join("repo.git");
    git(&bare, &["update-server-info"]);
    copy(&bare, &server.folder().join("repo.git"));
    let text =
        shell.text(&format!("git clone --quiet {} copy && cat copy/file", server.url("repo.git"))).await;
    assert!(text.starts_with("cloned content\n"), "{text}");
    let connection_count: u64 = shell.last_row().connections.iter().map(|connection| connection.count).sum();
    assert!(connection_count >= 1);
    let refused = shell.text("git ls-remote https://evil.test/repo.git 2>&1").await;
    assert!(refused.contains("403") && refused.contains("exit code"), "{refused}");
    assert_eq!(connections(&shell, "host_not_granted").len(), 1);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the folder can be made");
    for entry in fs::read_dir(from).expect("a folder").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("copied");
        }
    }
}

#[tokio::test]
async fn npm_installs_a_package() {
    let server = Server::start();
    let shell = shell(&server).await;
    if !has_program(&shell, "npm").await {
        return;
    }
    let package = r#"{"name": "gate", "version": "1.0.0", "main": "index.js"}"#;
    let archive =
        tar_gz(&[("package/package.json", package), ("package/index.js", "module.exports = 'lifted'\n")]);
    server.put("gate/-/gate-1.0.0.tgz", &archive);
    let dist = json!({"tarball": server.url("gate/-/gate-1.0.0.tgz")});
    let version = json!({"name": "gate", "version": "1.0.0", "main": "index.js", "dist": dist});
    let document = json!({"name": "gate", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}});
    server.put("gate/index.html", document.to_string().as_bytes());
    let install = format!(
        "mkdir -p app && cd app && echo '{{}}' > package.json && \
         npm install --silent --no-audit --no-fund --no-update-notifier --cache /tmp/npm --registry {} gate 2>&1 \
         && node -p \"require('gate')\"",
        server.url("")
    );
    let text = shell.text(&install).await;
    assert!(text.contains("lifted\n"), "{text}");
}

#[tokio::test]
async fn pip_installs_a_package() {
    let server = Server::start();
    let shell = shell(&server).await;
    if !has_program(&shell, "pip3").await {
        return;
    }
    let wheel = wheel();
    server.put("simple/gate/gate-1.0-py3-none-any.whl", &wheel);
    let page = "<!doctype html><html><body><a href=\"gate-1.0-py3-none-any.whl\">gate-1.0-py3-none-any.whl</a></body></html>";
    server.put("simple/gate/index.html", page.as_bytes());
    let install = format!(
        "pip3 install --quiet --disable-pip-version-check --no-cache-dir --target /tmp/site --index-url {} gate 2>&1; \
         PYTHONPATH=/tmp/site python3 -c 'import gate; print(gate.state)'",
        server.url("simple/")
    );
    let text = shell.text(&install).await;
    assert!(text.contains("lifted\n"), "{text}");
}

/// Creates a wheel, which is a zip file. Its files are stored without compression.
fn wheel() -> Vec<u8> {
    let files = [
        ("gate.py", "state = 'lifted'\n"),
        ("gate-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: gate\nVersion: 1.0\n"),
        (
            "gate-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        ),
        (
            "gate-1.0.dist-info/RECORD",
            "gate.py,,\ngate-1.0.dist-info/METADATA,,\ngate-1.0.dist-info/WHEEL,,\ngate-1.0.dist-info/RECORD,,\n",
        ),
    ];
    let (mut zip, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in files {
        let size = u32::try_from(content.len()).expect("small");
        let mut sum = flate2::Crc::new();
        sum.update(content.as_bytes());
        let mut common = Vec::new();
        for word in [20_u16, 0, 0, 0, 0x21] {
            common.extend_from_slice(&word.to_le_bytes());
        }
        for word in [sum.sum(), size, size] {
            common.extend_from_slice(&word.to_le_bytes());
        }
        common.extend_from_slice(&u16::try_from(name.len()).expect("short").to_le_bytes());
        common.extend_from_slice(&[0, 0]);
        let offset = u32::try_from(zip.len()).expect("small");
        zip.extend_from_slice(b"PK\x03\x04");
        zip.extend_from_slice(&common);
        zip.extend_from_slice(name.as_bytes());
        zip.extend_from_slice(content.as_bytes());
        directory.extend_from_slice(b"PK\x01\x02\x14\0");
        directory.extend_from_slice(&common);
        directory.extend_from_slice(&[0; 10]);
        directory.extend_from_slice(&offset.to_le_bytes());
        directory.extend_from_slice(name.as_bytes());
    }
    let (start, size) =
        (u32::try_from(zip.len()).expect("small"), u32::try_from(directory.len()).expect("small"));
    let count = u16::try_from(files.len()).expect("few").to_le_bytes();
    zip.extend_from_slice(&directory);
    zip.extend_from_slice(b"PK\x05\x06\0\0\0\0");
    zip.extend_from_slice(&[count, count].concat());
    zip.extend_from_slice(&[size.to_le_bytes(), start.to_le_bytes()].concat());
    zip.extend_from_slice(&[0, 0]);
    zip
}

#[tokio::test]
async fn cargo_fetches_a_crate() {
    let server = Server::start();
    let shell = shell(&server).await;
    // Sessions see only the system's folders, but cargo is often in a home folder.
    let Some(cargo) = env::var_os("CARGO") else {
        println!("skipped: the test does not run under cargo");
        return;
    };
    fs::copy(cargo, shell.fixture.shared("cargo")).expect("copied");
    let manifest = "[package]\nname = \"gate\"\nversion = \"1.0.0\"\nedition = \"2021\"\n";
    let archive = tar_gz(&[("gate-1.0.0/Cargo.toml", manifest), ("gate-1.0.0/src/lib.rs", "// lifted\n")]);
    server.put("crates/gate", &archive);
    let config = json!({"dl": format!("{}{{crate}}", server.url("crates/"))});
    server.put("index/config.json", config.to_string().as_bytes());
    let sum = sha256(&shell, &archive).await;
    let entry =
        json!({"name": "gate", "vers": "1.0.0", "deps": [], "cksum": sum, "features": {}, "yanked": false});
    server.put("index/ga/te/gate", format!("{entry}\n").as_bytes());
    shell.fixture.put(
        "app/Cargo.toml",
        "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\ngate = \"1\"\n",
    );
    shell.fixture.put("app/src/lib.rs", "");
    let source = format!(
        "[source.crates-io]\nreplace-with = \"test\"\n[source.test]\nregistry = \"sparse+{}\"\n",
        server.url("index/")
    );
    shell.fixture.put("app/.cargo/config.toml", source);
    let text = shell
        .text("cd app && CARGO_HOME=/tmp/cargo /shared/cargo vendor --quiet --respect-source-config /tmp/vendor >/dev/null 2>/tmp/said; cat /tmp/vendor/gate/src/lib.rs || cat /tmp/said")
        .await;
    assert!(text.contains("// lifted\n"), "{text}");
}
