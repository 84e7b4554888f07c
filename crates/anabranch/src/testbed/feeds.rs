//! Live sources, relays and a collector: processes of this program on the hosts of a mesh, which do
//! what a script says.

mod kept;
mod source;

use std::fmt::Write;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use ::feed::{Choice, Reselect};
use emulate::routed::{Description, RoutedMesh, RoutedReport};
use link::Amendment;
use serde_json::Value;
use study::{
    FeedAction, FeedMeasured, FeedSample, FeedScript, FeedTrial, STEP, SourceSample, StudyError,
};
use sys::netns;
use units::{Rate, Span};

use super::{POLL_INTERVAL, Running, Stop, TIMEOUT, failed, file_error, start, this_program};
use kept::received;
use source::LiveSource;

/// Octets of records in a packet, and what is around them: IP, TCP, TLS and a frame.
const PACKET: u64 = 1_448;
const AROUND: u64 = 92;
/// The delay of a line that leads to a router, beside those of relays.
const NEAR: Span = Span::from_micros(100);
/// The octets of a collector's file: those that are complete are removed.
const FILE: &str = "16MiB";
const COLLECTOR: &str = "far";
/// The feed of each source.
const FEED: &str = "records";

/// The processes of a run, on a network of their own.
pub(super) struct FeedNetwork<'a> {
    trial: &'a FeedTrial,
    folder: &'a Path,
    /// The collector, as sources name it.
    to: String,
    collector: Running,
    relays: Vec<Option<Running>>,
    sources: Vec<Option<LiveSource>>,
    /// The draws of sources that were ended.
    draws_before: Vec<u64>,
    starts: u32,
    /// It ends after the processes.
    mesh: RoutedMesh,
}

impl<'a> FeedNetwork<'a> {
    /// Makes the network and starts relays and the collector, with files in this folder.
    ///
    /// # Errors
    /// If there is no network here, or a program fails.
    pub(super) fn new(
        trial: &'a FeedTrial,
        folder: &'a Path,
        stop: &Stop,
    ) -> Result<FeedNetwork<'a>, StudyError> {
        let description = Description::parse(&mesh_file(trial), "sources").map_err(failed)?;
        let mesh = RoutedMesh::new(description).map_err(failed)?;
        let port = peer::DEFAULT_PORT;
        let to = format!("{}:{port}", address(&mesh, "far-line"));
        introduce(trial, folder, &to, &mesh, stop)?;
        let mut collect = this_program(&folder.join(COLLECTOR))?;
        collect
            .arg("collect")
            .arg(folder.join("kept"))
            .args(["--json", "--rotate", FILE, "--port"]);
        collect.arg(port.to_string()).stdin(Stdio::null());
        let log = folder.join("far.log");
        let collector = start((collect, log), |command| enter(&mesh, COLLECTOR, command))?;
        let mut relays = Vec::new();
        for number in 0..trial.capacities.len() {
            let name = relay(number);
            let mut command = this_program(&folder.join(&name))?;
            command.args(["relay", "--json"]).stdin(Stdio::null());
            let log = folder.join(format!("{name}.log"));
            relays.push(Some(start((command, log), |command| enter(&mesh, &name, command))?));
        }
        let sources = trial.demands.iter().map(|_| None).collect();
        let draws_before = vec![0; trial.demands.len()];
        let mut network = FeedNetwork {
            trial,
            folder,
            to,
            collector,
            relays,
            sources,
            draws_before,
            starts: 0,
            mesh,
        };
        network.wait_for_listeners(stop)?;
        Ok(network)
    }

    /// Does what the script says until it ends.
    ///
    /// # Errors
    /// If a program fails, or the run is stopped.
    pub(super) fn run(mut self, stop: &Stop) -> Result<(FeedMeasured, RoutedReport), StudyError> {
        let mut script = FeedScript::new(self.trial);
        let (began, mut steps) = (Instant::now(), 0);
        loop {
            while let Some(action) = script.poll_action() {
                if action == FeedAction::End {
                    let FeedNetwork { mesh, sources, relays, collector, .. } = self;
                    drop((sources, relays, collector));
                    return Ok((script.into_measured(), mesh.finish().map_err(failed)?));
                }
                self.act(action)?;
            }
            let due = began + (STEP * steps).into();
            thread::sleep(due.saturating_duration_since(Instant::now()));
            stop.check()?;
            self.check_running()?;
            let at = Span::from(began.elapsed());
            script.handle_sample(FeedSample { at, sources: self.sample()? });
            // A step that was missed is not made up for.
            steps = Span::from(began.elapsed()).as_nanos() / STEP.as_nanos() + 1;
        }
    }

    fn act(&mut self, action: FeedAction) -> Result<(), StudyError> {
        match action {
            FeedAction::Start(source) => self.sources[source] = Some(self.begin(source)?),
            FeedAction::Stop(source) => {
                if let Some(ended) = self.sources[source].take() {
                    self.draws_before[source] += ended.draws();
                }
            }
            FeedAction::Kill(relay) => self.relays[relay] = None,
            FeedAction::SetCapacity(relay, capacity) => {
                let link = self.mesh.description().link(&out(relay)).expect("each relay has one");
                let rate = Amendment::Rate(on_the_wire(capacity));
                self.mesh.amend(link, true, false, rate).map_err(failed)?;
            }
            FeedAction::End => {}
        }
        Ok(())
    }

    /// Starts a source, and a thread that writes what it demands.
    fn begin(&mut self, number: usize) -> Result<LiveSource, StudyError> {
        let (name, demand) = (source(number), self.trial.demands[number]);
        let mut command = this_program(&self.folder.join(&name))?;
        command.args(["feed", "-", "--json", "--name", FEED, "--relays-only", "--to", &self.to]);
        command.args(["--demand", &format!("{} bit/s", demand.as_bits())]);
        command.args(["--use", &self.trial.paths.to_string()]);
        command.args([
            "--rule",
            rule(self.trial.choice),
            "--reselect",
            reselect(self.trial.reselect),
        ]);
        command.arg("--relays-file").arg(self.folder.join("relays")).stdin(Stdio::piped());
        self.starts += 1;
        let log = self.folder.join(format!("{name}-{}.log", self.starts));
        let running = start((command, log), |command| enter(&self.mesh, &name, command))?;
        LiveSource::new(running, demand)
    }

    /// What has arrived of each source, and how often it has drawn.
    fn sample(&mut self) -> Result<Vec<SourceSample>, StudyError> {
        let mut samples = Vec::new();
        for (number, running) in self.sources.iter_mut().enumerate() {
            let kept = self.folder.join("kept").join(source(number)).join(FEED);
            let mut draws = self.draws_before[number];
            if let Some(running) = running {
                running.read_log()?;
                draws += running.draws();
            }
            samples.push(SourceSample { received: received(&kept)?, draws });
        }
        Ok(samples)
    }

    fn check_running(&mut self) -> Result<(), StudyError> {
        let sources = self.sources.iter_mut().flatten().map(|source| &mut source.running);
        let all = self.relays.iter_mut().flatten().chain(sources).chain([&mut self.collector]);
        for running in all {
            if running.has_ended()? {
                return Err(running.failure("it ended"));
            }
        }
        Ok(())
    }

    fn wait_for_listeners(&mut self, stop: &Stop) -> Result<(), StudyError> {
        let limit = Instant::now() + TIMEOUT;
        let all = self.relays.iter_mut().flatten().chain([&mut self.collector]);
        for running in all {
            while !is_listening(&running.log)? {
                stop.check()?;
                if running.has_ended()? || Instant::now() > limit {
                    return Err(running.failure("it is not listening"));
                }
                thread::sleep(POLL_INTERVAL);
            }
        }
        Ok(())
    }
}

/// Lets the keys of all be known where they have to be, and lists the relays.
fn introduce(
    trial: &FeedTrial,
    folder: &Path,
    to: &str,
    mesh: &RoutedMesh,
    stop: &Stop,
) -> Result<(), StudyError> {
    let keys = |name: &str, words: &[&str]| -> Result<String, StudyError> {
        stop.check()?;
        let mut command = this_program(&folder.join(name))?;
        command.arg("keys").args(words).stdin(Stdio::null());
        let done = command.output().map_err(file_error("run", Path::new("this program")))?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            return Err(StudyError::Testbed(format!("keys {}: {said}", words.join(" "))));
        }
        Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
    };
    let collector = keys(COLLECTOR, &[])?;
    let mut relays = Vec::new();
    for number in 0..trial.capacities.len() {
        let name = relay(number);
        relays.push((keys(&name, &[])?, address(mesh, &format!("{name}-in")), name));
    }
    for number in 0..trial.demands.len() {
        let name = source(number);
        let own = keys(&name, &[])?;
        keys(COLLECTOR, &["trust", "sender", &own, &name, "--may", "feed"])?;
        keys(&name, &["trust", "receiver", to, &collector])?;
        for (key, address, relay) in &relays {
            let trust =
                ["trust", "sender", &own, &name, "--may", "relay", "--relay", "10.0.0.0/8:*"];
            keys(relay, &trust)?;
            keys(&name, &["trust", "receiver", &address.to_string(), key])?;
        }
    }
    let list: Vec<String> = relays.iter().map(|(_, address, _)| address.to_string()).collect();
    let path = folder.join("relays");
    fs::write(&path, list.join("\n")).map_err(file_error("write", &path))
}

/// Sources and relays around one router, relays and the collector around another one.
fn mesh_file(trial: &FeedTrial) -> String {
    let (sources, relays) = (trial.demands.len(), trial.capacities.len());
    let mut text = String::from("[router.in]\n[router.out]\n[host.far]\n");
    let hosts = (0..sources).map(source).chain((0..relays).map(relay));
    for host in hosts {
        let _ = writeln!(text, "[host.{host}]");
    }
    // A round trip passes each line twice, and two lines are near ones.
    let delay = (trial.rtt / 4).as_nanos().saturating_sub(NEAR.as_nanos());
    let delay = format!("{} us", Span::from_nanos(delay).as_micros());
    let near = format!("{} us", NEAR.as_micros());
    let mut link = |name: &str, between: [&str; 2], rate: Rate, delay: &str, queue: u64| {
        let [one, other] = between;
        let _ = write!(
            text,
            "[[link]]\nname = '{name}'\nbetween = ['{one}', '{other}']\nrate = '{} bit/s'\ndelay = \
             '{delay}'\nqueue = '{queue} B'\n",
            rate.as_bits()
        );
    };
    let (wide, ample) = (Rate::mbit(1_000), 2_560_000);
    link("far-line", [COLLECTOR, "out"], wide, &near, ample);
    for name in (0..sources).map(source) {
        link(&format!("{name}-line"), [&name, "in"], wide, &near, ample);
    }
    for (number, &capacity) in trial.capacities.iter().enumerate() {
        let (name, rate) = (relay(number), on_the_wire(capacity));
        link(&format!("{name}-in"), [&name, "in"], wide, &delay, ample);
        // 50 ms, and 20 packets at least.
        let queue = (rate * Span::from_millis(50)).0.max(30_000);
        link(&out(number), [&name, "out"], rate, &delay, queue);
    }
    text
}

/// The rate of a link that carries this rate of records.
fn on_the_wire(capacity: Rate) -> Rate {
    Rate::from_bits(capacity.as_bits() / PACKET * (PACKET + AROUND))
}

fn source(number: usize) -> String {
    format!("s{number}")
}

fn relay(number: usize) -> String {
    format!("r{number}")
}

/// The link of a relay towards the collector.
fn out(relay: usize) -> String {
    format!("r{relay}-out")
}

fn rule(choice: Choice) -> &'static str {
    match choice {
        Choice::Uniform => "uniform",
        Choice::Proportional { .. } => "proportional",
    }
}

/// The baseline in which all draw anew is none of the program's.
fn reselect(reselect: Reselect) -> &'static str {
    if reselect == Reselect::Least { "1" } else { "k" }
}

/// The first address of a link's first end, which is a host.
fn address(mesh: &RoutedMesh, link: &str) -> IpAddr {
    let description = mesh.description();
    let link = &description.links[description.link(link).expect("the file has it")];
    link.ends[0].addresses[0].0
}

fn enter(mesh: &RoutedMesh, host: &str, command: &mut Command) -> io::Result<()> {
    netns::die_with_parent(command, rustix::process::Signal::TERM);
    mesh.namespace(host).expect("the file has it").enter_on_spawn(command)
}

/// Whether a program has said in its log that it listens.
fn is_listening(log: &Path) -> Result<bool, StudyError> {
    let text = fs::read_to_string(log).map_err(file_error("read", log))?;
    let mut events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(events.any(|event| event["event"] == "listening"))
}

#[cfg(test)]
mod tests {
    use study::Happening;

    use super::*;

    fn trial() -> FeedTrial {
        FeedTrial {
            demands: vec![Rate::mbit(5); 3],
            capacities: vec![Rate::mbit(10), Rate::kbit(2_896)],
            paths: 2,
            choice: Choice::Uniform,
            reselect: Reselect::Paths,
            rtt: Span::from_millis(20),
            patience: Span::from_secs(60),
            events: vec![Happening::Killed(1)],
            within: Span::from_secs(20),
        }
    }

    #[test]
    fn the_file_of_a_run_is_a_mesh_with_the_round_trip_and_the_capacities() {
        let mesh = Description::parse(&mesh_file(&trial()), "sources").unwrap();
        assert_eq!((mesh.nodes.len(), mesh.links.len()), (2 + 1 + 3 + 2, 1 + 3 + 2 * 2));
        let link = &mesh.links[mesh.link("r1-out").unwrap()];
        assert_eq!(link.profiles[0].rate.base, Rate::kbit(3_080));
        let there: Span = ["s0-line", "r0-in", "r0-out", "far-line"]
            .iter()
            .map(|name| mesh.links[mesh.link(name).unwrap()].profiles[0].delay)
            .fold(Span::ZERO, |sum, delay| sum + delay);
        assert_eq!(there, Span::from_millis(10));
    }
}
