//! One host with a real agent: what it does is on the page at once, for eyes, ears and keys, and names are only ever text.

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use tenure_api::claims::IPAMClaim;
use tenure_tests::alone::Alone;

use super::bed::{Pages, SCREEN, TELEPHONE, browser, fits, go, keep, was_content};

fn alone() -> Alone {
    let spec = json!({
        "blockSizeBits": 4, "subnets": [{"ipv4": "10.70.0.0/24", "ipv6": "fd70::/120"}],
        "exclude": ["10.70.0.0", "10.70.0.224/28"],
    });
    Alone::running(&spec)
}

fn config() -> serde_json::Value {
    json!({"cniVersion": "1.1.0", "name": "pods", "type": "tenure"})
}

#[test]
#[expect(clippy::too_many_lines, reason = "one visit, step by step")]
fn what_happens_on_a_host_is_on_its_map_at_once() {
    let alone = alone();
    let pods: Vec<_> = (0..20).map(|number| alone.pod(&format!("pod-{number}"))).collect();
    let addresses: Vec<_> =
        pods[..18].iter().map(|pod| alone.attach("ADD", pod, &config()).address().to_string()).collect();
    let run = alone.path("/run/tenure");
    let pages = Pages::start(&["--run-dir", run.to_str().unwrap()]);
    let browser = browser(&pages);

    browser.until("the pool is listed", "document.body.innerText.includes('18 used')").unwrap();
    assert_eq!(
        browser.value("location.hash").unwrap(),
        "#/pools",
        "the token is not in the address any more"
    );
    keep(&browser, "pools");

    browser.value("document.querySelector('tbody a').click()").unwrap();
    let held = "document.querySelector('[data-state=held]')?.textContent";
    browser.until("18 addresses are held", &format!("{held} === '18'")).unwrap();
    browser
        .until(
            "the excluded ones are shown",
            "document.querySelector('[data-state=excluded]').textContent !== '0'",
        )
        .unwrap();
    keep(&browser, "map-light");

    // News, without anybody asking for it.
    let nineteenth = alone.attach("ADD", &pods[18], &config()).address().to_string();
    browser.until("one more", &format!("{held} === '19'")).unwrap();
    alone.attach("DEL", &pods[3], &config()).result();
    browser.until("one less", &format!("{held} === '18'")).unwrap();
    let cooling = "document.querySelector('[data-state=cooling]').textContent === '1'";
    browser.until("it cools", cooling).unwrap();

    // Keys: to the cursor's address, and what is known of it.
    browser.value("document.querySelector('.board').focus()").unwrap();
    browser.press(&["0"]).unwrap();
    browser
        .until("the whole network", "document.querySelector('.path strong')?.textContent === '10.70.0.0/24'")
        .unwrap();
    browser.value("document.querySelector('.board').focus()").unwrap();
    browser.press(&["ArrowRight"]).unwrap();
    browser
        .until(
            "the first address is said",
            "document.getElementById('said').textContent.startsWith('10.70.0.1, held')",
        )
        .unwrap();
    let said = format!("{} is held by container pod-0 eth0 on node", addresses[0]);
    let under = format!("document.querySelector('.under').innerText.includes({})", json!(said));
    browser.until("who has it", &under).unwrap();
    browser.press(&["+"]).unwrap();
    browser
        .until("a part", "document.querySelector('.path strong')?.textContent === '10.70.0.0/28'")
        .unwrap();
    keep(&browser, "map-close");
    browser.press(&["b"]).unwrap();
    browser
        .until(
            "the same as a table",
            "document.querySelector('caption') && document.body.innerText.includes('10.70.0.1/32')",
        )
        .unwrap();
    browser.press(&["?"]).unwrap();
    browser.until("help", "document.getElementById('keys').open").unwrap();
    keep(&browser, "help");
    browser.press(&["Escape"]).unwrap();

    // The search.
    browser.press(&["/"]).unwrap();
    browser.write("pod-18").unwrap();
    browser
        .until(
            "it is found",
            "document.querySelector('#found [aria-selected=true]')?.innerText.includes('pod-18')",
        )
        .unwrap();
    browser.press(&["Enter"]).unwrap();
    let who = format!(
        "document.querySelector('.sentence')?.textContent.startsWith({})",
        json!(format!("{nineteenth} is held by"))
    );
    browser.until("who it is", &who).unwrap();
    keep(&browser, "address");

    // The node, with its holders.
    go(&browser, "/nodes");
    browser.until("the node", "document.querySelector('tbody a')").unwrap();
    keep(&browser, "nodes");
    browser.value("document.querySelector('tbody a').click()").unwrap();
    browser.until("its holders", "document.body.innerText.includes('container pod-18 eth0')").unwrap();
    keep(&browser, "node");
    browser
        .until(
            "everything was compared",
            "document.querySelector('[data-page=findings] .badge').textContent === '✓'",
        )
        .unwrap();

    // What `check` finds, with its advice.
    alone.host.ip(&format!("route del {} table 116\n", addresses[0])).unwrap();
    go(&browser, "/findings");
    browser
        .until(
            "the finding",
            &format!("document.querySelector('tbody')?.innerText.includes({})", json!(addresses[0])),
        )
        .unwrap();
    keep(&browser, "findings");

    // Both themes, both sizes, all pages.
    for (dark, size, name) in
        [(false, TELEPHONE, "telephone"), (true, TELEPHONE, "telephone-dark"), (true, SCREEN, "dark")]
    {
        browser.dark(dark).unwrap();
        browser.resize(size.0, size.1).unwrap();
        for (page, shown) in [
            ("pools", "tbody tr"),
            ("map/AddressPool/default", "[data-drawn]"),
            ("nodes", "tbody tr"),
            ("claims", ".empty"),
            ("egresses", ".empty"),
            ("node-addresses", ".empty"),
            ("aliases", ".empty"),
            ("findings", "tbody tr, .empty:not([hidden])"),
        ] {
            go(&browser, &format!("/{page}"));
            browser.until(page, &format!("document.querySelector({})", json!(shown))).unwrap();
            fits(&browser, &format!("{page} on {name}"));
            keep(&browser, &format!("{}-{name}", page.split('/').next().unwrap()));
        }
    }
    was_content(&browser, &pages);
}

#[test]
fn names_that_others_choose_are_only_ever_text() {
    let alone = alone();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let markup = "<img src=x onerror=\"document.title='owned'\"><b>bold</b>";
    runtime.block_on(async {
        let client = tenure_daemon::connect_unix(&alone.path("/run/tenure/api.sock"));
        let shop: Namespace = serde_json::from_value(json!({"metadata": {"name": "shop"}})).unwrap();
        Api::all(client.clone()).create(&PostParams::default(), &shop).await.unwrap();
        let claims: Api<IPAMClaim> = Api::namespaced(client, "shop");
        let spec = json!({"network": format!("{markup}net"), "interface": "net1"});
        let claim = IPAMClaim::new("printer", serde_json::from_value(spec).unwrap());
        claims.create(&PostParams::default(), &claim).await.unwrap();
    });
    let run = alone.path("/run/tenure");
    let pages = Pages::start(&["--run-dir", run.to_str().unwrap()]);
    let browser = browser(&pages);
    go(&browser, "/claims");
    browser.until("the claim", "document.querySelector('tbody tr')").unwrap();
    // The controller's condition quotes the network's name.
    for whole in [format!("{markup}net"), format!("there is no network \"{markup}net")] {
        let whole = json!(whole);
        browser
            .until("the name", &format!("document.querySelector('tbody').textContent.includes({whole})"))
            .unwrap();
    }
    // Names from the address are text, too.
    go(&browser, "/nodes/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E");
    browser
        .until("a node of such a name", "document.querySelector('h1').textContent.includes('<img src=x')")
        .unwrap();
    go(&browser, "/map/AddressPool/%3Cimg%20src%3Dx%3E");
    browser
        .until("no such pool", "document.getElementById('trouble').textContent.includes('there is no pool')")
        .unwrap();
    let made = browser.value("document.querySelectorAll('img, b, script:not([src])').length").unwrap();
    assert_eq!(made, 0, "markup was made of text");
    assert_ne!(browser.value("document.title").unwrap(), "owned");
    assert!(!browser.complaints().iter().any(|it| it.contains("exception")), "{:?}", browser.complaints());
}
