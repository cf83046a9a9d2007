//! Splits messages into the words that a search matches, alike for both databases. A word is a run of letters
//! and digits in lower case. In scripts without spaces between words, each letter is a word.

use std::collections::BTreeSet;

use super::pages::count;
use crate::{
    error::StoreError,
    limits::{MAX_INDEXED_WORDS, MAX_SEARCH_WORDS, MAX_WORD_CHARS, check_count, to_i64},
    sql::{Sql, Value, parameters},
};

/// The maximum number of messages that are counted for a word, to find the rarest word of a search.
const MAX_COUNTED: i64 = 4_096;

/// The maximum number of words that one statement writes.
const MAX_WORDS_OF_A_STATEMENT: usize = 32;

/// Returns the words of a text that a search finds.
pub(super) fn indexed_words(text: &str) -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    for word in words_of(text) {
        if words.len() == MAX_INDEXED_WORDS {
            break;
        }
        words.insert(word);
    }
    words
}

/// The words of a search.
pub(super) fn searched_words(text: &str) -> Result<BTreeSet<String>, StoreError> {
    // The bound keeps a long text from filling memory before it is refused.
    let words: BTreeSet<String> = words_of(text).take(MAX_INDEXED_WORDS).collect();
    check_count("the words of the search", to_i64(words.len()), to_i64(MAX_SEARCH_WORDS))?;
    Ok(words)
}

/// Puts the word first that is in the fewest messages of a space. Empty if no message can have all words.
pub(super) async fn rarest_first(
    sql: &mut dyn Sql,
    space: &str,
    words: BTreeSet<String>,
) -> Result<Vec<String>, StoreError> {
    if words.len() < 2 {
        return Ok(words.into_iter().collect());
    }
    let mut counted = Vec::with_capacity(words.len());
    for word in words {
        let statement = "select count(*) from ( \
                 select 1 from space_message_words where space = $1 and word = $2 limit $3 \
             ) as counted";
        // The exact number of a frequent word does not matter, so the count stops at the limit.
        match count(sql, statement, parameters![space, &word, MAX_COUNTED]).await? {
            0 => return Ok(Vec::new()),
            messages => counted.push((messages, word)),
        }
    }
    counted.sort();
    Ok(counted.into_iter().map(|(_, word)| word).collect())
}

fn words_of(text: &str) -> impl Iterator<Item = String> {
    text.split(|character: char| !character.is_alphanumeric()).flat_map(|part| {
        let mut words = Vec::new();
        let mut word = String::new();
        for character in part.chars() {
            if is_word_alone(character) {
                words.push(std::mem::take(&mut word));
                words.push(character.to_string());
            } else {
                word.push(character);
            }
        }
        words.push(word);
        words.retain(|word| !word.is_empty());
        // Lower case comes before the cut, because one letter can become several characters.
        words.into_iter().map(|word| word.to_lowercase().chars().take(MAX_WORD_CHARS).collect())
    })
}

/// Whether a letter belongs to a script without spaces: Thai, Lao, Myanmar, Khmer, Japanese, Chinese.
fn is_word_alone(character: char) -> bool {
    matches!(u32::from(character),
        0x0E00..=0x0EFF | 0x1000..=0x109F | 0x1780..=0x17FF | 0x3040..=0x30FF | 0x3400..=0x4DBF
        | 0x4E00..=0x9FFF | 0xF900..=0xFAFF | 0x20000..=0x323AF)
}

/// The statement that adds or removes words; its parameters are the space, the ordinal, and the words or null.
macro_rules! of_words {
    ($before:literal, $after:literal) => {
        concat!(
            $before,
            " (values ($3), ($4), ($5), ($6), ($7), ($8), ($9), ($10), ($11), ($12), ($13), ($14), ($15), ($16), ($17), \
             ($18), ($19), ($20), ($21), ($22), ($23), ($24), ($25), ($26), ($27), ($28), ($29), ($30), ($31), ($32), \
             ($33), ($34)) ",
            $after
        )
    };
}

/// Adds words of a message to the index.
pub(super) async fn add_words(
    sql: &mut dyn Sql,
    space: &str,
    ordinal: i64,
    words: &[String],
) -> Result<(), StoreError> {
    let statement = of_words!(
        "insert into space_message_words (space, word, ordinal) select cast($1 as text), column1, cast($2 as bigint) from",
        "as words where column1 is not null on conflict do nothing"
    );
    each_group(sql, statement, space, ordinal, words).await
}

/// Removes words of a message from the index.
pub(super) async fn remove_words(
    sql: &mut dyn Sql,
    space: &str,
    ordinal: i64,
    words: &[String],
) -> Result<(), StoreError> {
    let statement = of_words!(
        "delete from space_message_words where space = $1 and ordinal = $2 and word in (select column1 from",
        "as words where column1 is not null)"
    );
    each_group(sql, statement, space, ordinal, words).await
}

async fn each_group(
    sql: &mut dyn Sql,
    statement: &'static str,
    space: &str,
    ordinal: i64,
    words: &[String],
) -> Result<(), StoreError> {
    for group in words.chunks(MAX_WORDS_OF_A_STATEMENT) {
        let mut parameters = parameters![space, ordinal];
        parameters.extend(group.iter().map(Value::from));
        // Pad the last group with null, so that one prepared statement serves every size.
        parameters.resize(2 + MAX_WORDS_OF_A_STATEMENT, Value::Null);
        sql.execute(statement, parameters).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let words: Vec<String> = words_of(text).collect();
        assert_eq!(words, expected, "{text:?}");
    }

    #[test]
    fn words_are_letters_and_digits_in_lower_case() {
        check("", &[]);
        check(" -- !? ", &[]);
        check("Deploy v2.1 to the ÖBB-Server_3!", &["deploy", "v2", "1", "to", "the", "öbb", "server", "3"]);
        check("ΣΊΣΥΦΟΣ İ", &["σίσυφος", "i\u{307}"]);
        check("会議はv2です", &["会", "議", "は", "v2", "で", "す"]);
    }

    #[test]
    fn the_number_and_size_of_words_are_bounded() {
        let many: String = (0..2 * MAX_INDEXED_WORDS).map(|word| format!("{word} ")).collect();
        let words = indexed_words(&many);
        assert_eq!(words.len(), MAX_INDEXED_WORDS);
        assert!(words.contains("999") && !words.contains("1000"), "the first words");
        searched_words(&many).expect_err("too many");
        let long = "x".repeat(10 * MAX_WORD_CHARS);
        assert_eq!(searched_words(&long).expect("one"), BTreeSet::from(["x".repeat(MAX_WORD_CHARS)]));
        let three = ["a", "bb", "ccc"].map(str::to_owned);
        assert_eq!(searched_words("a ccc bb A").expect("three"), BTreeSet::from(three));
    }
}
