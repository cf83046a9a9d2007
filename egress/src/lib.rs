//! The host's HTTP client, which makes the requests of tools on threads that may connect and do nothing else.
//!
//! A tool has no sockets. [`Egress::send`] takes a [`Request`] and a [`Judge`], which represents the policy
//! and the grant. The judge is asked about each request, each address that a name resolves to, and each
//! redirect. Only judged addresses are dialled: a name is resolved once for a request, and the connection
//! goes to an address of that answer.
//!
//! [`Egress::stream`] makes the same request, and streams the body of the response.
//!
//! The threads confine themselves with `portcullis-confine`: they open no file, and connect by TCP to the
//! configured ports only. The resolver configuration, the hosts file and the certificates are read before
//! that. Names are resolved over TCP, because no filter can restrict where a datagram goes.
//! [`Egress::posture`] holds the proof for audit rows.
//!
//! [`Egress::tunnel`] relays a confined program's TLS connection to an allowed host, without decrypting it.
//!
//! A [`Dialler`] opens connections to a few origins, for a client of this process that speaks its own
//! protocol.
//!
//! A connection is kept for the next request of the grant that opened it, and for no other grant ([`PoolIdentity`]).
//! `pool.rs` has the bounds. If the operator names a proxy, it carries every connection.
//!
//! A [`Credential`] is attached to the requests that the judge selects, after all checks. Responses are
//! redacted before any other code sees them, so no credential leaks through them.
//!
//! This crate makes no policy decisions: the judge decides which hosts, methods and addresses are allowed,
//! and which requests carry a credential. The crate keeps no cookies and no cache.
//!
//! ```no_run
//! # async fn example(judge: std::sync::Arc<dyn portcullis_egress::Judge>) -> Result<(), Box<dyn std::error::Error>> {
//! use std::{num::NonZeroUsize, path::Path};
//! use portcullis_confine::{CanaryFile, Requirement};
//! use portcullis_egress::{
//!     CancellationToken, Egress, EgressConfig, DnsConfig, Request, SystemRoots, TrustedRoots,
//! };
//!
//! let egress = Egress::start(EgressConfig {
//!     canary: CanaryFile::create(Path::new("/var/lib/portcullis"))?,
//!     landlock: Requirement::Required,
//!     seccomp: Requirement::Required,
//!     ports: [443].into(),
//!     proxy: None,
//!     names: DnsConfig::read_system()?,
//!     roots: TrustedRoots::read(SystemRoots::Trust, &[])?,
//!     threads: NonZeroUsize::MIN,
//! })?;
//! let request = Request::get("https://api.example.com/v1".parse()?);
//! let response = egress.send(judge, request, CancellationToken::new()).await?;
//! assert!(response.status.is_success());
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod address;
mod attempts;
mod bundle;
mod configured_origins;
mod connection;
mod credential;
mod decode;
mod dial_request;
mod dialler;
mod error;
mod exchange;
mod fetch;
mod judge;
mod lazy;
mod limits;
mod partial_response;
mod pool;
mod proxy;
mod redact;
mod redirect;
mod request;
mod resolve;
mod roots;
mod route;
mod stream;
mod target;
mod thread;
mod tunnel;

pub use bundle::certificate_bundle;
pub use configured_origins::ConfiguredOrigins;
pub use credential::{Credential, HeaderAffixes, InvalidCredential, InvalidSecret, SecretValue};
pub use dialler::{DialError, Dialler, DiallerSettings};
pub use error::{EgressError, FetchError};
pub use judge::{Judge, PoolIdentity, Refusal};
pub use lazy::LazyEgress;
pub use limits::RequestLimits;
pub use redact::redact_text;
pub use request::{Request, Response, is_reserved_header};
pub use resolve::DnsConfig;
pub use roots::{MAX_CA_BYTES, SystemRoots, TrustedRoots, read_ca_file};
pub use stream::StreamedResponse;
pub use thread::{Egress, EgressConfig};
pub use tunnel::{TunnelEnd, TunnelLimits, TunnelReport, TunnelShare, TunnelWatch};

pub use decode::ContentCoding;
pub use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
pub use portcullis_confine::Requirement;
pub use tokio_util::sync::CancellationToken;
pub use url::Url;
