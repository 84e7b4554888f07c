//! A run: the network, a process for each host, and their answers.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use emulate::EmulationError;
use emulate::mesh::{Mesh, MeshReport, WindowSpan};
use emulate::report::Quantiles;
use serde::Serialize;
use sys::clock::Clock;
use thiserror::Error;
use units::Seed;

use crate::describe::{Answer, Begin, FlowKey};
use crate::error::PlanError;
use crate::gateways::{GatewayResult, Meet};
use crate::messages;
use crate::plan::Plan;
use crate::relays::RelayKey;
use crate::watch::{self, Watch};
use scenario::Scenario;

/// The time that the processes have to open their sockets, and gateways to find all paths.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// The time between the last process that is ready and the begin of the run.
const LEAD: Duration = Duration::from_millis(200);
/// The time that the processes have to answer after the end of the run.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// The interval between two looks at whether the run is to be given up.
const LOOK: Duration = Duration::from_millis(100);

/// The results of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The names of the windows over which the measures are.
    pub windows: Vec<String>,
    /// The flows, in the order of the file.
    pub flows: Vec<FlowResult>,
    /// The ends of the pairs of gateways, by their names and nodes.
    pub gateways: Vec<GatewayResult>,
    /// How late a process of usual priority woke up, in µs: as late as those of the hosts.
    pub hosts_late_us: Quantiles,
    /// The emulator's report, and the links. Whether the run counts depends on the hosts too.
    pub report: MeshReport,
}

/// What a flow did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FlowResult {
    /// The flow.
    pub flow: String,
    /// By window: payload that arrived at the receiving application, in Mbit/s; of UDP, packets
    /// with their headers. The simulator's `goodput`, which counts what waits behind a gap too.
    pub goodput: Vec<f64>,
    /// The same of each path, by path and then by window; of a striped connection, one row.
    pub paths: Vec<Vec<f64>>,
    /// When the last byte of a source with an end had arrived, in seconds after the begin of the
    /// run.
    pub completed_s: Option<f64>,
    /// Segments sent again in the whole run; of a striped connection, packets declared lost; of
    /// UDP, datagrams that the sender's kernel did not take.
    pub retransmitted: u64,
}

/// Why a run failed.
#[derive(Debug, Error)]
pub enum RunError {
    /// The scenario has what real hosts cannot do.
    #[error("{0}")]
    Plan(#[from] PlanError),
    /// The network could not be built.
    #[error("{0}")]
    Emulation(#[from] EmulationError),
    /// A flow failed.
    #[error("flow.{flow} on the host '{host}': {error}")]
    Flow {
        /// The flow.
        flow: String,
        /// The host.
        host: String,
        /// The error, of another process.
        error: String,
    },
    /// A gateway cannot do its work.
    #[error("the gateway of the node '{node}': {error}")]
    Gateway {
        /// The node.
        node: String,
        /// The error, of another process.
        error: String,
    },
    /// A relay cannot do its work.
    #[error("the relay of the node '{node}': {error}")]
    Relay {
        /// The node.
        node: String,
        /// The error, of another process.
        error: String,
    },
    /// The process of a host could not be run.
    #[error("{doing} the process of the host '{host}': {error}")]
    Host {
        /// The operation.
        doing: &'static str,
        /// The host.
        host: String,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// The process of a host ended early, or did not answer.
    #[error("the process of the host '{0}' ended, or did not answer in time")]
    Silent(String),
    /// It was given up.
    #[error("the run was given up")]
    GivenUp,
}

/// The process of a host, of three kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// It calls [`crate::flow_end::run`] on its standard input and output.
    FlowEnd,
    /// It is the background gateway that its description has: [`crate::GatewayEnd`].
    Gateway,
    /// It is the relay that its description has: [`crate::RelayEnd`].
    Relay,
}

/// Runs a scenario with this seed. `launch` makes the command of a host's process. To be called on
/// a thread that lives as long as the run.
///
/// # Errors
/// If the scenario has what real hosts cannot do, the network cannot be built, or a flow fails.
pub fn run(
    scenario: &Scenario,
    seed: Seed,
    launch: impl Fn(Process) -> Command,
) -> Result<Outcome, RunError> {
    run_unless(scenario, seed, launch, &|| false)
}

/// As [`run`], which is given up soon after `is_given_up` returns true.
///
/// # Errors
/// As [`run`], and [`RunError::GivenUp`].
pub fn run_unless(
    scenario: &Scenario,
    seed: Seed,
    launch: impl Fn(Process) -> Command,
    is_given_up: &dyn Fn() -> bool,
) -> Result<Outcome, RunError> {
    let plan = Plan::new(scenario, seed)?;
    let mesh = Mesh::new(plan.mesh.clone())?;
    let mut hosts = Hosts::launch(&plan, &mesh, launch, is_given_up)?;
    let (keys, relays) = hosts.wait_until_ready(&plan)?;
    // Both clocks are the monotonic one.
    let (begin, at) = (Instant::now() + LEAD, Clock::SYSTEM.now().as_nanos() + lead_nanos());
    mesh.start(begin)?;
    hosts.tell_all(&Begin { at, keys, relays })?;
    let duration = Duration::from_nanos(scenario.duration.as_nanos());
    let watch = Watch::start()
        .map_err(|error| EmulationError::World { doing: "starting a thread".into(), error })?;
    let answers = hosts.gather(begin + duration + ANSWER_LIMIT)?;
    let hosts_late_us = watch.stop();
    drop(hosts);
    let mut report = mesh.finish()?;
    if u128::from(hosts_late_us.p99) > watch::MOST.as_micros() {
        report.valid = false;
        report.why.push(format!(
            "processes of the hosts woke up late: one time in a hundred more than {} µs, the bound \
             is {} µs",
            hosts_late_us.p99,
            watch::MOST.as_micros()
        ));
    }
    let windows = scenario.windows.iter();
    let spans: Vec<WindowSpan> =
        windows.clone().map(|one| WindowSpan { from: one.from, to: one.to }).collect();
    let edges = plan.hosts.first().map_or(&[][..], |host| &host.edges);
    let names = scenario.flows.iter().map(|flow| flow.name.to_string());
    let flows = names.map(|flow| result(flow, &answers, &spans, edges)).collect();
    let windows = windows.map(|window| window.name.clone()).collect();
    let gateways = answers.into_iter().filter_map(|answer| match answer {
        Answer::Carried(result) => Some(result),
        _ => None,
    });
    let mut gateways: Vec<GatewayResult> = gateways.collect();
    // They answer in any order.
    gateways.sort_by(|a, b| (&a.gateway, &a.node).cmp(&(&b.gateway, &b.node)));
    Ok(Outcome { windows, flows, gateways, hosts_late_us, report })
}

fn lead_nanos() -> u64 {
    u64::try_from(LEAD.as_nanos()).expect("it is less than a second")
}

/// The results of a flow, from the answers of its ends.
fn result(flow: String, answers: &[Answer], spans: &[WindowSpan], edges: &[u64]) -> FlowResult {
    let mut result = FlowResult { flow, ..FlowResult::default() };
    for answer in answers {
        match answer {
            Answer::Received { flow, bytes, completed } if *flow == result.flow => {
                let rate = |bytes: &[u64], span: &WindowSpan| {
                    let at = |time: u64| bytes[edges.partition_point(|edge| *edge < time)];
                    let gained = at(span.to.as_nanos()) - at(span.from.as_nanos());
                    megabits(gained) / (span.to - span.from).as_secs_f64()
                };
                let rates = |bytes: &Vec<u64>| spans.iter().map(|span| rate(bytes, span)).collect();
                result.paths = bytes.iter().map(rates).collect();
                let sum = |window: usize| result.paths.iter().map(|path| path[window]).sum();
                result.goodput = (0..spans.len()).map(sum).collect();
                result.completed_s = completed.map(|at| Duration::from_nanos(at).as_secs_f64());
            }
            Answer::Sent { flow, retransmitted } if *flow == result.flow => {
                result.retransmitted = *retransmitted;
            }
            _ => {}
        }
    }
    result
}

#[expect(clippy::cast_precision_loss, reason = "bytes of a run, far below 2^53")]
fn megabits(bytes: u64) -> f64 {
    bytes as f64 * 8.0 / 1e6
}

/// The processes of all hosts. Dropping them ends them.
struct Hosts<'a> {
    names: Vec<String>,
    children: Vec<(Child, ChildStdin)>,
    /// What they say, by host; `None` once it has ended.
    heard: Receiver<(usize, Option<Answer>)>,
    is_given_up: &'a dyn Fn() -> bool,
}

impl<'a> Hosts<'a> {
    /// Starts them and gives each its description.
    fn launch(
        plan: &Plan,
        mesh: &Mesh,
        launch: impl Fn(Process) -> Command,
        is_given_up: &'a dyn Fn() -> bool,
    ) -> Result<Hosts<'a>, RunError> {
        let (say, heard) = mpsc::channel();
        let names: Vec<String> = plan.mesh.hosts.iter().map(|host| host.name.clone()).collect();
        let mut hosts = Hosts { names, children: Vec::new(), heard, is_given_up };
        for (index, description) in plan.hosts.iter().enumerate() {
            let at_host = |doing: &'static str| {
                let host = hosts.names[index].clone();
                move |error: io::Error| RunError::Host { doing, host, error }
            };
            let mut command = launch(match (&description.gateway, &description.relay) {
                (Some(_), _) => Process::Gateway,
                (None, Some(_)) => Process::Relay,
                (None, None) => Process::FlowEnd,
            });
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            mesh.place(&mut command, index).map_err(at_host("placing"))?;
            let mut child = command.spawn().map_err(at_host("starting"))?;
            let mut input = child.stdin.take().expect("it is piped");
            let output = child.stdout.take().expect("it is piped");
            let say = say.clone();
            let listen = move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    let Ok(answer) = serde_json::from_str(&line) else { break };
                    // Nobody listens once the run is over.
                    let _ = say.send((index, Some(answer)));
                }
                let _ = say.send((index, None));
            };
            let told = messages::write(&mut input, description).map_err(at_host("telling"));
            let listening = thread::Builder::new().spawn(listen);
            let listening = listening.map_err(at_host("listening to"));
            hosts.children.push((child, input));
            told?;
            listening?;
        }
        Ok(hosts)
    }

    fn tell_all(&mut self, message: &Begin) -> Result<(), RunError> {
        (0..self.children.len()).try_for_each(|host| self.tell_one(host, message))
    }

    fn tell_one(&mut self, host: usize, message: &impl Serialize) -> Result<(), RunError> {
        messages::write(&mut self.children[host].1, message).map_err(|error| RunError::Host {
            doing: "telling",
            host: self.names[host].clone(),
            error,
        })
    }

    /// Tells each gateway the keys of those that it has paths to.
    fn introduce(&mut self, plan: &Plan, keys: &BTreeMap<usize, String>) -> Result<(), RunError> {
        for (host, description) in plan.hosts.iter().enumerate() {
            let Some(gateway) = &description.gateway else { continue };
            let keys = gateway.sites.iter().map(|site| keys[&site.peer].clone()).collect();
            self.tell_one(host, &Meet { keys })?;
        }
        Ok(())
    }

    /// Waits for all, and lets gateways know each other's keys; returns those of flows, and of
    /// relays.
    fn wait_until_ready(&mut self, plan: &Plan) -> Result<(Vec<FlowKey>, Vec<RelayKey>), RunError> {
        let limit = Instant::now() + READY_LIMIT;
        let (mut all, mut relays) = (Vec::new(), Vec::new());
        let mut gateways = BTreeMap::new();
        let expected = plan.hosts.iter().filter(|host| host.gateway.is_some()).count();
        let mut waiting: Vec<bool> = self.names.iter().map(|_| true).collect();
        while let Some(first) = waiting.iter().position(|waits| *waits) {
            match self.hear(limit, first)? {
                (host, Some(Answer::Ready { keys })) => {
                    waiting[host] = false;
                    all.extend(keys);
                }
                (node, Some(Answer::Relaying { key })) => {
                    waiting[node] = false;
                    relays.push(RelayKey { node, key });
                }
                (host, Some(Answer::Listening { key })) => {
                    gateways.insert(host, key);
                    if gateways.len() == expected {
                        self.introduce(plan, &gateways)?;
                    }
                }
                (host, _) => return Err(RunError::Silent(self.names[host].clone())),
            }
        }
        Ok((all, relays))
    }

    /// All answers until the processes have ended.
    fn gather(&self, limit: Instant) -> Result<Vec<Answer>, RunError> {
        let mut running: Vec<bool> = self.names.iter().map(|_| true).collect();
        let mut answers = Vec::new();
        while let Some(first) = running.iter().position(|runs| *runs) {
            match self.hear(limit, first)? {
                (host, Some(Answer::Carried(result))) => {
                    let node = self.names[host].clone();
                    answers.push(Answer::Carried(GatewayResult { node, ..result }));
                }
                (_, Some(answer)) => answers.push(answer),
                (host, None) => running[host] = false,
            }
        }
        Ok(answers)
    }

    /// The next answer. One that a flow failed is an error; if there is none, the host `waited` is
    /// silent.
    fn hear(&self, limit: Instant, waited: usize) -> Result<(usize, Option<Answer>), RunError> {
        let heard = loop {
            let left = limit.saturating_duration_since(Instant::now());
            match self.heard.recv_timeout(left.min(LOOK)) {
                Err(RecvTimeoutError::Timeout) if (self.is_given_up)() => {
                    return Err(RunError::GivenUp);
                }
                Err(RecvTimeoutError::Timeout) if !left.is_zero() => {}
                heard => break heard,
            }
        };
        match heard {
            Ok((host, Some(Answer::Failed { flow, error }))) => {
                Err(RunError::Flow { flow, host: self.names[host].clone(), error })
            }
            Ok((host, Some(Answer::NoGateway { error }))) => {
                Err(RunError::Gateway { node: self.names[host].clone(), error })
            }
            Ok((host, Some(Answer::NoRelay { error }))) => {
                Err(RunError::Relay { node: self.names[host].clone(), error })
            }
            Ok(heard) => Ok(heard),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                Err(RunError::Silent(self.names[waited].clone()))
            }
        }
    }
}

impl Drop for Hosts<'_> {
    fn drop(&mut self) {
        for (child, _) in &mut self.children {
            // One that has ended already is only reaped.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Span;

    #[test]
    fn goodput_is_what_arrived_between_the_edges() {
        let span = |from, to| WindowSpan { from: Span::from_secs(from), to: Span::from_secs(to) };
        let second = 1_000_000_000;
        let edges = [second, 2 * second, 3 * second];
        let answers = [
            Answer::Sent { flow: "other".into(), retransmitted: 9 },
            Answer::Received {
                flow: "bulk".into(),
                bytes: vec![vec![0, 125_000, 375_000], vec![1_000, 126_000, 251_000]],
                completed: Some(second / 2),
            },
            Answer::Sent { flow: "bulk".into(), retransmitted: 3 },
        ];
        let result = result("bulk".into(), &answers, &[span(1, 3), span(2, 3)], &edges);
        assert_eq!(result.goodput, [2.5, 3.0]);
        assert_eq!(result.paths, [[1.5, 2.0], [1.0, 1.0]]);
        assert_eq!((result.completed_s, result.retransmitted), (Some(0.5), 3));
    }

    #[test]
    fn silence_ends_with_the_limit_or_when_the_run_is_given_up() {
        let (say, heard) = mpsc::channel();
        let hear = |hosts: &Hosts<'_>, millis| {
            let found = hosts.hear(Instant::now() + Duration::from_millis(millis), 0);
            found.map(|_| ()).map_err(|error| error.to_string())
        };
        let mut hosts =
            Hosts { names: vec!["a".into()], children: Vec::new(), heard, is_given_up: &|| false };
        assert!(hear(&hosts, 150).unwrap_err().contains("'a' ended, or did not answer"));
        say.send((0, None)).expect("it listens");
        hosts.is_given_up = &|| true;
        assert_eq!(hear(&hosts, 600_000), Ok(()), "what was said counts");
        assert_eq!(hear(&hosts, 600_000), Err("the run was given up".into()));
    }
}
