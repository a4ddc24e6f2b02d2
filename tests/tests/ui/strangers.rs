//! Who else is on the machine: without the token, from another site, or with another method, nobody gets anything.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::json;
use tenure_tests::alone::Alone;

use super::bed::{Pages, browser};
use std::process::Command;

/// A request as it is; gives its status and the whole answer.
fn ask(address: &str, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    (answer[9..12].parse().unwrap(), answer)
}

#[test]
fn only_the_browser_with_the_token_reads_anything() {
    let alone = Alone::running(&json!({"blockSizeBits": 4, "subnets": [{"ipv4": "10.71.0.0/24"}]}));
    let run = alone.path("/run/tenure");
    let pages = Pages::start(&["--run-dir", run.to_str().unwrap()]);
    let (address, token) = pages.parts();
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let get = |path: &str, headers: &str| {
        ask(address, &format!("GET {path} HTTP/1.1\r\nconnection: close\r\n{headers}\r\n"))
    };
    let host = format!("host: {address}\r\n");
    let with = format!("{host}tenure-token: {token}\r\n");
    let paths = [
        "/v1/search?q=default",
        "/v1/who?address=10.71.0.1",
        "/v1/node?name=x",
        "/v1/stream?page=pools",
        "/v1/nothing",
    ];
    for path in paths {
        let (status, answer) = get(path, &host);
        assert_eq!(status, 401, "{path}: {answer}");
        assert!(!answer.contains("10.71."), "{answer}");
        let wrong = format!("{host}tenure-token: {}\r\n", "0".repeat(64));
        assert_eq!(get(path, &wrong).0, 401, "{path}");
        // A name of somebody else that leads here.
        assert_eq!(get(path, &with.replace(address, "rebound.example")).0, 421, "{path}");
        assert_eq!(get(path, &format!("{with}origin: http://127.0.0.1:1\r\n")).0, 403, "{path}");
        assert_eq!(get(path, &format!("{with}sec-fetch-site: same-site\r\n")).0, 403, "{path}");
    }
    let (status, answer) = get("/v1/who?address=10.71.0.1", &with);
    assert_eq!(status, 200, "{answer}");
    let lower = answer.to_lowercase();
    assert!(!lower.contains("access-control-") && !lower.contains("set-cookie"), "{answer}");
    for policy in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "nosniff", "no-store"]
    {
        assert!(answer.contains(policy), "{policy} is not in {answer}");
    }
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"] {
        let request =
            format!("{method} /v1/who?address=10.71.0.1 HTTP/1.1\r\nconnection: close\r\n{with}\r\n");
        assert_eq!(ask(address, &request).0, 405, "{method}");
    }
    assert_eq!(get("/etc/passwd", &with).0, 404);
    assert_eq!(get("/../Cargo.toml", &with).0, 404);

    // A page that somebody opens without the token says what to do, and one with it stays open when it is loaded again.
    let browser = browser(&pages);
    browser.until("the pool", "document.querySelector('tbody tr')").unwrap();
    browser.value("location.reload()").unwrap();
    browser.until("the pool again", "document.querySelector('tbody tr')").unwrap();
    browser.value("sessionStorage.clear(), location.reload()").unwrap();
    browser
        .until(
            "it says what to do",
            "document.getElementById('trouble')?.textContent.includes('no valid token')",
        )
        .unwrap();
}

#[test]
fn addresses_that_others_can_reach_are_refused() {
    for address in ["0.0.0.0", "192.0.2.1", "::"] {
        let output = Command::new(env!("CARGO_BIN_EXE_bed-tenure"))
            .args(["ui", "--run-dir", "/nowhere", "--address", address])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("is reachable from other machines; accepted is a loopback address"), "{said}");
    }
}
