//! The programs that are killed, stopped and frozen, and started again.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::Signal;
use tenure_testbed::control_plane::Part;
use tenure_testbed::hosts::HostChild;
use tenure_testbed::process::{Process, Program};
use tenure_testbed::wait::PATIENCE;

use super::clock::Clock;
use super::course::{now, say};
use super::objects::{self, Struck};
use super::proxy::Proxy;
use super::run::last_lines;
use super::trouble::{Fault, Kind, Spell, Target};
use crate::agent::{Cluster, Machine};

/// What the API server and etcd may do by themselves when the other is away: they are started once more.
const TRIES: usize = 5;
/// An agent that is told to stop ends within this, also when a call is under way.
const STOPS: Duration = Duration::from_secs(30);

/// How far clocks are set, in seconds.
const HOURS: i64 = 5 * 3600;

/// What settings of clocks are counted as.
pub const CLOCKS_SET: [&str; 4] = [
    "clocks set back while agents run",
    "clocks set ahead while agents run",
    "clocks set back between runs",
    "clocks set ahead between runs",
];

/// Is told of what happened that must not.
pub type Blame<'a> = &'a (dyn Fn(String) + Sync);

/// Whether it ended because it was told to: well, or at once if it had hardly begun.
fn is_told(status: ExitStatus) -> bool {
    status.success() || status.signal() == Some(Signal::SIGTERM as i32)
}

/// An agent, while it runs.
pub struct Agent<'a> {
    pub machine: &'a Machine<'a>,
    child: Mutex<Option<HostChild>>,
    /// One thing after the other goes wrong with it.
    turn: Mutex<()>,
    /// If it is not the system's.
    clock: Option<Clock>,
}

impl<'a> Agent<'a> {
    pub fn start(machine: &'a Machine<'a>) -> Self {
        Self::with_clock(machine, None)
    }

    /// Starts one that goes by a clock of its own.
    pub fn with_clock(machine: &'a Machine<'a>, clock: Option<Clock>) -> Self {
        let agent = Self { machine, child: Mutex::default(), turn: Mutex::default(), clock };
        agent.launch();
        agent
    }

    fn launch(&self) {
        let address = format!("{}:9384", self.machine.addresses[0]);
        let command = self.machine.agent_command().args(["--metrics-address", &address]);
        let environment = self.clock.iter().flat_map(Clock::environment);
        let command = environment.fold(command, |command, (name, value)| command.env(name, value));
        let child = command.spawn().unwrap();
        *self.child.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
    }

    /// Kills it and starts it again.
    pub fn restart(&self) {
        self.while_down(|| ());
    }

    /// Kills it, changes something, and starts it again.
    pub fn while_down(&self, change: impl FnOnce()) {
        self.take().kill().unwrap();
        change();
        self.launch();
    }

    fn take(&self) -> HostChild {
        self.child.lock().unwrap_or_else(PoisonError::into_inner).take().expect("an agent that was started")
    }

    /// How it ended by itself, if it did.
    pub fn ended(&self) -> Option<String> {
        let child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let status = child.as_ref()?.try_wait()?;
        Some(format!("the agent of {} ended by itself: {status}", self.machine.name))
    }

    fn strike(&self, fault: &Fault, blame: Blame<'_>) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.ended().into_iter().for_each(blame);
        let child = self.take();
        if fault.kind == Kind::Stop {
            child.signal(Signal::SIGTERM).unwrap();
            match child.wait_for(STOPS) {
                Some(status) if is_told(status) => {}
                ended => {
                    blame(format!("the agent of {} was told to stop: {ended:?}", self.machine.name));
                }
            }
        }
        child.kill().unwrap();
        sleep(fault.lasts);
        self.launch();
    }

    /// Sets its clock, while it runs or while it does not.
    fn set_clock(&self, ahead: bool, fault: &Fault, blame: Blame<'_>, struck: &Struck) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.ended().into_iter().for_each(blame);
        let clock = self.clock.as_ref().expect("a clock of its own");
        if fault.kind == Kind::Kill {
            self.take().kill().unwrap();
        }
        clock.set(if ahead { HOURS } else { -HOURS });
        if fault.kind == Kind::Kill {
            sleep(fault.lasts);
            self.launch();
        }
        let between = fault.kind == Kind::Kill;
        struck.count(CLOCKS_SET[2 * usize::from(between) + usize::from(ahead)]);
    }

    /// Kills it, removes all that it has written, and starts it again; or the other way round: it runs on for a while without
    /// what was removed.
    fn forget(&self, node: usize, fault: &Fault, blame: Blame<'_>, struck: &Struck) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.ended().into_iter().for_each(blame);
        if fault.kind == Kind::Kill {
            self.take().kill().unwrap();
        }
        let (directory, routes) = (self.machine.file(""), self.machine.table(116).into_iter().collect());
        if self.machine.file("journal").exists() && std::fs::remove_dir_all(&directory).is_ok() {
            struck.count(if fault.kind == Kind::Kill {
                "lost journals"
            } else {
                "journals lost while agents run"
            });
        }
        sleep(fault.lasts);
        if fault.kind != Kind::Kill {
            self.take().kill().unwrap();
        }
        struck.forgets(node, routes);
        self.launch();
    }
}

/// A controller, while it runs.
pub struct Controller {
    program: Program,
    process: Mutex<Option<Process>>,
}

impl Controller {
    /// Starts one, with these arguments beside the usual ones.
    pub fn start(cluster: &Cluster, name: &str, arguments: &[&str]) -> Self {
        let plane = cluster.plane();
        let log: PathBuf = plane.logs().join(format!("{name}.log"));
        let program = Program::new(name, crate::programs::controller(), log)
            .flag("--kubeconfig", cluster.kubeconfig_file())
            .args(["--lease-duration=3s", "--renew-deadline=2s", "--retry-period=300ms"])
            .args(["--check-interval=2s", "--metrics-address=127.0.0.1:0"])
            .args(arguments)
            .env("NO_COLOR", "1");
        let process = Mutex::new(Some(program.start().unwrap()));
        Self { program, process }
    }

    /// Whether it ended by itself.
    pub fn ended(&self) -> Option<String> {
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let status = process.as_ref()?.ended()?;
        Some(format!("{} ended by itself: {status}", self.program.name()))
    }

    /// All that it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.program.log()).unwrap_or_default()
    }

    fn strike(&self, fault: &Fault, blame: Blame<'_>) {
        self.ended().into_iter().for_each(blame);
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let running = process.as_ref().expect("a controller that was started");
        match fault.kind {
            Kind::Freeze => {
                running.pause().unwrap();
                sleep(fault.lasts);
                return running.resume().unwrap();
            }
            Kind::Kill => running.kill().unwrap(),
            Kind::Stop => {
                running.signal(Signal::SIGTERM).unwrap();
                if !running.wait(STOPS) || !running.ended().is_some_and(is_told) {
                    let how = running.ended();
                    blame(format!("{} was told to stop: {how:?}", self.program.name()));
                }
            }
        }
        sleep(fault.lasts);
        *process = Some(self.program.start().unwrap());
    }
}

/// All that something can go wrong with.
pub struct Programs<'a> {
    pub cluster: &'a Cluster,
    pub agents: Vec<Agent<'a>>,
    pub controllers: Vec<Controller>,
    /// What is between all of them and the API server.
    pub proxy: Proxy,
    /// What went wrong, as far as that is not seen otherwise.
    pub struck: Struck,
}

impl Programs<'_> {
    /// Lets one thing after the other go wrong with a target, each when so many steps are done, or at once when all are.
    pub fn trouble(
        &self,
        target: Target,
        faults: &[Fault],
        done: &AtomicUsize,
        over: &AtomicBool,
        blame: Blame<'_>,
    ) {
        for fault in faults {
            while done.load(Ordering::SeqCst) < fault.after && !over.load(Ordering::SeqCst) {
                sleep(Duration::from_millis(10));
            }
            if !over.load(Ordering::SeqCst) {
                self.struck.count(target.name());
            }
            match target {
                Target::Agent(node) => self.agents[node].strike(fault, blame),
                Target::Controller(number) => self.controllers[number].strike(fault, blame),
                Target::ApiServer => self.strike(Part::ApiServer, fault),
                Target::Etcd => self.strike(Part::Etcd, fault),
                Target::Way(node) => self.cut(node, fault),
                Target::Clock { node, ahead } => {
                    self.agents[node].set_clock(ahead, fault, blame, &self.struck);
                }
                Target::Node(node) => {
                    objects::remove_node(self.cluster, self.agents[node].machine, fault.lasts, &self.struck);
                }
                Target::RunDirectory(node) => self.agents[node].forget(node, fault, blame, &self.struck),
            }
        }
    }

    /// Lets the API server be in one mood after the other, each when so many steps are done, and until somebody met it. Moods whose
    /// turn has not come when all steps are done follow then: programs renew leases and watches whatever workers do.
    pub fn spells(&self, spells: &[Spell], done: &AtomicUsize, over: &AtomicBool) {
        for spell in spells {
            while done.load(Ordering::SeqCst) < spell.after && !over.load(Ordering::SeqCst) {
                sleep(Duration::from_millis(10));
            }
            let met = self.struck.counted().get(spell.mood.name()).is_some_and(|count| *count > 0);
            if met && over.load(Ordering::SeqCst) {
                continue;
            }
            let under_way = self.proxy.begin(spell.mood);
            sleep(spell.lasts);
            let began = now();
            while self.proxy.struck(under_way) == 0 && now().saturating_sub(began) < PATIENCE {
                sleep(Duration::from_millis(10));
            }
            self.struck.count_all(spell.mood.name(), self.proxy.struck(under_way));
            self.proxy.end(under_way);
        }
    }

    /// Says what controllers have said last.
    pub fn tell(&self) {
        for controller in &self.controllers {
            say(&format!("a controller's log:\n{}", last_lines(&controller.log(), 40)));
        }
    }

    /// Who ended although nobody ended it.
    pub fn ended(&self) -> Vec<String> {
        let agents = self.agents.iter().filter_map(Agent::ended);
        agents.chain(self.controllers.iter().filter_map(Controller::ended)).collect()
    }

    fn strike(&self, part: Part, fault: &Fault) {
        let plane = self.cluster.plane();
        if fault.kind == Kind::Freeze && plane.process_id(part).is_some() {
            plane.pause(part).unwrap();
            sleep(fault.lasts);
            return plane.resume(part).unwrap();
        }
        self.cluster.runtime.block_on(plane.kill(part)).unwrap();
        sleep(fault.lasts);
        self.revive(part);
    }

    /// Starts a part of the control plane, if it does not run, until it is ready.
    pub fn revive(&self, part: Part) {
        let plane = self.cluster.plane();
        for attempt in 1.. {
            if plane.process_id(part).is_some() {
                return;
            }
            match self.cluster.runtime.block_on(plane.restart(part)) {
                Err(error) if attempt == TRIES => panic!("{error}"),
                _ => {}
            }
        }
    }

    fn cut(&self, node: usize, fault: &Fault) {
        let gate = &self.agents[node].machine.gate;
        if fault.kind == Kind::Freeze {
            gate.freeze();
            sleep(fault.lasts);
            gate.thaw();
        } else {
            gate.shut();
            sleep(fault.lasts);
            gate.reopen();
        }
    }
}
