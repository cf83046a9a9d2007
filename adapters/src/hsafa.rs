//! The tools of specification 003: configurations that a file or another program gives.

mod configuration;

pub use configuration::{
    ConfigurationFault, InvalidConfigurations, MAX_CONFIGURATION_BYTES, read_configurations,
};
