//! The targets of links and images, which are made absolute and limited to harmless schemes.

use url::Url;

/// The maximum length of a target that is kept, in bytes.
const MAX_TARGET_BYTES: usize = 2048;

/// Makes targets absolute.
#[derive(Debug)]
pub(super) struct Links {
    base: Option<Url>,
}

impl Links {
    /// Resolves targets against the URL of a page, or against the `<base>` that the page names.
    pub(super) fn new(page: &str, base: Option<&str>) -> Self {
        let page = Url::parse(page).ok();
        let base = match (&page, base) {
            (Some(page), Some(base)) => {
                page.join(base).ok().filter(|base| matches!(base.scheme(), "http" | "https"))
            }
            _ => None,
        };
        Self { base: base.or(page) }
    }

    /// The absolute target. `None` for schemes that are not allowed, such as `javascript:` and `data:`, and for targets
    /// that are too long.
    pub(super) fn absolute(&self, target: &str) -> Option<String> {
        let target = target.trim();
        if target.is_empty() || target.len() > MAX_TARGET_BYTES {
            return None;
        }
        let url = match &self.base {
            Some(base) => base.join(target).ok()?,
            None => Url::parse(target).ok()?,
        };
        let absolute = String::from(url);
        let is_allowed =
            ["http:", "https:", "mailto:", "tel:", "ftp:"].iter().any(|scheme| absolute.starts_with(scheme));
        (is_allowed && absolute.len() <= MAX_TARGET_BYTES).then_some(absolute)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_become_absolute() {
        let links = Links::new("https://a.example/x/y?q", None);
        for (target, expected) in [
            ("z", Some("https://a.example/x/z")),
            ("/z?b=1#c", Some("https://a.example/z?b=1#c")),
            ("//b.example", Some("https://b.example/")),
            ("#top", Some("https://a.example/x/y?q#top")),
            ("mailto:a@b.example", Some("mailto:a@b.example")),
            ("javascript:alert(1)", None),
            (" JAVA\tSCRIPT:alert(1)", None),
            ("data:text/html,x", None),
            ("vbscript:x", None),
            ("file:///etc/passwd", None),
            ("http://[", None),
            ("", None),
        ] {
            assert_eq!(links.absolute(target).as_deref(), expected, "{target}");
        }
    }

    #[test]
    fn a_base_element_moves_the_targets() {
        let links = Links::new("https://a.example/x", Some("/docs/"));
        assert_eq!(links.absolute("p").as_deref(), Some("https://a.example/docs/p"));
        let links = Links::new("https://a.example/x", Some("javascript:x"));
        assert_eq!(links.absolute("p").as_deref(), Some("https://a.example/p"));
        assert_eq!(Links::new("no url", None).absolute("p"), None);
    }
}
