//! `tenure ui` as a child, and a browser that looks at it.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tenure_testbed::browser::Browser;

/// The sizes of a usual screen and of a telephone.
pub const SCREEN: (u32, u32) = (1280, 800);
pub const TELEPHONE: (u32, u32) = (390, 844);

/// The program; it ends with the value.
pub struct Pages {
    child: Child,
    /// The address with the token, as it printed it.
    pub url: String,
}

impl Pages {
    /// Starts it with these arguments beside `ui`.
    pub fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bed-tenure"));
        let command = command.arg("ui").args(["-o", "json"]).args(arguments);
        // No kubeconfig of whoever runs the tests.
        let command = command.env("HOME", "/nowhere").env("KUBECONFIG", "").stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("it said {line:?}"));
        Self { child, url: said["url"].as_str().unwrap().to_owned() }
    }

    /// Where it listens, and the token.
    pub fn parts(&self) -> (&str, &str) {
        let (start, token) = self.url.split_once("/#token=").unwrap();
        (start.strip_prefix("http://").unwrap(), token)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A browser that has opened the pages.
pub fn browser(pages: &Pages) -> Browser {
    let browser = Browser::start(SCREEN.0, SCREEN.1).unwrap();
    browser.open(&pages.url).unwrap();
    browser
}

/// Goes to a page.
pub fn go(browser: &Browser, route: &str) {
    browser.value(&format!("location.hash = {}", serde_json::json!(format!("#{route}")))).unwrap();
}

/// Keeps a picture for people.
pub fn keep(browser: &Browser, name: &str) {
    let directory = std::env::current_exe().unwrap();
    let target = directory.ancestors().find(|it| it.ends_with("target")).map(PathBuf::from);
    let path = target.unwrap_or_else(std::env::temp_dir).join("ui").join(format!("{name}.png"));
    browser.picture(&path).unwrap();
}

/// Nothing is wider than the screen.
pub fn fits(browser: &Browser, what: &str) {
    let widths = browser.value("[document.documentElement.scrollWidth, innerWidth]").unwrap();
    assert_eq!(widths[0], widths[1], "{what} is wider than the screen");
}

/// Everything that the browser asked for is ours, and nothing went wrong in it.
pub fn was_content(browser: &Browser, pages: &Pages) {
    let origin = format!("http://{}/", pages.parts().0);
    for request in browser.requests() {
        assert!(request.starts_with(&origin) || request == "about:blank", "it asked for {request}");
        assert!(
            !request.contains(pages.parts().1) || request.contains("/#token="),
            "a request has the token: {request}"
        );
    }
    assert_eq!(browser.complaints(), Vec::<String>::new());
}
