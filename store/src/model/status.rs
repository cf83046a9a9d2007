//! Declares statuses with their texts in the database, and parses these texts.

use thiserror::Error;

/// A status in the database that this program does not know.
#[derive(Debug, Error)]
#[error("the status `{0}` is not known")]
pub(crate) struct UnknownStatus(pub(crate) String);

/// Declares an enum whose variants have a text: for the database, for `Display`, and for serde. It resembles
/// `word_enum!` of the crate `portcullis-types`, on which the store does not depend.
macro_rules! statuses {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$variant_meta])* #[serde(rename = $text)] $variant,)+
        }

        impl $name {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Returns the text of the value, in the database and for people.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }

            pub(crate) fn parse(text: &str) -> Result<Self, $crate::model::UnknownStatus> {
                let found = Self::ALL.iter().copied().find(|status| status.as_str() == text);
                found.ok_or_else(|| $crate::model::UnknownStatus(text.to_owned()))
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}
pub(super) use statuses;
