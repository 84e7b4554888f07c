use scenario::{Document, Looks, Setting};
use units::Seed;
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let document = Document::load(args[0].as_ref()).unwrap();
    let settings: Vec<Setting> = args[1..].iter().map(|s| Setting::parse(s).unwrap()).collect();
    let scenario = document.scenario(&settings).unwrap_or_else(|e| panic!("{e}"));
    let begin = std::time::Instant::now();
    for n in 0..scenario.runs.max(1) {
        let run = scenario.run(Seed(1 + u64::from(n)), Looks { series: false }).unwrap();
        for m in run.measures.iter().filter(|m| m.window == "steady" && (m.scope == "flow" || m.scope == "link" && m.of.ends_with("up") && ["utilisation","drops","queue","losses"].contains(&m.name))) {
            println!("{} {} {} {:.4} {}", m.scope, m.of, m.name, m.value, m.unit);
        }
        println!("hops {} in {:?}", run.totals.hops, begin.elapsed());
    }
}
