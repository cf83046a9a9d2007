//! The line below an answer: tokens, cost and time.

use std::time::Duration;

use portcullis_agent::Usage;

use crate::agent_file::Price;

/// Formats the line about one prompt, and about the conversation so far if it has further prompts. Tokens are
/// as the provider reports them. A cost is shown only if the operator has configured a price.
pub(super) fn line(
    prompt: (Usage, Duration),
    conversation: (Usage, Duration),
    price: Option<&Price>,
) -> String {
    let [prompt, conversation] = [prompt, conversation].map(|spent| amounts_text(spent, price));
    if conversation == prompt {
        return format!("[{prompt}]\n");
    }
    format!("[{prompt}; in all {conversation}]\n")
}

fn amounts_text((usage, elapsed): (Usage, Duration), price: Option<&Price>) -> String {
    let tokens = match usage {
        Usage { input_tokens: 0, output_tokens: 0 } => "no tokens reported".to_owned(),
        Usage { input_tokens, output_tokens } => format!("{input_tokens} tokens in, {output_tokens} out"),
    };
    let cost = price.map(|price| format!(", {}", price.cost(usage))).unwrap_or_default();
    format!("{tokens}{cost}, {:.1} s", elapsed.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_time_are_shown_and_the_cost_if_there_is_a_price() {
        let usage = |input_tokens, output_tokens| Usage { input_tokens, output_tokens };
        let first = (usage(1_000, 20), Duration::from_millis(1_240));
        assert_eq!(line(first, first, None), "[1000 tokens in, 20 out, 1.2 s]\n");
        let price: Price = toml::from_str("input = 3\noutput = 10\ncurrency = \"USD\"\n").expect("a price");
        let all = (usage(2_000, 40), Duration::from_secs(3));
        assert_eq!(
            line(first, all, Some(&price)),
            "[1000 tokens in, 20 out, 0.0032 USD, 1.2 s; in all 2000 tokens in, 40 out, 0.0064 USD, 3.0 s]\n"
        );
        let none = (Usage::default(), Duration::ZERO);
        assert_eq!(line(none, none, None), "[no tokens reported, 0.0 s]\n");
    }
}
