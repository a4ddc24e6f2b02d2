//! A real browser without a screen: Debian's Chromium, told what to do by its DevTools protocol over two named pipes, so that no port is
//! open.
//!
//! Its profile is new and empty, it starts no service in the background, and it ends with the test process.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use nix::sys::stat::Mode;
use serde_json::{Value, json};

use crate::binaries::{Binaries, Program as Known};
use crate::process::{Process, Program};
use crate::wait::PATIENCE;

/// A key that writes nothing: its name, and the code that browsers know it by.
const KEYS: [(&str, u32); 9] = [
    ("Enter", 13),
    ("Escape", 27),
    ("Tab", 9),
    ("ArrowLeft", 37),
    ("ArrowUp", 38),
    ("ArrowRight", 39),
    ("ArrowDown", 40),
    ("Home", 36),
    ("End", 35),
];
/// How long to wait for a message before looking whether the browser still runs.
const TICK: Duration = Duration::from_millis(200);

/// A browser with one page.
pub struct Browser {
    process: Process,
    tell: RefCell<File>,
    said: Receiver<Value>,
    session: RefCell<String>,
    next: Cell<u64>,
    events: RefCell<VecDeque<Value>>,
    _directory: tempfile::TempDir,
}

impl Browser {
    /// Starts one, with an empty page of this size.
    pub fn start(width: u32, height: u32) -> Result<Self> {
        let program = Binaries::locate(Known::BROWSER)?.path(Known::Chromium)?.to_owned();
        let directory = tempfile::tempdir()?;
        let place = |name: &str| directory.path().join(name);
        for pipe in ["commands", "answers"] {
            nix::unistd::mkfifo(&place(pipe), Mode::S_IRUSR | Mode::S_IWUSR).context("making a pipe")?;
        }
        // For both directions, so that opening waits for nobody.
        let open = |name: &str| OpenOptions::new().read(true).write(true).open(place(name));
        let (tell, mut answers) = (open("commands")?, open("answers")?);
        let log = place("chromium.log");
        let script = r#"in=$1 out=$2; shift 2; exec "$0" "$@" 3<"$in" 4>"$out""#;
        let shell = Program::new("chromium", "/bin/sh", &log).args(["-c", script]).arg(program);
        let command = shell.arg(place("commands")).arg(place("answers")).args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--remote-debugging-pipe",
            "--hide-scrollbars",
            &format!("--window-size={width},{height}"),
        ]);
        let process =
            command.flag("--user-data-dir", place("profile")).env("HOME", directory.path()).start()?;
        let (hear, said) = mpsc::channel();
        std::thread::spawn(move || {
            let (mut buffer, mut message) = (vec![0; 1 << 16], Vec::new());
            while let Ok(length) = answers.read(&mut buffer) {
                for byte in &buffer[..length] {
                    if *byte != 0 {
                        message.push(*byte);
                        continue;
                    }
                    let parsed = serde_json::from_slice(&std::mem::take(&mut message));
                    if parsed.is_ok_and(|message| hear.send(message).is_err()) {
                        return;
                    }
                }
            }
        });
        let browser = Self {
            process,
            tell: RefCell::new(tell),
            said,
            session: RefCell::default(),
            next: Cell::new(1),
            events: RefCell::default(),
            _directory: directory,
        };
        let page = browser.call("Target.createTarget", &json!({"url": "about:blank"}))?;
        let attach = json!({"targetId": page["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", &attach)?;
        *browser.session.borrow_mut() = text(&session["sessionId"])?;
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}))?;
        }
        browser.resize(width, height)?;
        Ok(browser)
    }

    /// Opens an address and waits until it is loaded.
    pub fn open(&self, address: &str) -> Result<()> {
        let opened = self.call("Page.navigate", &json!({"url": address}))?;
        ensure!(opened["errorText"].is_null(), "{address}: {}", opened["errorText"]);
        self.until("the page is loaded", "document.readyState === 'complete'").map(drop)
    }

    /// The value of an expression; promises are waited for.
    pub fn value(&self, expression: &str) -> Result<Value> {
        let asked = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let mut said = self.call("Runtime.evaluate", &asked)?;
        let wrong = &said["exceptionDetails"];
        ensure!(wrong.is_null(), "{expression}: {} {}", wrong["text"], wrong["exception"]["description"]);
        Ok(said["result"]["value"].take())
    }

    /// Waits until an expression is true, or like it, and returns its value.
    pub fn until(&self, what: &str, expression: &str) -> Result<Value> {
        let truthy = |value: &Value| {
            !matches!(value, Value::Null | Value::Bool(false)) && *value != json!(0) && *value != json!("")
        };
        let mut last = Ok(Value::Null);
        let rounds = PATIENCE.as_millis() / TICK.as_millis() * 4;
        for _ in 0..rounds {
            // While a page changes, there may be none to ask.
            last = self.value(expression);
            if last.as_ref().is_ok_and(truthy) {
                return last;
            }
            std::thread::sleep(TICK / 4);
        }
        bail!(
            "waited {PATIENCE:?} until {what}: {last:?}; the page says {:?}",
            self.value("document.body.innerText")
        )
    }

    /// The text of the page, as people read it.
    pub fn text(&self) -> Result<String> {
        text(&self.value("document.body.innerText")?)
    }

    /// Gives the page another size.
    pub fn resize(&self, width: u32, height: u32) -> Result<()> {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", &size).map(drop)
    }

    /// Whether the system prefers dark pages.
    pub fn dark(&self, dark: bool) -> Result<()> {
        let scheme = if dark { "dark" } else { "light" };
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", &media).map(drop)
    }

    /// Presses keys, one after the other: names of keys, or single characters.
    pub fn press(&self, keys: &[&str]) -> Result<()> {
        for key in keys {
            let known = KEYS.iter().find(|(name, _)| name == key);
            let mut event = json!({"type": "keyDown", "key": key});
            match known {
                Some((name, code)) => {
                    event["code"] = json!(name);
                    event["windowsVirtualKeyCode"] = json!(code);
                    if *name == "Enter" {
                        event["text"] = json!("\r");
                    }
                }
                None => event["text"] = json!(key),
            }
            self.call("Input.dispatchKeyEvent", &event)?;
            event["type"] = json!("keyUp");
            self.call("Input.dispatchKeyEvent", &event)?;
        }
        Ok(())
    }

    /// Writes text where the cursor is.
    pub fn write(&self, words: &str) -> Result<()> {
        self.call("Input.insertText", &json!({"text": words})).map(drop)
    }

    /// A picture of what is visible.
    pub fn picture(&self, path: &Path) -> Result<PathBuf> {
        let taken = self.call("Page.captureScreenshot", &json!({"format": "png"}))?;
        let bytes = base64::engine::general_purpose::STANDARD.decode(text(&taken["data"])?)?;
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(path, bytes).with_context(|| format!("writing {}", path.display()))?;
        Ok(path.to_owned())
    }

    /// What went wrong on the page so far: exceptions, errors that were logged, and what its policy refused.
    pub fn complaints(&self) -> Vec<String> {
        let events = self.events.borrow();
        let wrong = events.iter().filter_map(|event| {
            let parameters = &event["params"];
            match event["method"].as_str()? {
                "Runtime.exceptionThrown" => Some(parameters["exceptionDetails"].to_string()),
                "Runtime.consoleAPICalled" if parameters["type"] == "error" => {
                    Some(parameters["args"].to_string())
                }
                "Log.entryAdded" if parameters["entry"]["level"] == "error" => {
                    Some(parameters["entry"].to_string())
                }
                _ => None,
            }
        });
        wrong.collect()
    }

    /// Every address that the page asked for so far.
    pub fn requests(&self) -> Vec<String> {
        let events = self.events.borrow();
        let sent = events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        sent.filter_map(|event| event["params"]["request"]["url"].as_str().map(str::to_owned)).collect()
    }

    /// One command of the protocol, and its answer.
    pub fn call(&self, method: &str, parameters: &Value) -> Result<Value> {
        let number = self.next.replace(self.next.get() + 1);
        let mut command = json!({"id": number, "method": method, "params": parameters});
        let session = self.session.borrow();
        if !session.is_empty() {
            command["sessionId"] = json!(*session);
        }
        let mut bytes = command.to_string().into_bytes();
        bytes.push(0);
        self.tell.borrow_mut().write_all(&bytes).context("telling the browser")?;
        let ticks = PATIENCE.as_millis() / TICK.as_millis();
        let mut silent = 0;
        loop {
            match self.said.recv_timeout(TICK) {
                Ok(mut message) if message["id"] == number => {
                    ensure!(message["error"].is_null(), "{method}: {}", message["error"]);
                    return Ok(message["result"].take());
                }
                Ok(event) => self.events.borrow_mut().push_back(event),
                Err(RecvTimeoutError::Timeout) if self.process.is_running() && silent < ticks => silent += 1,
                Err(_) => {
                    let log = fs::read_to_string(self.process.log()).unwrap_or_default();
                    bail!("the browser does not answer {method}: {log}");
                }
            }
        }
    }
}

fn text(value: &Value) -> Result<String> {
    value.as_str().map(str::to_owned).with_context(|| format!("{value} is no text"))
}
