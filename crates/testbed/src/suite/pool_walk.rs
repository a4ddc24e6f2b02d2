//! Random walks through Tenure's own kinds: pools, ledgers and slice pools with mixtures of valid and invalid values, so that
//! both rule engines see values that no scenario lists.

use kube::Client;
use serde_json::{Value, json};
use tenure_handles::{Entropy, SeededEntropy};

use super::recorder::{Call, Recorder};
use super::{Outcome, Scenario, Transcript, normalise, scenarios, with_causes};

const V4: [&str; 14] = [
    "10.2.0.0/16",
    "10.2.128.0/17",
    "10.3.0.0/24",
    "10.3.0.7/24",
    "10.4.0.0/27",
    "10.4.0.32/28",
    "10.5.0.1/32",
    "0.0.0.0/0",
    "10.6.0.0/33",
    "10.7.0.0",
    "010.8.0.0/16",
    "fd00::/112",
    "",
    "255.255.255.254/31",
];
const V6: [&str; 11] = [
    "fd00::/112",
    "fd00::/96",
    "fd01::/120",
    "fd02::5/123",
    "fd03::/64",
    "::/0",
    "fd04::1/128",
    "FD05::/112",
    "::ffff:10.0.0.0/112",
    "10.2.0.0/16",
    "fd06::/129",
];
const EXCLUDED: [&str; 10] = [
    "10.2.0.1",
    "10.2.0.0/29",
    "10.2.0.10-10.2.0.19",
    "fd00::1",
    "fd00::1-fd00::9",
    "10.2.0.1-fd00::1",
    "10.2.0",
    "-",
    "10.2.0.1-",
    "1-2-3",
];
const COOLINGS: [&str; 10] = ["30s", "1m30s", "500ms", "0s", "24h", "24h1ms", "1.5h", "30", "-5s", "5us"];
const RANGES: [&str; 10] = [
    "192.168.2.0/24",
    "192.168.2.9/24",
    "2001:db8::/64",
    "10.0.0.0/8",
    "10.0.0.0/30",
    "fd00::/120",
    "::/0",
    "10.0.0.0",
    "x",
    "10.0.0.1/8",
];
const SIZES: [&str; 12] = ["/20", "20", "/24", "/32", "/33", "/7", "/128", "/72", "", "/", "/0x1", "1000"];
const OFFSETS: [&str; 14] = [
    "0",
    "1",
    "17",
    "01",
    "-1",
    "+1",
    "1x",
    "",
    " 1",
    "999999999999999999",
    "9999999999999999999",
    "340282366920938463463374607431768211455",
    "1:",
    "\u{661}",
];

/// Sends `steps` random requests about Tenure's kinds to the server behind `client`, from `seed`, with names for this
/// `attempt`.
pub async fn pool_walk(client: &Client, seed: u64, steps: usize, attempt: usize) -> Transcript {
    let mut recorder = Recorder::named(client.clone(), format!("pools-{seed}-{attempt}"));
    let outcome = wander(&mut recorder, seed, steps).await;
    let scenario = Scenario { area: "pool walk", name: "walk", run: |_| Box::pin(async { Ok(()) }) };
    let mut transcript = normalise::transcript(scenario, recorder.into_steps());
    transcript.scenario = format!("seed {seed}");
    transcript.stopped = outcome.err().map(|error| with_causes(&error));
    transcript
}

async fn wander(r: &mut Recorder, seed: u64, steps: usize) -> Outcome {
    scenarios::install_tenure_kinds(r).await?;
    let namespace = r.namespace().await?;
    let chance = Chance(SeededEntropy::new(seed));
    for _ in 0..steps {
        let (kind, path, spec) = match chance.below(5) {
            0 => ("IPPool", whereabouts(&namespace, "ippools"), chance.ledger()),
            1 => ("NodeSlicePool", whereabouts(&namespace, "nodeslicepools"), chance.slices()),
            _ => ("AddressPool", "/apis/coil.cybozu.com/v2/addresspools".to_owned(), chance.pool()),
        };
        // Pools are cluster-scoped: two walks must not interfere.
        let name = format!("{namespace}-{}", ["a", "b"][chance.below(2)]);
        let call = if chance.one_in(2) {
            let version =
                if kind == "AddressPool" { "coil.cybozu.com/v2" } else { "whereabouts.cni.cncf.io/v1alpha1" };
            let object =
                json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec});
            Call::new("POST", &path).json(&object)
        } else if chance.one_in(12) {
            Call::new("DELETE", &format!("{path}/{name}"))
        } else {
            let patch = json!({"spec": spec});
            Call::new("PATCH", &format!("{path}/{name}"))
                .json(&patch)
                .header("content-type", "application/merge-patch+json")
        };
        r.send(call).await?;
    }
    Ok(())
}

fn whereabouts(namespace: &str, plural: &str) -> String {
    format!("/apis/whereabouts.cni.cncf.io/v1alpha1/namespaces/{namespace}/{plural}")
}

struct Chance(SeededEntropy);

impl Chance {
    fn below(&self, bound: usize) -> usize {
        usize::try_from(self.0.next_u64() % bound.max(1) as u64).unwrap_or(0)
    }

    fn one_in(&self, many: usize) -> bool {
        self.below(many) == 0
    }

    /// One of `of`; the first ones, which are valid, more often.
    fn pick<'a>(&self, of: &[&'a str]) -> &'a str {
        let at = if self.one_in(3) { self.below(of.len()) } else { self.below(of.len() / 2) };
        of[at]
    }

    fn pool(&self) -> Value {
        let mut spec = json!({});
        if !self.one_in(8) {
            let subnets: Vec<Value> = (0..=self.below(4))
                .map(|_| match self.below(6) {
                    0 => json!({"ipv4": self.pick(&V4), "ipv6": self.pick(&V6)}),
                    1 | 2 => json!({"ipv6": self.pick(&V6)}),
                    _ if self.one_in(20) => json!({}),
                    _ => json!({"ipv4": self.pick(&V4)}),
                })
                .collect();
            spec["subnets"] = json!(subnets);
        }
        if self.one_in(3) {
            spec["blockSizeBits"] = [
                json!(0),
                json!(4),
                json!(5),
                json!(8),
                json!(33),
                json!(64),
                json!(65),
                json!(-1),
                json!(null),
            ][self.below(9)]
            .clone();
        }
        if self.one_in(3) {
            spec["exclude"] = json!((0..self.below(4)).map(|_| self.pick(&EXCLUDED)).collect::<Vec<_>>());
        }
        if self.one_in(3) {
            spec["cooling"] = json!(self.pick(&COOLINGS));
        }
        spec
    }

    fn ledger(&self) -> Value {
        let mut allocations = serde_json::Map::new();
        for _ in 0..self.below(4) {
            let holder =
                if self.one_in(8) { json!({"id": "c"}) } else { json!({"id": "c", "podref": "ns/pod"}) };
            allocations.insert(self.pick(&OFFSETS).to_owned(), holder);
        }
        let mut spec = json!({"range": self.pick(&RANGES), "allocations": allocations});
        if let (true, Some(fields)) = (self.one_in(6), spec.as_object_mut()) {
            fields.remove(if self.one_in(2) { "range" } else { "allocations" });
        }
        spec
    }

    fn slices(&self) -> Value {
        let mut spec = json!({"range": self.pick(&RANGES), "sliceSize": self.pick(&SIZES)});
        if let (true, Some(fields)) = (self.one_in(8), spec.as_object_mut()) {
            fields.remove(if self.one_in(2) { "range" } else { "sliceSize" });
        }
        spec
    }
}
