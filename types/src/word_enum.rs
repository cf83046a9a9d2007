//! [`word_enum!`](crate::word_enum!): enums whose variants are written as words in files, audit rows and
//! on the command line.

use thiserror::Error;

/// Declares an enum with one word per variant. The enum gets `ALL`, `as_str` and
/// [`Display`](std::fmt::Display). It must be `Copy` and derive `Serialize` or `Deserialize` of serde,
/// which use the words.
///
/// With `as "noun"` after its name the enum also gets [`FromStr`](std::str::FromStr), with the error
/// [`UnknownWord`](crate::UnknownWord).
///
/// ```
/// portcullis_types::word_enum! {
///     /// Answers.
///     #[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
///     pub enum Answer as "answer" {
///         /// It may.
///         Yes = "yes",
///         /// It may not.
///         No = "no",
///     }
/// }
/// assert_eq!((Answer::ALL, Answer::Yes.to_string()), ([Answer::Yes, Answer::No], "yes".to_owned()));
/// assert_eq!("no".parse(), Ok(Answer::No));
/// let error = "maybe".parse::<Answer>().unwrap_err();
/// assert_eq!(error.to_string(), "unknown answer `maybe`: expected `yes` or `no`");
/// ```
#[macro_export]
macro_rules! word_enum {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident $(as $noun:literal)? {
            $($(#[$of_variant:meta])* $variant:ident = $word:literal,)+
        }
    ) => {
        $(#[$meta])*
        $vis enum $name {
            $($(#[$of_variant])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// All variants, in the order of their declaration.
            $vis const ALL: [Self; [$($word,)+].len()] = [$(Self::$variant,)+];

            /// The stable word.
            #[must_use]
            $vis const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        $(
            impl ::std::str::FromStr for $name {
                type Err = $crate::UnknownWord;

                fn from_str(text: &str) -> ::std::result::Result<Self, Self::Err> {
                    let known_word = Self::ALL.into_iter().find(|word| word.as_str() == text);
                    known_word.ok_or_else(|| $crate::UnknownWord::new($noun, text, &Self::ALL.map(Self::as_str)))
                }
            }
        )?
    };
}

/// A text that is not a word of an enum. The message names all words.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown {noun} `{text}`: expected {}", one_of(words))]
pub struct UnknownWord {
    noun: &'static str,
    text: String,
    words: Vec<&'static str>,
}

impl UnknownWord {
    /// For the code that [`word_enum!`](crate::word_enum!) generates.
    #[doc(hidden)]
    #[must_use]
    pub fn new(noun: &'static str, text: &str, words: &[&'static str]) -> Self {
        Self { noun, text: text.to_owned(), words: words.to_vec() }
    }
}

/// The words in a sentence: `a`, `b` or `c`.
fn one_of(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last_word, [])) => last_word.clone(),
        Some((last_word, other_words)) => format!("{} or {last_word}", other_words.join(", ")),
        None => String::new(),
    }
}
