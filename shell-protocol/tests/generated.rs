//! Compares the generated types with the protocol's file.
//!
//! After a change of that file, generate the types again:
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
    // Generate no transport code: the server and the client have their own.
    tonic_prost_build::configure()
        .build_transport(false)
        .out_dir(made.path())
        .compile_fds(descriptors)
        .expect("types are made");
    let file = "portcullis.shell.v1.rs";
    let made = fs::read_to_string(made.path().join(file)).expect("the file is readable");
    let committed = root.join("src/generated").join(file);
    if env::var_os("PORTCULLIS_GENERATE").is_some() {
        fs::write(&committed, &made).expect("written");
    }
    let committed = fs::read_to_string(&committed).expect("it is in the repository");
    assert!(committed == made, "src/generated/{file} does not match the protocol's file: generate it again");
}
