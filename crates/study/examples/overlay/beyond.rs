//! Extensions of the paper: the linear program, and each improvement compared with the paper's rule
//! on the same figures.

use overlay::{Config, Detect, Reselect, optimum};
use scenario::relays::{Demands, RateStudy};
use study::fluid::churn::{self, Change, Churn, Reselection};
use study::fluid::control::FluidOutcome;
use study::fluid::lp;
use study::fluid::mesh::{self, Mesh};
use study::fluid::search::{self, Search};
use units::{Rate, Seed};

use crate::{MIXES, Options, parallel, print, spread_4};

/// The longest pause of a path, in intervals.
const PAUSE: u32 = 32;

/// The paper's control, and the same with each improvement.
fn variants(paper: Config) -> [(&'static str, Config); 4] {
    let receiver = Config { detect: Detect::Receiver(0.0), ..paper };
    [
        ("paper", paper),
        ("receiver", receiver),
        ("spare", Config { pause: PAUSE, ..paper }),
        ("both", Config { pause: PAUSE, ..receiver }),
    ]
}

/// The relative difference between the linear program and the maximum flow, on random instances of
/// the study.
pub(crate) fn programme(options: &Options) {
    let apart = parallel(options, 1_000, |seed| {
        let (skew, choice) = MIXES[usize::try_from(seed % 6).unwrap()];
        let setting = RateStudy {
            sources: usize::try_from(1 + seed % 100).unwrap(),
            relays: u32::try_from(3 + seed / 7 % 98).unwrap(),
            paths: usize::try_from(1 + seed % 3).unwrap(),
            demands: Demands::OneOf(vec![Rate::mbit(1), Rate::mbit(10), Rate::mbit(100)]),
            skew,
            choice,
            ..RateStudy::default()
        };
        let instance = setting.instance(Seed(seed));
        let selection =
            setting.chooser(&instance, Seed(seed)).select(setting.sources, setting.paths);
        let flow = optimum(&instance, &selection).rate.as_f64();
        (lp::optimum(&instance, &selection).unwrap().rate / flow - 1.0).abs()
    });
    print("lp apart", apart);
}

/// Fig. 4(b) and (c) with other signals of failure, and with pausing paths.
pub(crate) fn signal(options: &Options) {
    for (rule, paper) in [("AIAD", Config::aiad(0.01)), ("MIMD", Config::mimd(0.01))] {
        for (name, control) in variants(paper) {
            let setting =
                RateStudy { control, intervals: 4_000, settled: 2_000, ..RateStudy::default() };
            spread_4(options, &format!("signal {rule} {name}"), &setting);
        }
    }
}

/// The hard case of Fig. 7 (b = 1, uniform choice), with the better of two relays.
pub(crate) fn choices(options: &Options) {
    for supply in [1.4, 1.6, 1.8, 2.0] {
        let setting = RateStudy { skew: 1.0, supply, ..RateStudy::default() };
        for (rule, name) in [(Reselect::Paths, "k"), (Reselect::Least, "1")] {
            for (kind, search) in [
                ("optimal", Search::optimal(setting.clone(), rule)),
                ("controlled", Search::controlled(setting.clone(), rule)),
            ] {
                for (drawn, two_choices) in [("one", false), ("two", true)] {
                    let search = Search { two_choices, ..search.clone() };
                    let found = parallel(options, options.runs, |seed| {
                        search::run(&search, Seed(seed)).iterations
                    });
                    let name = format!("choices f={supply} {name}-reselection {kind} {drawn}");
                    print(&name, found.into_iter().map(|iterations| iterations.unwrap_or(0)));
                }
            }
        }
    }
}

/// Sources that come and go, and changing capacities: the received share of the optimum, and the
/// time to recover.
pub(crate) fn churn(options: &Options) {
    for (kind, change) in
        [("sources", Change::Sources(0.1)), ("capacities", Change::Capacities(0.5))]
    {
        for (rule, paper) in [("AIAD", Config::aiad(0.01)), ("MIMD", Config::mimd(0.01))] {
            for (name, control) in variants(paper) {
                let setting = RateStudy { control, intervals: 4_000, ..RateStudy::default() };
                let churn = Churn { setting, change, every: 200, reselection: None };
                let courses = parallel(options, options.runs, |seed| {
                    let course = churn::run(&churn, Seed(seed));
                    let recoveries: Vec<usize> =
                        course.recoveries(0.95).map(|time| time.unwrap_or(churn.every)).collect();
                    (course.kept(), recoveries)
                });
                print(
                    &format!("churn {kind} {rule} {name} kept"),
                    courses.iter().map(|(kept, _)| kept),
                );
                print(
                    &format!("churn {kind} {rule} {name} recovery"),
                    courses.iter().flat_map(|(_, times)| times),
                );
            }
        }
    }
}

/// Sources that come and go, with reselection during rate control: the received share of the
/// optimum over any paths.
pub(crate) fn running(options: &Options) {
    let receiver = Config { detect: Detect::Receiver(0.0), ..Config::mimd(0.01) };
    for (skew, supply) in [(0.5, 1.2), (1.0, 1.6)] {
        for (control_name, control) in
            [("AIAD paper", Config::aiad(0.01)), ("MIMD receiver", receiver)]
        {
            let serve = |name: &str, reselection: Option<Reselection>| {
                let setting =
                    RateStudy { control, skew, supply, intervals: 4_000, ..RateStudy::default() };
                let churn =
                    Churn { setting, change: Change::Sources(0.1), every: 400, reselection };
                let served =
                    parallel(options, options.runs, |seed| churn::run(&churn, Seed(seed)).served());
                print(&format!("running b={skew} f={supply} {control_name}, {name}"), served);
            };
            serve("no reselection", None);
            for (rule, rule_name) in [(Reselect::Paths, "k"), (Reselect::Least, "1")] {
                for (two_choices, drawn) in [(false, "one"), (true, "two")] {
                    for every in [50, 200] {
                        let reselection = Reselection { rule, two_choices, every };
                        serve(
                            &format!("{rule_name}-reselection of {drawn} every {every}"),
                            Some(reselection),
                        );
                    }
                }
            }
        }
    }
}

/// Several hops and destinations, with the share of sources that the optimum starves: it explains
/// the gap of the control.
pub(crate) fn mesh(options: &Options) {
    for (destinations, relays, spread, supply) in [
        (4, 1, 1.0, 1.6),
        (4, 1, 2.0, 1.6),
        (1, 2, 1.0, 1.6),
        (4, 2, 2.0, 1.6),
        (4, 2, 2.0, 3.2),
        (4, 2, 2.0, 6.4),
    ] {
        let setting =
            RateStudy { intervals: 2_000, settled: 1_000, supply, ..RateStudy::default() };
        let name =
            format!("mesh destinations={destinations} hops={relays} spread={spread} f={supply}");
        let mesh = Mesh { setting, destinations, relays, spread };
        print(
            &format!("{name} starved"),
            parallel(options, options.runs, |seed| starved(&mesh, Seed(seed))),
        );
        for (variant, control) in variants(Config::aiad(0.01)) {
            let mesh = Mesh { setting: RateStudy { control, ..mesh.setting.clone() }, ..mesh };
            let outcomes =
                parallel(options, options.runs, |seed| mesh::run(&mesh, Seed(seed)).unwrap());
            print(
                &format!("{name} {variant} optimum"),
                outcomes.iter().map(|outcome| outcome.optimum),
            );
            print(&format!("{name} {variant} gap"), outcomes.iter().map(FluidOutcome::gap));
            print(
                &format!("{name} {variant} time"),
                outcomes.iter().map(|outcome| outcome.time.unwrap_or(2_000)),
            );
        }
    }
}

/// The share of the sources that the optimum gives less than a tenth of their demand.
fn starved(mesh: &Mesh, seed: Seed) -> f64 {
    let (instance, routes) = mesh.network(seed);
    let best = lp::optimum(&instance, &routes).unwrap();
    let rates = best.paths.chunks(routes.paths()).map(|paths| paths.iter().sum::<f64>());
    let starved =
        rates.zip(&instance.demands).filter(|(rate, demand)| *rate < 0.1 * demand.as_f64());
    starved.map(|_| 1.0).sum::<f64>() / instance.demands.iter().map(|_| 1.0).sum::<f64>()
}
