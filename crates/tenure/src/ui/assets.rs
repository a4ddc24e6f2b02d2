//! The files of the pages, as they are in the program, and the headers of every answer.

use http::{HeaderMap, HeaderValue, header};

/// What a browser may do with a page: run our scripts, use our styles, ask us, and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; \
                      frame-ancestors 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

macro_rules! assets {
    ($($name:literal: $kind:ident),* $(,)?) => {
        /// Path, content type, and content.
        pub(super) const ASSETS: &[(&str, &str, &str)] = &[$((concat!("/", $name), $kind, include_str!(concat!("web/", $name)))),*];
    };
}

assets! {
    "index.html": HTML,
    "style.css": STYLE,
    "app.js": SCRIPT,
    "dom.js": SCRIPT,
    "lists.js": SCRIPT,
    "live.js": SCRIPT,
    "map.js": SCRIPT,
    "draw.js": SCRIPT,
    "node.js": SCRIPT,
    "search.js": SCRIPT,
}

/// The file at a path.
pub(super) fn asset(path: &str) -> Option<(&'static str, &'static str)> {
    let path = if path == "/" { "/index.html" } else { path };
    ASSETS.iter().find(|(name, ..)| *name == path).map(|(_, kind, text)| (*kind, *text))
}

/// Adds what every answer has.
pub(super) fn protect(headers: &mut HeaderMap) {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_script_makes_markup_of_text_and_nothing_comes_from_elsewhere() {
        let banned = [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "DOMParser",
            "createContextualFragment",
            "setHTML",
            "eval(",
            "new Function",
            "srcdoc",
            "javascript:",
            "https://",
            "setTimeout(\"",
        ];
        for (path, kind, text) in ASSETS {
            for word in &banned {
                assert!(!text.contains(word), "{path} has {word}");
            }
            if *kind == HTML {
                let inline = ["<style", "style=", "onclick", "onload", "onerror", "<script>"];
                assert!(
                    !inline.iter().any(|word| text.contains(word)),
                    "{path}: the policy allows nothing inline"
                );
            }
            if *kind == SCRIPT {
                assert!(
                    !text.contains(".style.cssText") && !text.contains("setAttribute(\"style\""),
                    "{path}"
                );
            }
        }
    }

    #[test]
    fn every_file_that_a_file_names_is_there() {
        for (path, _, text) in ASSETS {
            let parts = text.split(['"', '\'']);
            let is_file = |part: &&str| matches!(part.rsplit_once('.'), Some((_, "js" | "css")));
            let named = parts.filter(is_file);
            for name in named.map(|name| name.trim_start_matches(['.', '/'])) {
                assert!(asset(&format!("/{name}")).is_some(), "{path} names {name}");
            }
        }
    }
}
