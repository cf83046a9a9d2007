//! Requests through the confined client, to servers that follow the protocol and to servers that break it.

mod attempts;
mod confinement;
mod connections;
mod credentials;
mod dialling;
mod endings;
mod fixture;
mod framing;
mod names;
mod proxy;
mod redirects;
mod sizes;
mod streaming;
mod tls;
mod tunnels;
