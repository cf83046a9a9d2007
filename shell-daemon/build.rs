//! Makes the protocol's types from `proto/`, without a compiler of the host.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(["portcullis/shell/v1/shell.proto"], ["proto"])?;
    // Without what makes connections: the acceptance tests and the client of the sidecar bring their own.
    tonic_prost_build::configure().build_transport(false).compile_fds(descriptors)?;
    Ok(())
}
