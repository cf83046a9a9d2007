//! [`InvalidValue`]: the reason why a text is not a value of the file.

use portcullis_types::{EscapedText, InvalidGuestPath};
use thiserror::Error;

use crate::{InvalidHostRule, InvalidPathPattern};

use super::network::MAX_PATH_BYTES;

/// The reason why a text is not a value of the file. Its text becomes the text of a fault at the value.
#[derive(Debug, Clone, PartialEq, Error)]
pub(crate) enum InvalidValue {
    /// The text is none of the words that the key takes.
    #[error("unknown {noun} `{}`; {suggestion}", EscapedText(text))]
    UnknownWord { noun: &'static str, text: String, suggestion: String },
    /// The text is not a size.
    #[error(
        "\"{}\" is not a size: write a whole number and B, KiB, MiB or GiB, such as \"16KiB\"",
        EscapedText(.0)
    )]
    Size(String),
    /// The number of a size cannot be read.
    #[error("{}: {source}", Self::Size(text.clone()))]
    SizeNumber { text: String, source: std::num::ParseIntError },
    /// The text is not a duration.
    #[error(
        "\"{}\" is not a duration ({source}): write for example \"20s\", \"500ms\" or \"10m\"",
        EscapedText(text)
    )]
    Duration { text: String, source: humantime::DurationError },
    /// The duration has a fraction of a millisecond.
    #[error("\"{}\" is finer than a millisecond", EscapedText(.0))]
    FineDuration(String),
    /// The text is not a label of a run.
    #[error("unknown label; known are `vault`, `web`, `secret:NAME` and `mount:NAME`")]
    Label,
    /// The vault's label is written like that of another mount.
    #[error("the label of this mount is `vault`")]
    VaultLabel,
    /// The text is not a sink of a flow rule.
    #[error("unknown sink; known are `network`, `shell`, `write:NAME` and `write:protected`")]
    Sink,
    /// A flow rule would allow.
    #[error("a flow rule only takes away: write `ask` or `deny`")]
    AllowingFlowRule,
    /// The policy has no mount or secret of this name.
    #[error("the policy has no such {noun}; {suggestion}")]
    NotInPolicy { noun: &'static str, suggestion: String },
    /// No command gets a variable of this name.
    #[error("no command gets such a variable; {suggestion}")]
    NoVariable { suggestion: String },
    /// The text is not a source of data.
    #[error("it is not a source: write a mount's name, `web`, `secret:NAME` or `env:NAME`")]
    Source,
    /// The text is neither a digest nor the beginning of one.
    #[error(
        "it is not a digest; write the digest that `portcullis policy show` prints, or at least its first \
         {} characters",
        super::expect::MIN_DIGEST_CHARS
    )]
    Digest,
    /// A shell would have no posture.
    #[error("the posture of a shell cannot be `none`; write `minimal`, `contained` or `strong`")]
    NoPosture,
    /// A path is empty.
    #[error("a file is missing; write its path, absolute or relative to this file")]
    NoPath,
    /// A path is too long.
    #[error("the path has more than {MAX_PATH_BYTES} bytes")]
    LongPath,
    /// A path has a NUL character.
    #[error("a path cannot have a NUL character")]
    PathNul,
    /// A reduction would make requests ignore `robots.txt`.
    #[error("only the operator's policy may say `ignore`; this section only takes away")]
    IgnoredRobots,
    /// A reduction names a provider.
    #[error(
        "only the operator's policy may say `{}`; write `{}`, or leave this out",
        EscapedText(.0),
        super::search::NO_PROVIDER
    )]
    ReducedProvider(String),
    /// The text is not a pattern of paths.
    #[error(transparent)]
    PathPattern(#[from] InvalidPathPattern),
    /// The text is not a guest path.
    #[error(transparent)]
    GuestPath(#[from] InvalidGuestPath),
    /// The text is not a rule of hosts.
    #[error(transparent)]
    HostRule(#[from] InvalidHostRule),
}
