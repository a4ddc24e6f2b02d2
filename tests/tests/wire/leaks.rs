//! Leaks on a node, from the kernel to the decision and back: a real kernel, a real node, and DELs that never come.

use std::sync::Arc;
use std::time::Duration;

use tenure_agent::drive::{Executor, Handle, NodeChannel};
use tenure_agent::journal::{Image, Record};
use tenure_agent::node::{Action, Attach, Done, Event, PoolFacts, Report, SeenBlock, Wiring, Wish};
use tenure_agent::wire::Wirer;
use tenure_agent::{Node, Settings};
use tenure_handles::SystemClock;
use tenure_ipam::Subnet;
use tenure_testbed::wait::PATIENCE;
use tokio::sync::{mpsc, oneshot};

use super::bed::{Machine, NODE_V4, Pod, Result, ip};

/// An agent without an API server and without a disk.
pub(super) struct Agent {
    pub(super) node: Handle,
    kernel: Arc<Wirer>,
    reports: mpsc::UnboundedReceiver<Report>,
    end: Option<oneshot::Sender<()>>,
}

struct KernelExecutor {
    node: Handle,
    kernel: Arc<Wirer>,
    position: u64,
    reports: mpsc::UnboundedSender<Report>,
}

impl Executor for KernelExecutor {
    fn record(&mut self, records: Vec<Record>) {
        self.position += records.len() as u64;
        self.node.tell(Event::Committed { up_to: self.position });
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Report(report) => drop(self.reports.send(report)),
            Action::AskForBlock { .. } | Action::ReturnBlock { .. } => {}
            job => self.kernel.carry_out(job),
        }
    }
}

impl Agent {
    /// One that looks five times a second, and waits half a second between two observations.
    pub(super) fn start(machine: &Machine) -> Self {
        let channel = NodeChannel::new();
        let node = channel.handle();
        let tell = node.clone();
        let kernel = Wirer::start(machine.host(), machine.host(), SystemClock, move |event| tell.tell(event));
        let kernel = Arc::new(kernel.unwrap());
        let (tell, reports) = mpsc::unbounded_channel();
        let body =
            KernelExecutor { node: node.clone(), kernel: Arc::clone(&kernel), position: 0, reports: tell };
        let settings = Settings {
            look_every: Duration::from_millis(200),
            look_apart: Duration::from_millis(500),
            ..Settings::new("node-1")
        };
        let (end, ended) = oneshot::channel::<()>();
        let driver = channel.driver(Node::new(settings), SystemClock, body);
        tokio::spawn(driver.run(async move { drop(ended.await) }));
        node.tell(Event::Journal(Image::default()));
        let facts = PoolFacts { block_bits: 5, ..PoolFacts::default() };
        node.tell(Event::PoolChanged { name: "default".into(), facts });
        node.tell(Event::BlockSeen(SeenBlock {
            name: "default-0".into(),
            uid: "uid-0".into(),
            node: "node-1".into(),
            pool: "default".into(),
            subnet: Subnet { ipv4: Some("10.2.0.0/27".parse().unwrap()), ipv6: None },
            reserved: false,
            deleting: false,
            releasing: false,
            draining: false,
            pod: None,
        }));
        node.tell(Event::ApiRead);
        Self { node, kernel, reports, end: Some(end) }
    }

    /// Adds a pod, with an interface of ours or of somebody else. Says its address.
    async fn add(&self, pod: &Pod, interface: bool) -> String {
        let wiring = interface.then(|| Wiring { netns: pod.netns(), ..Wiring::default() });
        let (key, netns) = (pod.key.clone(), pod.netns());
        let attach = Attach {
            key,
            pool: "default".into(),
            pod: pod.named.clone(),
            netns,
            wiring,
            wish: Wish::default(),
            claim_use: None,
        };
        match self.node.call(move |ticket| Event::Add { ticket, attach }).await {
            Ok(Done::Added { addresses, .. }) => addresses.to_string(),
            other => panic!("{other:?}"),
        }
    }

    pub(super) async fn del(&self, pod: &Pod) {
        let key = pod.key.clone();
        let done = self.node.call(move |ticket| Event::Del { ticket, key, interface: true }).await;
        assert_eq!(done, Ok(Done::Removed));
    }

    async fn holders(&self) -> Vec<String> {
        let holds = self.node.look(Node::holds).await.unwrap();
        holds.into_iter().map(|hold| hold.pod.name).collect()
    }

    /// Waits until these hold addresses, and nobody else.
    async fn until_held_by(&self, pods: &[&str]) {
        for _ in 0..600 {
            if self.holders().await == pods {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{:?} hold addresses, and not {pods:?}", self.holders().await);
    }

    pub(super) async fn said(&mut self, what: &str) -> String {
        let said = async {
            loop {
                let text = format!("{:?}", self.reports.recv().await.unwrap());
                if text.contains(what) {
                    return text;
                }
            }
        };
        tokio::time::timeout(PATIENCE, said).await.expect(what)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.end.take());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invariant_9_a_pod_whose_namespace_is_gone_and_whose_del_never_came_is_released() -> Result {
    let machine = Machine::new("node")?;
    let mut agent = Agent::start(&machine);
    let (kept, lost) = (Pod::new("kept", &[])?, Pod::new("lost", &[])?);
    let (other, other_lost) = (Pod::new("other", &[])?, Pod::new("other-lost", &[])?);
    agent.add(&kept, true).await;
    agent.add(&lost, true).await;
    agent.add(&other, false).await;
    agent.add(&other_lost, false).await;
    let (key, other_key) = (lost.key.clone(), other_lost.key.clone());
    drop((lost, other_lost));
    agent.until_held_by(&["kept", "other"]).await;
    agent.said("NoInterface").await;
    agent.said("NoNamespace").await;
    kept.bed.ping(ip(NODE_V4), PATIENCE)?;
    // Many looks later nothing else has gone.
    tokio::time::sleep(Duration::from_secs(2)).await;
    agent.until_held_by(&["kept", "other"]).await;
    // The DELs come after all.
    for key in [key, other_key] {
        let done = agent.node.call(move |ticket| Event::Del { ticket, key, interface: true }).await;
        assert_eq!(done, Ok(Done::Removed));
    }
    for pod in [&kept, &other] {
        agent.del(pod).await;
    }
    machine.until("nothing is left", |machine| machine.links().is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn invariant_9_a_link_that_nobody_holds_an_address_for_is_put_away() -> Result {
    let machine = Machine::new("node")?;
    let mut agent = Agent::start(&machine);
    let (kept, nobody) = (Pod::new("kept", &[])?, Pod::new("nobody", &["10.2.0.9"])?);
    agent.add(&kept, true).await;
    // As a job of an agent that is not there any more would do it.
    agent.kernel.carry_out(Action::Wire(nobody.job(tenure_agent::node::Job(1 << 40))));
    machine.until("it is there", |machine| machine.links().len() == 2);
    agent.said("NoHold").await;
    machine.until("it is gone", |machine| machine.links().len() == 1);
    kept.bed.ping(ip(NODE_V4), PATIENCE)?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn invariant_9_routes_to_pods_that_somebody_broke_are_said_and_put_right() -> Result {
    let machine = Machine::new("node")?;
    let mut agent = Agent::start(&machine);
    let pods = [Pod::new("a", &[])?, Pod::new("b", &[])?];
    let (a, b) = (agent.add(&pods[0], true).await, agent.add(&pods[1], true).await);
    let broken = [
        format!("route delete {a} table 116"),
        "route add 10.2.0.31 dev lo table 116 proto 30".to_owned(),
        format!("route replace {b} dev lo table 116 proto 30"),
    ];
    for batch in broken {
        machine.bed.ip(&batch)?;
        agent.said("Routes").await;
        machine.until("the table is right", |machine| machine.table(116) == [a.clone(), b.clone()]);
        pods[0].bed.ping(ip(&b), PATIENCE)?;
    }
    Ok(())
}
