//! Requests as a tool makes them, over confined threads, against servers that behave and servers that do not.

mod attempts;
mod confinement;
mod connections;
mod credentials;
mod dialling;
mod endings;
mod framing;
mod names;
mod proxy;
mod redirects;
mod sizes;
mod streaming;
mod tls;
mod tunnels;
mod world;
