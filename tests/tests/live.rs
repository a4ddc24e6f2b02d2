//! `tenure watch` and `tenure top`, the program, on a host with `tenured --standalone`: what happens is told and shown at once, and names
//! that others choose are only ever text. Needs root and iproute2.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::PostParams;
use nix::pty::{OpenptyResult, Winsize, openpty};
use nix::sys::termios::tcgetattr;
use serde_json::{Value, json};
use tenure_api::claims::IPAMClaim;
use tenure_testbed::wait::{PATIENCE, until};
use tenure_tests::alone::{Alone, pool};

/// What a terminal would act on: a title, another screen, colours by one character, and a line of its own.
const HOSTILE: &str = "x\u{1b}]owned\u{7}\u{1b}[2J\u{9b}31m\rfaked";

fn config() -> Value {
    json!({"cniVersion": "1.1.0", "name": "pods", "type": "tenure"})
}

fn alone() -> Alone {
    Alone::running(&json!({"blockSizeBits": 4, "subnets": [{"ipv4": "10.73.0.0/24"}], "cooling": "1s"}))
}

/// The program, which ends with the value.
struct Tenure(Child);

impl Drop for Tenure {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn tenure(alone: &Alone, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bed-tenure"));
    command.args(arguments).arg("--run-dir").arg(alone.path("/run/tenure"));
    // No kubeconfig of whoever runs the tests.
    command.env("HOME", "/nowhere").env("KUBECONFIG", "");
    command
}

/// ADD for a pod with a name that whoever made it chose: it is refused, and was an ADD.
fn refused(alone: &Alone) {
    let (pod, args) =
        (alone.pod("evil"), format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME={HOSTILE}"));
    let said = alone.call_with(("tenure", "ADD", "evil", &args), Some(&pod), &config());
    assert_eq!(said.code, 1, "{said:?}");
}

/// The lines that the program prints, as they come.
struct Lines {
    told: Receiver<String>,
    /// What was read and not asked for yet.
    seen: Vec<String>,
}

impl Lines {
    fn of(child: &mut Child) -> Self {
        let (tell, told) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || out.lines().map_while(Result::ok).all(|line| tell.send(line).is_ok()));
        Self { told, seen: Vec::new() }
    }

    /// Waits for a line that is like this.
    fn next(&mut self, what: &str, is: impl Fn(&str) -> bool) -> String {
        if let Some(at) = self.seen.iter().position(|line| is(line)) {
            return self.seen.remove(at);
        }
        loop {
            match self.told.recv_timeout(PATIENCE) {
                Ok(line) if is(&line) => return line,
                Ok(line) => self.seen.push(line),
                Err(error) => panic!("waited for {what} ({error}), and saw {:#?}", self.seen),
            }
        }
    }

    /// Waits for an event of this name.
    fn event(&mut self, name: &str) -> Value {
        let read =
            |line: &str| -> Value { serde_json::from_str(line).unwrap_or_else(|_| panic!("{line:?}")) };
        read(&self.next(name, |line| read(line)["event"] == name))
    }
}

/// Makes a claim for a network of this name.
fn claim(alone: &Alone, network: &str) {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let client = tenure_daemon::connect_unix(&alone.path("/run/tenure/api.sock"));
        let shop: Namespace = serde_json::from_value(json!({"metadata": {"name": "shop"}})).unwrap();
        Api::all(client.clone()).create(&PostParams::default(), &shop).await.unwrap();
        let spec = json!({"network": network, "interface": "net1"});
        let claim = IPAMClaim::new("printer", serde_json::from_value(spec).unwrap());
        let claims: Api<IPAMClaim> = Api::namespaced(client, "shop");
        claims.create(&PostParams::default(), &claim).await.unwrap();
    });
}

#[test]
fn what_happens_is_one_line_each_for_people_and_for_programs() {
    let alone = alone();
    let mut json = Tenure(tenure(&alone, &["watch", "-o", "json"]).stdout(Stdio::piped()).spawn().unwrap());
    let mut text =
        Tenure(tenure(&alone, &["watch", "hold", "claim"]).stdout(Stdio::piped()).spawn().unwrap());
    let (mut objects, mut people) = (Lines::of(&mut json.0), Lines::of(&mut text.0));
    objects.event("started");
    people.next("the start", |line| line.contains("started"));

    let pod = alone.pod("a");
    let address = alone.attach("ADD", &pod, &config()).address().to_string();
    let block = objects.event("block-granted");
    assert_eq!(block["subject"], "block default-0", "{block}");
    let hold = objects.event("hold-assigned");
    assert_eq!(hold["subject"], address, "{hold}");
    assert!(hold["message"].as_str().unwrap().starts_with("to container a eth0 on node "), "{hold}");
    people.next("a hold", |line| {
        line.contains(&format!("hold-assigned          {address}: to container a eth0"))
    });
    alone.attach("DEL", &pod, &config()).result();
    assert_eq!(objects.event("hold-released")["subject"], address);
    people.next("its end", |line| line.contains("hold-released"));

    claim(&alone, HOSTILE);
    assert_eq!(objects.event("claim-created")["message"], format!("for network {HOSTILE}"));
    let refused = objects.event("claim-refused");
    assert!(refused["message"].as_str().unwrap().contains("there is no network"), "{refused}");
    let line = people.next("a refusal", |line| line.contains("claim-refused"));
    assert!(!line.contains(char::is_control) && line.contains(r"x\u001b]owned"), "{line:?}");

    let more = pool("more", &json!({"blockSizeBits": 4, "subnets": [{"ipv4": "10.74.0.0/24"}]}));
    alone.write("/etc/tenure/pools/more.yaml", &more);
    assert_eq!(objects.event("pool-created")["subject"], "AddressPool more");
    let is = |line: &str| line.contains("\"pool-condition\"") && line.contains("AddressPool more");
    objects.next("its condition", is);

    // What `check` finds.
    let pod = alone.pod("b");
    let address = alone.attach("ADD", &pod, &config()).address();
    alone.host.ip(&format!("route del {address} table 116\n")).unwrap();
    let found = objects.event("finding-new");
    assert!(found["subject"].as_str().unwrap().starts_with("kernel: node "), "{found}");
}

#[test]
fn use_rates_and_the_slowest_adds_are_printed_once_for_scripts() {
    let alone = alone();
    refused(&alone);
    let output = tenure(&alone, &["top", "--once", "-o", "json"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.trim_end_matches('\n').contains(char::is_control), "{text:?}");
    let frame: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&frame["agents"], &frame["unseen"]), (&json!(1), &json!({})), "{text}");
    assert_eq!(
        (&frame["pools"][0]["name"], &frame["rates"]["agents"]),
        (&json!("default"), &json!(1)),
        "{text}"
    );
    let slow = &frame["slowestAdds"][0];
    assert_eq!((&slow["pod"]["name"], &slow["code"]), (&json!(HOSTILE), &json!(7)), "{text}");
    assert!(slow["microseconds"].as_u64().is_some_and(|it| it > 0), "{text}");

    // Without a terminal the frames follow each other, as text alone.
    let mut child =
        Tenure(tenure(&alone, &["top", "--interval", "1s"]).stdout(Stdio::piped()).spawn().unwrap());
    let mut out = Lines::of(&mut child.0);
    for frame in ["the first frame", "the second frame"] {
        out.next(frame, |line| line.starts_with("tenure top  "));
        let slow = out.next(frame, |line| line.contains(" ms  "));
        assert!(slow.contains(r"shop/x\u001b]owned"), "{slow:?}");
    }
}

/// A terminal: what the program wrote to it so far.
struct Terminal {
    master: File,
    written: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn of(master: OwnedFd) -> Self {
        let master = File::from(master);
        let (mut reader, written) = (master.try_clone().unwrap(), Arc::<Mutex<Vec<u8>>>::default());
        let into = Arc::clone(&written);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = reader.read(&mut buffer) {
                into.lock().unwrap_or_else(PoisonError::into_inner).extend(&buffer[..read]);
            }
        });
        Self { master, written }
    }

    fn text(&self) -> String {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&written).into_owned()
    }

    /// What the last frame shows, without the sequences that draw it.
    fn frame(&self) -> String {
        let text = self.text();
        text.rsplit("\u{1b}[H").next().unwrap_or_default().replace("\u{1b}[K", "")
    }

    fn until(&self, what: &str, shows: impl Fn(&str) -> bool) {
        until(&format!("{what} on the screen"), || shows(&self.frame()).then_some(()));
    }
}

#[test]
fn a_terminal_is_drawn_in_place_and_left_as_it_was() {
    let mut alone = alone();
    refused(&alone);
    let size = Winsize { ws_row: 20, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    let OpenptyResult { master, slave } = openpty(Some(&size), None).unwrap();
    let before = tcgetattr(&slave).unwrap();
    let [input, output] = [(); 2].map(|()| slave.try_clone().unwrap());
    let mut child =
        Tenure(tenure(&alone, &["top", "--interval", "500ms"]).stdin(input).stdout(output).spawn().unwrap());
    let mut terminal = Terminal::of(master);

    terminal.until("a slow ADD", |frame| frame.contains(r"shop/x\u001b]owned"));
    terminal.until("a rate", |frame| frame.contains("ADD/s 0.0"));
    assert!(terminal.text().starts_with("\u{1b}[?1049h"), "{:?}", terminal.text());
    assert!(terminal.frame().contains("q or Ctrl-C ends"));

    // Live, and in place: it never scrolls.
    alone.attach("ADD", &alone.pod("second"), &config()).result();
    terminal.until("another ADD", |frame| frame.contains("container second eth0"));
    assert!(terminal.frame().lines().count() <= 20, "{}", terminal.frame());

    // Who does not answer is a question mark, until it does.
    alone.kill();
    terminal.until("an agent that does not answer", |frame| {
        frame.contains("? node ") && frame.contains("ADD/s ?")
    });
    alone.start();
    terminal.until("the agent again", |frame| frame.contains("1 agents\r") && frame.contains("ADD/s 0.0"));

    terminal.master.write_all(b"q").unwrap();
    let ended = until("the end", || child.0.try_wait().unwrap());
    assert!(ended.success(), "{ended}");
    until("the screen to be put away", || {
        terminal.text().ends_with("\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l").then_some(())
    });
    assert_eq!(tcgetattr(&slave).unwrap(), before, "keys work as before");
    let text = terminal.text();
    for sequence in ["\u{1b}]owned", "\u{1b}[2J", "\u{9b}31m"] {
        assert!(!text.contains(sequence), "a name was acted on: {sequence:?}");
    }
}
