//! The generated types are those of the protocol's file.
//!
//! After a change of that file, write them anew:
//!
//! ```sh
//! PORTCULLIS_GENERATE=1 cargo test --package portcullis-shell-protocol
//! ```

use std::{env, fs, path::Path};

#[test]
fn the_types_are_made_from_the_protocols_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let descriptors = protox::compile(["portcullis/shell/v1/shell.proto"], [root.join("proto")])
        .expect("the protocol's file is valid");
    let made = tempfile::tempdir().expect("a folder");
    // No transport code: the server and the client bring their own.
    tonic_prost_build::configure()
        .build_transport(false)
        .out_dir(made.path())
        .compile_fds(descriptors)
        .expect("types are made");
    let file = "portcullis.shell.v1.rs";
    let made = fs::read_to_string(made.path().join(file)).expect("made");
    let kept = root.join("src/generated").join(file);
    if env::var_os("PORTCULLIS_GENERATE").is_some() {
        fs::write(&kept, &made).expect("written");
    }
    let kept = fs::read_to_string(&kept).expect("it is in the repository");
    assert!(kept == made, "src/generated/{file} is not what the protocol's file says: write it anew");
}
