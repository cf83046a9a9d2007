//! Generates the protocol's types from `proto/`, without a protobuf compiler on the host.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(["portcullis/shell/v1/shell.proto"], ["proto"])?;
    // No transport code: the acceptance tests and the client of the sidecar bring their own.
    tonic_prost_build::configure().build_transport(false).compile_fds(descriptors)?;
    Ok(())
}
