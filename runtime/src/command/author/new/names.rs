//! Derives the names in a new crate from the tool's name.

use crate::client_config::toml_string;
use portcullis_types::ToolName;

/// Names that the template's function must not have: keywords, `main`, which `export_tools!` generates, and
/// names from which the macro would generate a type that the template already uses.
const RESERVED_NAMES: &[&str] = &[
    "_", "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do",
    "dyn", "else", "enum", "err", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let",
    "loop", "macro", "main", "match", "mod", "move", "mut", "none", "ok", "override", "priv", "pub", "ref",
    "return", "self", "some", "static", "string", "struct", "super", "trait", "true", "try", "type",
    "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

/// The values of the template's placeholders.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TemplateNames {
    tool: String,
    function: String,
    package: String,
    sdk: String,
}

impl TemplateNames {
    /// Derives the names for a tool. The function gets the tool's name in lower case, with a prefix if it
    /// would not be valid.
    pub(crate) fn new(tool: &ToolName, sdk: &str) -> Self {
        let tool = tool.as_str();
        let mut function = tool.replace('-', "_").to_ascii_lowercase();
        let is_name = function.starts_with(|first: char| first.is_ascii_lowercase());
        if !is_name || RESERVED_NAMES.contains(&function.as_str()) {
            function = format!("tool_{function}");
        }
        let package = format!("tool-{}", tool.replace('_', "-").to_ascii_lowercase());
        Self { tool: tool.to_owned(), function, package, sdk: sdk.to_owned() }
    }

    /// Fills in the placeholders of a template's text.
    pub(crate) fn fill(&self, text: &str) -> String {
        text.replace("TEMPLATE_FUNCTION", &self.function)
            .replace("TEMPLATE_PACKAGE", &self.package)
            .replace("TEMPLATE_TOOL", &self.tool)
            .replace("\"TEMPLATE_SDK\"", &toml_string(&self.sdk))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(tool: &str, function: &str, package: &str) {
        let names = TemplateNames::new(&ToolName::parse(tool).expect("a name"), "/sdk");
        assert_eq!((names.function.as_str(), names.package.as_str()), (function, package));
    }

    #[test]
    fn function_and_crate_are_called_like_the_tool_where_they_may() {
        check("word_count", "word_count", "tool-word-count");
        check("word-count", "word_count", "tool-word-count");
        check("wordCount", "wordcount", "tool-wordcount");
        check("3d", "tool_3d", "tool-3d");
        check("type", "tool_type", "tool-type");
        check("main", "tool_main", "tool-main");
        check("_", "tool__", "tool--");
        check("-x", "tool__x", "tool--x");
        check("build", "build", "tool-build");
    }
}
