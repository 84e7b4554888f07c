//! `anabranch emulate`: the command line.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use link::config::{ConfigError, Network, TCP_PAYLOAD_SHARE};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use sys::netns;
use thiserror::Error;
use units::{Bytes, Span};

use crate::loopback::{Loopback, LoopbackError, Protocol};
use crate::namespaces::{Emulation, EmulationError, gain_privilege};
use crate::routed::{Description, RoutedMesh, control};

/// The exit code of a run that does not count, with `--strict`.
pub const EXIT_INVALID: u8 = 70;
/// The time that the far command has to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(3);
/// The time within which the far command must listen.
const LISTEN_LIMIT: Duration = Duration::from_secs(15);

/// Runs a command over emulated links.
///
/// Two network namespaces, near and far, are joined by the links of NETWORK, each a device called
/// like the link in both, with the addresses `10.77.i.1` near and `10.77.i.2` far (`fd77:i::1` and
/// `fd77:i::2`) for the link number i. COMMAND runs near, and finds `ANABRANCH_FAR` (the first far
/// address), `ANABRANCH_LINKS`, `ANABRANCH_NEAR_ADDRS` and `ANABRANCH_FAR_ADDRS` in its
/// environment. The schedule's clock starts with the first SYN or the first TCP or UDP payload.
#[derive(Args, Clone, Debug)]
pub struct EmulateArgs {
    /// The network file; a scenario file, whose flows are the traffic; or a mesh file
    #[arg(value_name = "FILE")]
    pub network: PathBuf,
    /// Run by `sh -c` in the far namespace, before COMMAND; it gets SIGTERM when COMMAND ends.
    #[arg(long, value_name = "SHELL COMMAND")]
    pub far: Option<String>,
    /// Start COMMAND once something listens on this TCP port in the far namespace.
    #[arg(long, value_name = "PORT", requires = "far")]
    pub far_listens: Option<u16>,
    /// Without privilege, on loopback: the link number i listens on 127.77.0.i, with the port of
    /// --forward, and forwards to there. COMMAND finds the addresses in `ANABRANCH_FAR_ADDRS`, with
    /// ports.
    #[arg(long, requires = "forward", conflicts_with_all = ["far", "far_listens"])]
    pub loopback: bool,
    /// Where --loopback forwards to.
    #[arg(long, value_name = "ADDRESS:PORT", requires = "loopback")]
    pub forward: Option<SocketAddr>,
    /// What --loopback forwards.
    #[arg(long, value_name = "PROTOCOL", default_value = "tcp", requires = "loopback")]
    pub protocol: Protocol,
    /// Write what happened, as JSON.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Exit with 70 if the emulator did not keep its own bounds.
    #[arg(long)]
    pub strict: bool,
    /// The amount of data that schedules are relative to, in place of the file's `bytes`.
    #[arg(long, value_name = "BYTES")]
    pub bytes: Option<Bytes>,
    /// Print the seconds that all links together need for this much TCP payload, and do nothing
    /// else.
    #[arg(long, value_name = "BYTES")]
    pub ideal: Option<Bytes>,
    /// The command to run near, and its arguments.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Why the run failed.
#[derive(Debug, Error)]
pub enum CliError {
    /// The network file is wrong.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// The network could not be built.
    #[error("{0}")]
    Emulation(#[from] EmulationError),
    /// The links on loopback could not be started.
    #[error("{0}")]
    Loopback(#[from] LoopbackError),
    /// The links never carry that much.
    #[error("{0}: the links never carry that much")]
    Never(Bytes),
    /// A command could not be run, or a file not be written.
    #[error("{doing}: {error}")]
    World {
        /// The operation and its object.
        doing: String,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// Nothing listens in the far namespace.
    #[error(
        "the far command ended, or listens on no port {0} after {limit} s",
        limit = LISTEN_LIMIT.as_secs()
    )]
    NobodyListens(u16),
}

fn doing(doing: impl Into<String>) -> impl FnOnce(io::Error) -> CliError {
    let doing = doing.into();
    move |error| CliError::World { doing, error }
}

/// Runs the subcommand and returns the exit code: the command's own, 128 and the signal if one
/// ended it, or [`EXIT_INVALID`]. To be called before the process has a second thread, for an
/// unprivileged user's sake.
///
/// # Errors
/// If there was no run; the caller prints it and exits with a code of its own.
///
/// # Panics
/// If there is no command.
pub fn run(args: &EmulateArgs) -> Result<u8, CliError> {
    let network = Network::read(&args.network, args.bytes)?;
    if let Some(forward) = args.forward {
        return run_on_loopback(args, &network, forward);
    }
    gain_privilege()?;
    let emulation = Emulation::namespaces(&network)?;
    let mut far = args.far.as_ref().map(|command| Far::start(&emulation, command)).transpose()?;
    if let (Some(far), Some(port)) = (&mut far, args.far_listens) {
        far.wait_until_listening(&emulation, port)?;
    }
    let mut command = command(&args.command);
    emulation
        .place(&mut command, emulation.near())
        .map_err(doing("entering the near namespace"))?;
    let status = run_command(command)?;
    if let Some(far) = far {
        far.end();
    }
    let report = emulation.finish()?;
    let code = conclude(args, &report, &report.why)?;
    Ok(code.unwrap_or_else(|| exit_code(status)))
}

/// The time that all links together need for so much TCP payload.
///
/// # Errors
/// If the file is wrong, or the links never carry that much.
pub fn ideal(args: &EmulateArgs, payload: Bytes) -> Result<Span, CliError> {
    let network = Network::read(&args.network, args.bytes)?;
    network.ideal(payload, TCP_PAYLOAD_SHARE).ok_or(CliError::Never(payload))
}

/// Runs a mesh until standard input ends: says on standard output when it is ready, and carries out
/// requests ([`control`]). Returns the exit code, as [`run`] does. To be called before the process
/// has a second thread, for an unprivileged user's sake.
///
/// # Errors
/// If there was no run.
pub fn run_mesh(args: &EmulateArgs) -> Result<u8, CliError> {
    let description = Description::read(&args.network)?;
    let is_unprivileged = gain_privilege()?;
    let mut mesh = RoutedMesh::new(description)?;
    if is_unprivileged {
        mesh.set_unprivileged();
    }
    control::serve(&mut mesh, io::stdin().lock(), io::stdout().lock())
        .map_err(doing("serving the mesh"))?;
    let report = mesh.finish()?;
    Ok(conclude(args, &report, &report.why)?.unwrap_or(0))
}

/// Writes the report; returns an exit code if the run does not count, for the reasons `why`.
fn conclude(
    args: &EmulateArgs,
    report: &impl Serialize,
    why: &[String],
) -> Result<Option<u8>, CliError> {
    if let Some(path) = &args.report {
        let text = serde_json::to_string_pretty(report).expect("a report has only plain fields");
        std::fs::write(path, text + "\n").map_err(doing(format!("writing {}", path.display())))?;
    }
    for why in why {
        // The exit code says it too, with `strict`.
        let _ = writeln!(io::stderr(), "emulate: this run does not count: {why}");
    }
    Ok((!why.is_empty() && args.strict).then_some(EXIT_INVALID))
}

fn run_on_loopback(
    args: &EmulateArgs,
    network: &Network,
    forward: SocketAddr,
) -> Result<u8, CliError> {
    let loopback = Loopback::start(network, forward, args.protocol)?;
    let addresses: Vec<String> = loopback.addresses().iter().map(ToString::to_string).collect();
    let names: Vec<&str> = network.links.iter().map(|link| link.name.as_str()).collect();
    let mut command = command(&args.command);
    command
        .env("ANABRANCH_NETWORK", &network.name)
        .env("ANABRANCH_FAR", &addresses[0])
        .env("ANABRANCH_LINKS", names.join(" "))
        .env("ANABRANCH_FAR_ADDRS", addresses.join(","));
    let status = run_command(command)?;
    let report = loopback.finish()?;
    let code = conclude(args, &report, &report.why)?;
    Ok(code.unwrap_or_else(|| exit_code(status)))
}

fn command(words: &[String]) -> Command {
    let (program, arguments) = words.split_first().expect("the caller checks it");
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// Runs the command to its end, and hands signals on to it.
fn run_command(mut command: Command) -> Result<ExitStatus, CliError> {
    let program = command.get_program().to_string_lossy().into_owned();
    netns::die_with_parent(&mut command, Signal::TERM);
    // Installed before the child starts, so that no signal is lost.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(doing("handling signals"))?;
    let handle = signals.handle();
    let (say, started) = mpsc::channel();
    // It too, since the command could not be left alone where there is no thread.
    let forwarding = thread::Builder::new().spawn(move || {
        if let Ok(pid) = started.recv() {
            forward(&mut signals, pid);
        }
    });
    let forward = forwarding.map_err(doing("starting a thread for signals"))?;
    let mut child = command.spawn().map_err(doing(format!("running {program}")))?;
    // The thread waits for it.
    let _ = say.send(pid(&child));
    let status = child.wait().map_err(doing(format!("waiting for {program}")));
    stop_forwarding(&handle, forward);
    status
}

/// Forwards signals to the child, except SIGINT: the terminal sends it to the child too.
fn forward(signals: &mut Signals, pid: Pid) {
    for signal in signals.forever() {
        let signal = match signal {
            SIGTERM => Signal::TERM,
            SIGHUP => Signal::HUP,
            _ => continue,
        };
        // It may have ended by itself.
        let _ = kill_process(pid, signal);
    }
}

fn stop_forwarding(handle: &Handle, forward: thread::JoinHandle<()>) {
    handle.close();
    // Its status is of no interest.
    let _ = forward.join();
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// The far command, in a process group of its own.
struct Far {
    child: Option<Child>,
}

impl Far {
    fn start(emulation: &Emulation, shell_command: &str) -> Result<Far, CliError> {
        let mut command = Command::new("sh");
        command.args(["-c", shell_command]).process_group(0);
        emulation
            .place(&mut command, emulation.far())
            .map_err(doing("entering the far namespace"))?;
        let child = command.spawn().map_err(doing("running sh"))?;
        Ok(Far { child: Some(child) })
    }

    fn wait_until_listening(&mut self, emulation: &Emulation, port: u16) -> Result<(), CliError> {
        let limit = Instant::now() + LISTEN_LIMIT;
        while !emulation.far_listens(port)? {
            let has_ended =
                self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(Some(_))));
            if has_ended || Instant::now() > limit {
                return Err(CliError::NobodyListens(port));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn end(mut self) {
        self.terminate();
    }

    /// SIGTERM to the whole group; SIGKILL after the grace.
    fn terminate(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let group = pid(&child);
        let send = |signal| {
            // The group may be gone.
            let _ = kill_process_group(group, signal);
        };
        send(Signal::TERM);
        let limit = Instant::now() + GRACE;
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < limit {
            thread::sleep(Duration::from_millis(2));
        }
        send(Signal::KILL);
        // Killed, it ends.
        let _ = child.wait();
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.terminate();
    }
}
