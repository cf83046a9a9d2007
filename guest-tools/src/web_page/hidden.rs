//! Elements that a browser does not show, as far as the element itself says so.
//!
//! Style sheets are not read: text that only they hide stays.

use super::tree::{NodeId, Tree};

/// Whether a browser would not show an element.
pub(super) fn is_hidden(tree: &Tree, id: NodeId) -> bool {
    let attribute = |name| tree.attribute(id, name);
    attribute("hidden").is_some_and(|value| !value.eq_ignore_ascii_case("until-found"))
        || attribute("aria-hidden").is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
        || (tree.name(id) == "dialog" && attribute("open").is_none())
        || attribute("style").is_some_and(hides)
        || is_pixel(tree, id)
}

/// An image that only counts visitors.
fn is_pixel(tree: &Tree, id: NodeId) -> bool {
    let tiny = |name| {
        tree.attribute(id, name).is_some_and(|value| matches!(value.trim(), "0" | "1" | "0px" | "1px"))
    };
    tree.name(id) == "img" && tiny("width") && tiny("height")
}

/// Whether a `style` hides its element.
fn hides(style: &str) -> bool {
    let style = style.to_ascii_lowercase();
    let mut zero_size = false;
    let mut clipped = false;
    let mut absolute = false;
    let mut outside = false;
    for declaration in split_declarations(&style) {
        let Some((name, value)) = declaration.split_once(':') else { continue };
        let (name, value) = (name.trim(), value.replace("!important", ""));
        let value = value.trim();
        match name {
            "display" if value == "none" => return true,
            "visibility" if matches!(value, "hidden" | "collapse") => return true,
            "content-visibility" if value == "hidden" => return true,
            "opacity" if number(value).is_some_and(|opacity| opacity < 0.05) => return true,
            "font-size"
                if number(value).is_some_and(|size| size < 0.1 || (size <= 1.0 && value.ends_with("px"))) =>
            {
                return true;
            }
            "clip" if value.starts_with("rect(") && is_empty_rectangle(value) => return true,
            "clip-path" if value.starts_with("inset(50%") || value.starts_with("inset(100%") => return true,
            "transform" if value.contains("scale(0)") => return true,
            "text-indent" if number(value).is_some_and(|indent| indent < -900.0) => return true,
            "width" | "height" | "max-height" | "max-width" => {
                zero_size |=
                    number(value).is_some_and(|size| size < 0.1 || (size <= 1.0 && value.ends_with("px")));
            }
            "overflow" => clipped |= matches!(value, "hidden" | "clip"),
            "position" => absolute |= matches!(value, "absolute" | "fixed"),
            "left" | "top" | "right" | "margin-left" => {
                outside |= number(value).is_some_and(|offset| offset < -900.0);
            }
            _ => {}
        }
    }
    (zero_size && clipped) || (absolute && outside)
}

/// The declarations of a style, without comments.
fn split_declarations(style: &str) -> Vec<String> {
    let mut plain = String::with_capacity(style.len());
    let mut rest = style;
    while let Some(at) = rest.find("/*") {
        plain.push_str(&rest[..at]);
        rest = rest[at + 2..].find("*/").map_or("", |end| &rest[at + 2 + end + 2..]);
    }
    plain.push_str(rest);
    plain.split(';').map(str::to_owned).collect()
}

/// The number that a value begins with.
fn number(value: &str) -> Option<f64> {
    let end = value.bytes().position(|byte| !(byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'+')));
    value[..end.unwrap_or(value.len())].parse().ok()
}

fn is_empty_rectangle(value: &str) -> bool {
    let numbers = value.trim_start_matches("rect(").trim_end_matches(')');
    let mut numbers = numbers.split([',', ' ']).filter(|part| !part.is_empty());
    numbers.all(|part| number(part).is_some_and(|edge| edge.abs() <= 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(tag: &str, expected: bool) {
        let tree = Tree::parse(&format!("<{tag}>x"));
        assert_eq!(is_hidden(&tree, tree.elements().next().expect("an element")), expected, "{tag}");
    }

    #[test]
    fn hidden_elements_are_told_by_their_attributes() {
        for tag in [
            "p hidden",
            "p hidden=''",
            "span aria-hidden=true",
            "dialog",
            "div style='display:none'",
            "div style='color:red; DISPLAY : None !important'",
            "div style='display:/* x */none'",
            "div style=visibility:hidden",
            "div style='opacity:0'",
            "div style='opacity:.01'",
            "div style='font-size:0px'",
            "div style='font-size:1px'",
            "div style='height:0;overflow:hidden'",
            "div style='position:absolute;left:-9999px'",
            "div style='text-indent:-9999px'",
            "div style='clip: rect(0 0 0 0)'",
            "div style='clip-path:inset(50%)'",
            "img width=1 height=1",
        ] {
            check(tag, true);
        }
    }

    #[test]
    fn shown_elements_stay() {
        for tag in [
            "p",
            "p hidden=until-found",
            "p aria-hidden=false",
            "dialog open",
            "div style='display:block'",
            "div style='opacity:1'",
            "div style='font-size:12px'",
            "div style='height:0'",
            "div style='left:-9999px'",
            "div style='nodisplay:none;:;x'",
            "div style='/*'",
        ] {
            check(tag, false);
        }
    }
}
