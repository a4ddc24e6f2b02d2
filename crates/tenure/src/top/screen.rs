//! The terminal: another screen that is drawn in place and put away at the end, and the key that ends it.

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::thread;

use anyhow::{Context, Result};
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

use super::frame::Frame;
use crate::table;

/// Another screen, no cursor, and lines that are cut at the edge.
const OPEN: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
/// The other way round.
const CLOSE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
/// If the terminal does not say how high it is.
const USUAL: usize = 24;

/// The screen. It is put away when this is dropped.
pub(super) struct Screen {
    /// How the terminal handled keys before, if keys come from it.
    before: Option<Termios>,
    quit: mpsc::Receiver<()>,
    /// What is on it.
    drawn: String,
    /// Kept so that the channel stays open without a thread that reads keys.
    _keep: mpsc::Sender<()>,
}

impl Screen {
    /// Opens it.
    pub(super) fn open() -> Result<Self> {
        let (tell, quit) = mpsc::channel(1);
        let mut before = None;
        if io::stdin().is_terminal() {
            let settings = tcgetattr(io::stdin()).context("cannot read the terminal's settings")?;
            let mut keys = settings.clone();
            keys.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO);
            tcsetattr(io::stdin(), SetArg::TCSANOW, &keys).context("cannot set up the terminal")?;
            before = Some(settings);
            let told = tell.clone();
            // It reads until the program ends.
            thread::Builder::new().name("keys".to_owned()).spawn(move || read_keys(&told))?;
        }
        let screen = Self { before, quit, drawn: String::new(), _keep: tell };
        write(OPEN)?;
        Ok(screen)
    }

    /// Draws a frame over the last one.
    pub(super) fn draw(&mut self, frame: &Frame) -> Result<()> {
        let height = terminal_size::terminal_size().map_or(USUAL, |(_, height)| usize::from(height.0));
        let mut lines = frame.lines();
        let foot = "q or Ctrl-C ends";
        let room = height.saturating_sub(1);
        if lines.len() > room {
            lines.truncate(room.saturating_sub(1));
            lines.push("…\n".to_owned());
        }
        let end = |line: &String| format!("{}\x1b[K\r\n", table::one_line(line.trim_end_matches('\n')));
        let shown: Vec<String> = lines.iter().map(end).collect();
        let text = format!("\x1b[H{}\x1b[J\x1b[{height};1H{foot}\x1b[K", shown.concat());
        if self.drawn != text {
            write(&text)?;
            self.drawn = text;
        }
        Ok(())
    }

    /// Waits until somebody wants to end it.
    pub(super) async fn quit(&mut self) {
        // The channel is never closed.
        let _ = self.quit.recv().await;
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Whoever reads the terminal may have gone.
        let _ = write(CLOSE);
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, before);
        }
    }
}

fn write(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to the terminal")
}

fn read_keys(tell: &mpsc::Sender<()>) {
    let mut key = [0];
    while let Ok(1) = io::stdin().lock().read(&mut key) {
        if matches!(key[0], b'q' | b'Q') && tell.blocking_send(()).is_err() {
            return;
        }
    }
}
