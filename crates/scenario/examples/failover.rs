//! A path of a loaded striped connection is blackholed, and comes back: `failover [SEEDS]`.
//!
//! Two paths carry a file. For five seconds one of them loses everything, in one direction or in
//! both. Prints a line for each case: path, direction, the longest time without data in order (ms),
//! its bound (ms: three RTTs of the other path and one probe timeout of this one, measured just
//! before), the time from the return of the path until it carries a tenth of its rate (ms), the
//! bytes received by the application in the end, and the size of the file.
#![expect(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a command that prints, and fails by panicking"
)]

use netsim::LinkId;
use scenario::host::{Agent, Striped};
use scenario::{Built, Document, Setting};
use units::{Bytes, Rate, Seed, Span, SubflowId, Time};

const SCENARIO: &str = r#"
name = "a path goes away"
duration = "60 s"

[parameters]
up1 = []
down1 = []
up2 = []
down2 = []

[[link]]
name = "one"
between = ["near", "far"]
rate = "50 Mbit/s"
delay = "10 ms"
queue = "128 KiB"
up = { blackout = "$up1" }
down = { blackout = "$down1" }

[[link]]
name = "two"
between = ["near", "far"]
rate = "30 Mbit/s"
delay = "25 ms"
queue = "192 KiB"
up = { blackout = "$up2" }
down = { blackout = "$down2" }

[[flow]]
name = "bulk"
from = "near"
to = "far"
transport = "ptcp"
jitter = "off"
source = { file = "100 MB" }
subflows = "each"
"#;
const SIZE: u64 = 100_000_000;
const AWAY: Span = Span::from_secs(5);
const STEP: Span = Span::from_millis(1);
/// The time over which the rate of a path is measured.
const SPELL: Span = Span::from_millis(100);
const RATES: [Rate; 2] = [Rate::mbit(50), Rate::mbit(30)];

fn main() {
    let seeds =
        std::env::args().nth(1).map_or(10, |seeds| seeds.parse().expect("a number of seeds"));
    for victim in 0..2 {
        for direction in ["both", "up", "down"] {
            for seed in 0..seeds {
                case(victim, direction, seed);
            }
        }
    }
}

fn case(victim: usize, direction: &str, seed: u64) {
    // At a random phase of the congestion windows, and early enough that the file lasts.
    let away = Time::ZERO + Span::from_millis(4_000 + 137 * seed % 1_500);
    let back = away + AWAY;
    let document = Document::new(SCENARIO, "failover").expect("it makes sense");
    let seconds = |at: Time| (at - Time::ZERO).as_secs_f64();
    let blackout = format!("[{{ from = \"{} s\", to = \"{} s\" }}]", seconds(away), seconds(back));
    let ways: &[&str] = if direction == "both" { &["up", "down"] } else { &[direction] };
    let settings: Vec<Setting> = ways
        .iter()
        .map(|way| Setting::parse(&format!("{way}{}={blackout}", victim + 1)).expect("a setting"))
        .collect();
    let scenario = document.scenario(&settings).expect("it makes sense");
    let mut built = scenario.build(Seed(1 + seed)).expect("there is a way");

    let run = |built: &mut Built, to: Time| built.sim.run_until(to);
    run(&mut built, away);
    let (own, other) =
        (u16::try_from(victim).expect("few"), u16::try_from(1 - victim).expect("few"));
    let sender = sender(&built).connection();
    let survivor = sender.smoothed_rtt(SubflowId(other)).expect("it is open");
    let bound =
        survivor + survivor + survivor + sender.probe_timeout(SubflowId(own)).expect("it is open");

    let (mut at, mut before, mut since, mut gap) = (away, received(&built), away, Span::ZERO);
    while at < back {
        at += STEP;
        run(&mut built, at);
        let now = received(&built);
        if now > before {
            (before, since) = (now, at);
        }
        gap = gap.max(at - since);
    }
    let link = built.links[victim].0;
    let (mut carried, mut used) = (delivered(&built, link), None);
    while used.is_none() && at < back + Span::from_secs(10) {
        at += SPELL;
        run(&mut built, at);
        let now = delivered(&built, link);
        let rate = Bytes(now.0 - carried.0) / SPELL;
        used = (rate.as_f64() > 0.1 * RATES[victim].as_f64()).then(|| at - back);
        carried = now;
    }
    run(&mut built, Time::ZERO + scenario.duration);
    let name = ["one", "two"][victim];
    let ms = |span: Span| span.as_secs_f64() * 1e3;
    let used = ms(used.unwrap_or(Span::from_secs(10)));
    println!(
        "{name}\t{direction}\t{}\t{}\t{used}\t{}\t{SIZE}",
        ms(gap),
        ms(bound),
        received(&built).0
    );
}

fn sender(built: &Built) -> &Striped {
    striped(built, built.flows[0].from)
}

fn striped(built: &Built, (host, agent): (netsim::HostId, usize)) -> &Striped {
    match built.sim.host(host).agent(agent) {
        Some(Agent::Ptcp(striped)) => striped,
        _ => unreachable!("the scenario has one flow, and that is striped"),
    }
}

fn received(built: &Built) -> Bytes {
    striped(built, built.flows[0].to).received()
}

fn delivered(built: &Built, link: LinkId) -> Bytes {
    built.sim.counters(link).delivered.bytes
}
