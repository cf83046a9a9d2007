//! Finds elements that a browser does not show, from the attributes of each element alone.
//!
//! Style sheets are not read, so text that only a style sheet hides is kept.

use super::tree::{HtmlTree, NodeId};

/// The attributes that can hide an element.
pub(super) const HIDING: [&str; 4] = ["hidden", "aria-hidden", "style", "popover"];

/// Whether a browser would not show an element.
pub(super) fn is_hidden(tree: &HtmlTree, id: NodeId) -> bool {
    let attribute = |name| tree.attribute(id, name);
    attribute("hidden").is_some_and(|value| !value.eq_ignore_ascii_case("until-found"))
        || attribute("aria-hidden").is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
        || (tree.name(id) == "dialog" && attribute("open").is_none())
        || attribute("popover").is_some()
        || attribute("style").is_some_and(style_hides)
        || is_pixel(tree, id)
}

/// Whether an image is a tracking pixel, which only counts visitors.
fn is_pixel(tree: &HtmlTree, id: NodeId) -> bool {
    let tiny = |name| {
        tree.attribute(id, name).is_some_and(|value| matches!(value.trim(), "0" | "1" | "0px" | "1px"))
    };
    tree.name(id) == "img" && tiny("width") && tiny("height")
}

/// Whether a `style` hides its element.
pub(super) fn style_hides(style: &str) -> bool {
    let style = decode_escapes(style).to_ascii_lowercase();
    let mut zero_size = false;
    let mut clipped = false;
    let mut absolute = false;
    let mut off_screen = false;
    let mut transparent = false;
    let mut painted = false;
    for declaration in split_declarations(&style) {
        let Some((name, value)) = declaration.split_once(':') else { continue };
        let (name, value) = (name.trim(), value.replace("!important", ""));
        let value = value.trim();
        match name {
            "display" if value == "none" => return true,
            "visibility" if matches!(value, "hidden" | "collapse") => return true,
            "content-visibility" if value == "hidden" => return true,
            "opacity" if number(value).is_some_and(|opacity| opacity < 0.05) => return true,
            "font-size" if is_tiny(value) => return true,
            // In `bold 0/0 a` the first length is the size.
            "font"
                if value.split_whitespace().any(|part| is_tiny(part.split('/').next().unwrap_or(part))) =>
            {
                return true;
            }
            "filter" if value.contains("opacity(0)") || value.contains("opacity(0%)") => return true,
            "color" | "-webkit-text-fill-color" => transparent |= is_transparent(value),
            // The background shows through the letters.
            "background-clip" | "-webkit-background-clip" => painted |= value == "text",
            "clip" if value.starts_with("rect(") && is_empty_rectangle(value) => return true,
            "clip-path" if EMPTY_SHAPES.iter().any(|shape| value.starts_with(shape)) => return true,
            "scale" if number(value) == Some(0.0) => return true,
            "transform" if is_moved_out_of_sight(value) => return true,
            "text-indent" | "margin-left" | "margin-top" if is_off_screen(value) => return true,
            "width" | "height" | "max-height" | "max-width" => zero_size |= is_tiny(value),
            "overflow" => clipped |= matches!(value, "hidden" | "clip"),
            "position" => absolute |= matches!(value, "absolute" | "fixed"),
            "left" | "top" | "right" | "bottom" => off_screen |= is_off_screen(value),
            "inset" => off_screen |= value.split_whitespace().any(is_off_screen),
            _ => {}
        }
    }
    (zero_size && clipped) || (absolute && off_screen) || (transparent && !painted)
}

/// Clip shapes that leave nothing visible.
const EMPTY_SHAPES: [&str; 4] = ["inset(50%", "inset(100%", "circle(0", "ellipse(0"];

fn is_tiny(value: &str) -> bool {
    number(value).is_some_and(|size| size < 0.1 || (size <= 1.0 && value.ends_with("px")))
}

fn is_off_screen(value: &str) -> bool {
    number(value).is_some_and(|offset| offset < -900.0)
}

/// Whether a `transform` shrinks its element to a point, or moves it out of sight.
fn is_moved_out_of_sight(value: &str) -> bool {
    value.split(')').filter_map(|function| function.split_once('(')).any(|(name, arguments)| {
        let mut arguments = arguments.split(',').map(str::trim);
        match name.trim() {
            "scale" | "scalex" | "scaley" | "scale3d" => arguments.any(|part| number(part) == Some(0.0)),
            "translate" | "translatex" | "translatey" | "translate3d" => arguments.any(is_off_screen),
            _ => false,
        }
    })
}

/// Whether a colour is `transparent`, or has an opacity close to 0.
fn is_transparent(value: &str) -> bool {
    let opacity = value.strip_suffix(')').and_then(|value| match value.contains('/') {
        true => value.rsplit('/').next(),
        false if value.starts_with("rgba(") || value.starts_with("hsla(") => value.rsplit(',').next(),
        false => None,
    });
    value == "transparent" || opacity.and_then(|part| number(part.trim())).is_some_and(|part| part < 0.05)
}

/// Decodes the escapes of a style (CSS Syntax, section 4.3.7). For example, `d\69splay` is `display`.
fn decode_escapes(style: &str) -> String {
    const MAX_DIGITS: usize = 6;
    let mut decoded = String::with_capacity(style.len());
    let mut rest = style;
    while let Some((literal, after_backslash)) = rest.split_once('\\') {
        decoded.push_str(literal);
        let digits = after_backslash.bytes().take(MAX_DIGITS).take_while(u8::is_ascii_hexdigit).count();
        if digits == 0 {
            rest = after_backslash;
            continue;
        }
        let code = u32::from_str_radix(&after_backslash[..digits], 16).ok();
        decoded.push(code.and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER));
        rest = &after_backslash[digits..];
        rest = rest.strip_prefix([' ', '\t', '\n']).unwrap_or(rest);
    }
    decoded.push_str(rest);
    decoded
}

/// Returns the declarations of a style, without comments.
fn split_declarations(style: &str) -> Vec<String> {
    let mut without_comments = String::with_capacity(style.len());
    let mut rest = style;
    while let Some(offset) = rest.find("/*") {
        without_comments.push_str(&rest[..offset]);
        rest = rest[offset + 2..].find("*/").map_or("", |end| &rest[offset + 2 + end + 2..]);
    }
    without_comments.push_str(rest);
    without_comments.split(';').map(str::to_owned).collect()
}

/// The number at the start of a value.
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
        let tree = HtmlTree::parse(&format!("<{tag}>x"));
        assert_eq!(is_hidden(&tree, tree.elements().next().expect("an element")), expected, "{tag}");
    }

    #[test]
    fn hidden_elements_are_recognized_by_their_attributes() {
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
            "div popover",
            "div style='d\\69splay:none'",
            "div style='d\\000069 splay:n\\6f ne'",
            "div style='disp\\lay:none'",
            "div style='font:0/0 a'",
            "div style='font: bold 1px serif'",
            "div style='filter:opacity(0)'",
            "div style='color:transparent'",
            "div style='color:rgba(1,2,3,0)'",
            "div style='color:rgb(1 2 3 / 0%)'",
            "div style='transform:scale(0,0)'",
            "div style='transform:rotate(1deg) translateX(-9999px)'",
            "div style='scale:0'",
            "div style='clip-path:circle(0)'",
            "div style='position:fixed;bottom:-9999px'",
            "div style='position:absolute;inset:0 auto auto -9999px'",
            "div style='margin-left:-9999px'",
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
            "div style='color:rgba(1,2,3,.8)'",
            "div style='color:transparent;background-clip:text'",
            "div style='font: 700 12px/1 serif'",
            "div style='transform:translate(-50%,-50%) scale(1.02)'",
            "div style='margin-left:-10px;inset:0'",
            "div style='background:url(a\\'",
        ] {
            check(tag, false);
        }
    }
}
