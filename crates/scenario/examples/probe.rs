use scenario::{Document, Setting};
use scenario::host::Agent;
use units::{Seed, Time, Span};
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let document = Document::load(args[0].as_ref()).unwrap();
    let step: u64 = args[1].parse().unwrap();
    let settings: Vec<Setting> = args[2..].iter().map(|s| Setting::parse(s).unwrap()).collect();
    let scenario = document.scenario(&settings).unwrap_or_else(|e| panic!("{e}"));
    let mut built = scenario.build(Seed(1)).unwrap();
    let end = scenario.duration.as_millis();
    let mut at = 0;
    while at < end {
        at += step;
        built.sim.run_until(Time::ZERO + Span::from_millis(at));
        for ends in &built.flows {
            if let Agent::Ptcp(s) = &built.sim.host(ends.from.0).agents()[ends.from.1] {
                let c = s.connection();
                for p in c.paths() {
                    println!("{at} path {p} win {} rtt {:?} {:?}", c.path_window(p).0/1472, c.smoothed_rtt(p).map(|r| r.as_micros()), c.stats(p));
                }
            }
            if let Agent::Ptcp(s) = &built.sim.host(ends.to.0).agents()[ends.to.1] { println!("   recv {} buffer {}", s.received().0, s.connection().receive_buffer().0); }
        }
    }
}
