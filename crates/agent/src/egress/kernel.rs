//! The thread that enters pods' namespaces for egress. It does one thing after another, so whoever has much to ask asks for the
//! next after the last was done.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;

use tenure_linux::egress::{ClientPlan, Datapath, client, gateway};
use tenure_linux::netns::{NetNs, NetNsId};
use tenure_linux::socket::Kind;
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::Attachment;
use crate::objects::lock;
use tenure_linux::chain;

/// Which datapath a node uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DatapathChoice {
    /// The kernel's own where it has it, and BPF where not.
    #[default]
    Auto,
    /// The kernel's own.
    Kernel,
    /// BPF.
    Bpf,
}

/// What is to be done in a namespace.
#[derive(Debug)]
pub(super) struct Job {
    netns: String,
    task: Task,
}

#[derive(Debug)]
enum Task {
    Client(ClientPlan),
    Check(ClientPlan),
    Prepare { interface: String, addresses: Vec<IpAddr> },
}

impl Job {
    /// Makes a client's egress as planned.
    pub(super) fn client(attachment: &Attachment, plan: ClientPlan) -> Self {
        Self { netns: attachment.netns.clone(), task: Task::Client(plan) }
    }

    /// Says what differs from the plan.
    pub(super) fn check(attachment: &Attachment, plan: ClientPlan) -> Self {
        Self { netns: attachment.netns.clone(), task: Task::Check(plan) }
    }

    /// Makes what a gateway needs and may not make itself.
    pub(super) fn prepare(attachment: &Attachment) -> Self {
        let (interface, addresses) = (attachment.interface.clone(), attachment.addresses.clone());
        Self { netns: attachment.netns.clone(), task: Task::Prepare { interface, addresses } }
    }
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// In words.
    pub(super) message: String,
    /// Whether it may be done later.
    pub(super) retry: bool,
    /// Whether the namespace is gone.
    pub(super) gone: bool,
}

type Answer = Result<Vec<String>, Problem>;

/// The handle to the thread. The thread ends when the last one is dropped.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    jobs: Sender<(Job, oneshot::Sender<Answer>)>,
    /// The datapath's name, and why it is this one; or why there is none.
    datapath: Arc<Mutex<(String, String)>>,
}

impl Kernel {
    pub(super) fn start(choice: DatapathChoice, host: Option<PathBuf>) -> io::Result<Self> {
        let (jobs, received) = mpsc::channel();
        let datapath = Arc::default();
        let shown = Arc::clone(&datapath);
        thread::Builder::new().name("egress".into()).spawn(move || run((choice, host), &shown, &received))?;
        Ok(Self { jobs, datapath })
    }

    /// Does it, and says what was changed or what differs.
    pub(super) async fn run(&self, job: Job) -> Answer {
        let (answer, answered) = oneshot::channel();
        let _ = self.jobs.send((job, answer));
        let ending = |_| Problem { message: "the agent is ending".to_owned(), retry: true, gone: false };
        answered.await.map_err(ending)?
    }

    /// Which datapath is used, and why.
    pub(super) fn datapath(&self) -> (String, String) {
        lock(&self.datapath).clone()
    }
}

fn run(
    (choice, host): (DatapathChoice, Option<PathBuf>),
    shown: &Mutex<(String, String)>,
    jobs: &Receiver<(Job, oneshot::Sender<Answer>)>,
) {
    let named = host.map(NetNs::open).into_iter();
    let hosts: Vec<NetNsId> = named.chain([NetNs::current()]).flatten().map(|host| host.id()).collect();
    let mut datapath = find(choice);
    *lock(shown) = match &datapath {
        Ok(found) => {
            info!(datapath = found.name(), reason = found.reason(), "egress can be served");
            (found.name().to_owned(), found.reason().to_owned())
        }
        Err(problem) => {
            warn!(problem = problem.message, "egress cannot be served");
            (String::new(), problem.message.clone())
        }
    };
    while let Ok((job, answer)) = jobs.recv() {
        let done = match &mut datapath {
            Err(problem) => Err(problem.clone()),
            Ok(datapath) => carry_out(&job, &hosts, datapath),
        };
        // Who asked may have gone.
        let _ = answer.send(done);
    }
}

fn find(choice: DatapathChoice) -> Result<Datapath, Problem> {
    let found = match choice {
        DatapathChoice::Auto => Datapath::detect(),
        DatapathChoice::Kernel => Datapath::kernel(),
        DatapathChoice::Bpf => Datapath::bpf(),
    };
    found.map_err(|error| Problem {
        message: format!("this node cannot serve egress: {}", chain(&error)),
        retry: true,
        gone: false,
    })
}

fn carry_out(job: &Job, hosts: &[NetNsId], datapath: &mut Datapath) -> Answer {
    let namespace = NetNs::open(&job.netns).map_err(|error| Problem {
        message: format!("cannot enter the pod's namespace {:?}: {}", job.netns, chain(&error)),
        retry: true,
        gone: error.is_gone(),
    })?;
    if hosts.is_empty() || hosts.contains(&namespace.id()) {
        let message = format!("{:?} is the node's own network namespace, which has no egress", job.netns);
        return Err(Problem { message, retry: false, gone: false });
    }
    let problem = |error: &dyn std::error::Error, kind: Kind| Problem {
        message: chain(error),
        retry: kind == Kind::Retry,
        gone: kind == Kind::Gone,
    };
    match &job.task {
        Task::Client(plan) => client::apply(&namespace, datapath, plan).map_err(|it| problem(&it, it.kind())),
        Task::Check(plan) => client::check(&namespace, datapath, plan).map_err(|it| problem(&it, it.kind())),
        Task::Prepare { interface, addresses } => {
            gateway::prepare(&namespace, datapath, interface, addresses).map_err(|it| problem(&it, it.kind()))
        }
    }
}
