//! The files of the numerical study: settings, sweeps and cases.

use link::config::ConfigError;
use link::config::Problem;
use link::config::reader::{Section, Source, Value};
use overlay::{Choice, Config, Detect, Initial, Instance, Reselect, Selection};
use scenario::relays::{self, Demands, RateStudy, Sharing};
use toml::de::DeTable;
use units::{Bytes, Rate, Span};

use crate::fluid::search::Search;

type Result<T, E = ConfigError> = std::result::Result<T, E>;

/// Keys of a setting: in the file itself, in a case, or in the sweep.
const KEYS: &[&str] = &[
    "sources",
    "relays",
    "b",
    "f",
    "demand",
    "k",
    "choice",
    "error",
    "rule",
    "epsilon",
    "alpha",
    "gamma",
    "detect",
    "delta",
    "initial",
    "sharing",
    "intervals",
    "settled",
    "band",
    "reselect",
    "rates",
    "tolerance",
    "cap",
    "packet",
    "rtt",
    "interval",
    "window",
    "queue",
    "ahead",
];
/// Keys for cases with a `packet` only.
const PACKET_KEYS: &[&str] = &["rtt", "interval", "window", "queue", "ahead"];
const TOP_KEYS: &[&str] = &["name", "about", "seed", "runs", "sweep", "case", "instance"];

/// The contents of a file.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The first seed.
    pub(crate) seed: u64,
    /// The number of seeds.
    pub(crate) runs: u32,
    /// All combinations of cases and swept values.
    pub(crate) cases: Vec<Case>,
    /// Sources, relays and first paths, if the file states them.
    pub(crate) instance: Option<(Instance, Selection)>,
}

/// A combination of a case and swept values.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// The case's name; empty in a file without cases.
    pub(crate) name: String,
    /// The setting, with the search if the file asks for one.
    pub(crate) search: Search,
    /// Whether the file asks for a search.
    pub(crate) searches: bool,
    /// The setting over TCP and relays, if the file asks for packets.
    pub(crate) packets: Option<relays::OverlaySetting>,
}

/// The layers in which a key is looked up: the swept values, then the case, then the file.
struct Layers<'a> {
    point: Vec<(String, Value<'a>)>,
    section: Section<'a>,
}

impl<'a> Layers<'a> {
    fn get(&self, key: &str) -> Option<Value<'a>> {
        let swept = self.point.iter().find(|(name, _)| name == key);
        swept.map(|(_, value)| value.clone()).or_else(|| self.section.get(key))
    }

    fn or<T>(&self, key: &str, default: T, read: impl Fn(&Value<'a>) -> Result<T>) -> Result<T> {
        self.get(key).map_or(Ok(default), |value| read(&value))
    }
}

impl Settings {
    /// Reads a file's text; `file` is its name for messages.
    ///
    /// # Errors
    /// The first mistake, with its line and the nearest known name.
    pub(crate) fn read(text: &str, file: &str) -> Result<Settings> {
        let source = Source { file, text };
        let table = DeTable::parse(text).map_err(|error| {
            let offset = error.span().map(|span| span.start);
            source.error(offset, "", Problem::Syntax(error.message().to_owned()))
        })?;
        let root = Section::root(source, table.get_ref());
        root.allow(&[TOP_KEYS, KEYS].concat())?;
        for key in ["name", "about"] {
            root.require(key)?.text()?;
        }
        let mut cases = Vec::new();
        for section in sections(&root)? {
            let name = section.get("name").filter(|_| root.get("case").is_some());
            let name = name.map_or(Ok(""), |name| name.text())?.to_owned();
            for point in points(&root)? {
                let layers = Layers { point, section: section.clone() };
                let searches = layers.get("reselect").is_some();
                let search = search(&layers)?;
                let packets = packets(&layers, &search.setting)?;
                cases.push(Case { name: name.clone(), search, searches, packets });
            }
        }
        let runs = root.get("runs").map_or(Ok(30), |value| whole(&value, 1_000_000))?;
        Ok(Settings {
            seed: root.get("seed").map_or(Ok(0), |value| value.integer())?,
            runs: u32::try_from(runs).expect("checked"),
            cases,
            instance: root.get("instance").map(|value| instance(&value)).transpose()?,
        })
    }
}

/// The cases of the file as overrides of the file itself; the file alone if it has none.
fn sections<'a>(root: &Section<'a>) -> Result<Vec<Section<'a>>> {
    let Some(list) = root.get("case") else { return Ok(vec![root.clone()]) };
    let mut sections = Vec::new();
    for value in list.list()? {
        let case = value.section()?;
        case.allow(&[&["name"], KEYS].concat())?;
        case.require("name")?;
        sections.push(root.overridden(&case));
    }
    if sections.is_empty() {
        Err(list.error(Problem::Sense("wants at least one case")))
    } else {
        Ok(sections)
    }
}

/// All combinations of the swept values. The values of the first key change slowest.
fn points<'a>(root: &Section<'a>) -> Result<Vec<Vec<(String, Value<'a>)>>> {
    let mut points = vec![Vec::new()];
    let Some(sweep) = root.get("sweep") else { return Ok(points) };
    let sweep = sweep.section()?;
    sweep.allow(KEYS)?;
    // Tables are ordered by name, which decides the order of the rows.
    for (key, value) in sweep.entries() {
        let values = value.list()?;
        if values.is_empty() {
            return Err(value.error(Problem::Sense("wants at least one value")));
        }
        let with = |point: &Vec<_>| {
            let more = values.iter().map(|value| (key.clone(), value.clone()));
            more.map(|entry| point.iter().cloned().chain([entry]).collect()).collect::<Vec<_>>()
        };
        points = points.iter().flat_map(with).collect();
    }
    Ok(points)
}

fn search(layers: &Layers<'_>) -> Result<Search> {
    let setting = setting(layers)?;
    let words = [("k", Reselect::Paths), ("1", Reselect::Least), ("all", Reselect::Everything)];
    let rule = layers.or("reselect", Reselect::Paths, |value| value.word(&words))?;
    let is_controlled = layers
        .or("rates", false, |value| value.word(&[("optimal", false), ("controlled", true)]))?;
    let search = if is_controlled {
        Search::controlled(setting, rule)
    } else {
        Search::optimal(setting, rule)
    };
    Ok(Search {
        tolerance: layers.or("tolerance", search.tolerance, Value::probability)?,
        cap: layers.or("cap", search.cap, |value| whole(value, 1_000_000))?,
        ..search
    })
}

fn setting(layers: &Layers<'_>) -> Result<RateStudy> {
    let base = RateStudy::default();
    let relays = layers.or("relays", 100, |value| whole(value, 1_000_000))?;
    let paths = layers.or("k", base.paths, |value| whole(value, 1_000))?;
    if paths > relays
        && let Some(value) = layers.get("k").or_else(|| layers.get("relays"))
    {
        return Err(value.error(Problem::Sense("leaves fewer relays than a source has paths")));
    }
    let intervals = layers.or("intervals", base.intervals, |value| whole(value, 1_000_000))?;
    let settled = layers.or("settled", base.settled, |value| whole(value, 1_000_000))?;
    if settled > intervals
        && let Some(value) = layers.get("settled").or_else(|| layers.get("intervals"))
    {
        return Err(value.error(Problem::Sense("leaves fewer `intervals` than are `settled`")));
    }
    let error = layers.or("error", 0.5, Value::probability)?;
    let initial = [("zero", Initial::Zero), ("max-min", Initial::MaxMin)];
    let sharing = [("max-min", Sharing::MaxMin), ("proportional", Sharing::Proportional)];
    Ok(RateStudy {
        sources: layers.or("sources", base.sources, |value| whole(value, 1_000_000))?,
        relays: u32::try_from(relays).expect("checked"),
        skew: layers.or("b", base.skew, |value| {
            within(value, 0.0, 100.0, "wants a number from 0 to 100")
        })?,
        supply: layers
            .or("f", base.supply, |value| within(value, 1e-6, 1e6, "wants a number above 0"))?,
        demands: layers.or("demand", base.demands, demands)?,
        paths,
        choice: layers.or("choice", base.choice, |value| {
            value.word(&[
                ("uniform", Choice::Uniform),
                ("proportional", Choice::Proportional { error }),
            ])
        })?,
        control: control(layers)?,
        initial: layers.or("initial", base.initial, |value| value.word(&initial))?,
        sharing: layers.or("sharing", base.sharing, |value| value.word(&sharing))?,
        intervals,
        settled,
        band: layers.or("band", base.band, Value::probability)?,
    })
}

fn packets(layers: &Layers<'_>, study: &RateStudy) -> Result<Option<relays::OverlaySetting>> {
    let Some(packet) = layers.get("packet") else {
        let stray = PACKET_KEYS.iter().find_map(|key| layers.get(key));
        return stray.map_or(Ok(None), |value| {
            Err(value.error(Problem::Sense("means nothing without `packet`")))
        });
    };
    let size: Bytes = packet.quantity()?;
    if !(1..=65_000).contains(&size.0) {
        return Err(packet.error(Problem::Sense("wants 1 B to 65000 B")));
    }
    if study.sources * study.paths > 100_000 {
        return Err(
            packet.error(Problem::Sense("is for at most 100000 paths of all sources together"))
        );
    }
    let base = relays::OverlaySetting::new(study.demands.clone());
    let rtt = layers.or("rtt", base.rtt, |value| match value.quantity()? {
        rtt if rtt > Span::ZERO => Ok(rtt),
        _ => Err(value.error(Problem::Sense("wants more than nothing"))),
    })?;
    let number = |key, default| {
        layers.or(key, default, |value| whole(value, 1_000_000).map(|number| number as u64))
    };
    let interval = number("interval", base.interval)?;
    let mut study = study.clone();
    if let Detect::Throughput(delta) = study.control.detect {
        // Rates are counted in packets: a difference of one packet is not a failure.
        study.control.detect = Detect::Packets { delta, allowance: size / (rtt * interval) };
    } else if let Some(value) = layers.get("detect") {
        return Err(value.error(Problem::Sense(
            "is for fluids: sources see throughput only where there are packets",
        )));
    }
    if let (Sharing::Proportional, Some(value)) = (study.sharing, layers.get("sharing")) {
        return Err(
            value.error(Problem::Sense("is for fluids: TCP shares where there are packets"))
        );
    }
    Ok(Some(relays::OverlaySetting {
        study,
        rtt,
        interval,
        packet: size,
        window: number("window", base.window)?,
        queue: number("queue", base.queue)?,
        ahead: number("ahead", base.ahead)?,
    }))
}

fn control(layers: &Layers<'_>) -> Result<Config> {
    let epsilon = layers
        .or("epsilon", 0.01, |value| within(value, 1e-9, 1.0, "wants a number above 0, up to 1"))?;
    let is_mimd =
        layers.or("rule", false, |value| value.word(&[("AIAD", false), ("MIMD", true)]))?;
    let config = if is_mimd { Config::mimd(epsilon) } else { Config::aiad(epsilon) };
    let delta = layers.or("delta", 0.0, Value::probability)?;
    let detect = [
        ("throughput", Detect::Throughput(delta)),
        ("overload", Detect::RelayOverload),
        ("receiver", Detect::Receiver(delta)),
    ];
    let above_one = |value: &Value<'_>| within(value, 1.000_001, 1e6, "wants a number above 1");
    Ok(Config {
        alpha: layers.or("alpha", config.alpha, above_one)?,
        gamma: layers.or("gamma", config.gamma, above_one)?,
        detect: layers.or("detect", Detect::Throughput(delta), |value| value.word(&detect))?,
        ..config
    })
}

fn demands(value: &Value<'_>) -> Result<Demands> {
    if value.is_text() { rate(value).map(Demands::Equal) } else { rates(value).map(Demands::OneOf) }
}

fn rates(value: &Value<'_>) -> Result<Vec<Rate>> {
    let rates: Vec<Rate> = value.list()?.iter().map(rate).collect::<Result<_>>()?;
    if rates.is_empty() {
        Err(value.error(Problem::Sense("wants at least one rate")))
    } else {
        Ok(rates)
    }
}

fn rate(value: &Value<'_>) -> Result<Rate> {
    let rate: Rate = value.quantity()?;
    if rate == Rate::ZERO {
        Err(value.error(Problem::Sense("wants more than nothing")))
    } else {
        Ok(rate)
    }
}

/// Sources, relays, and which relays each source uses.
fn instance(value: &Value<'_>) -> Result<(Instance, Selection)> {
    let section = value.section()?;
    section.allow(&["demands", "capacities", "paths"])?;
    let instance = Instance {
        demands: rates(&section.require("demands")?)?,
        capacities: rates(&section.require("capacities")?)?,
    };
    let paths = section.require("paths")?;
    let of = |source: &Value<'_>| -> Result<Vec<usize>> {
        source
            .list()?
            .iter()
            .map(|relay| whole(relay, instance.capacities.len()).map(|relay| relay - 1))
            .collect()
    };
    let lists: Vec<Vec<usize>> = paths.list()?.iter().map(of).collect::<Result<_>>()?;
    let count = lists.first().map_or(0, Vec::len);
    if lists.len() != instance.demands.len()
        || count == 0
        || lists.iter().any(|list| list.len() != count)
    {
        return Err(paths
            .error(Problem::Sense("wants a list of relays for each source, all of one length")));
    }
    Ok((instance, Selection::new(count, lists.concat())))
}

fn whole(value: &Value<'_>, most: usize) -> Result<usize> {
    let number =
        usize::try_from(value.integer()?).ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| {
        value.error(Problem::Because(format!("wants a whole number from 1 to {most}")))
    })
}

fn within(value: &Value<'_>, least: f64, most: f64, wants: &'static str) -> Result<f64> {
    let number = value.number()?;
    if (least..=most).contains(&number) {
        Ok(number)
    } else {
        Err(value.error(Problem::Sense(wants)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "name = 'x'\nabout = 'y'\n";

    fn error(keys: &str) -> String {
        let text = format!("{HEAD}{keys}\n");
        Settings::read(&text, "x.toml")
            .map_or_else(|error| error.to_string(), |_| format!("nothing about {keys}"))
    }

    #[test]
    fn defaults_are_those_of_the_study() {
        let settings = Settings::read(HEAD, "x.toml").unwrap();
        assert_eq!((settings.seed, settings.runs, settings.cases.len()), (0, 30, 1));
        assert_eq!(settings.cases[0].search.setting, RateStudy::default());
        assert!(!settings.cases[0].searches);
    }

    #[test]
    fn cases_and_swept_values_are_combined() {
        let text = format!(
            "{HEAD}f = 2\n[sweep]\nk = [1, 2, 3]\n[[case]]\nname = 'a'\nb = 1\n[[case]]\nname = \
             'c'\nf = 3\n"
        );
        let settings = Settings::read(&text, "x.toml").unwrap();
        let of = |case: &Case| {
            (case.name.clone(), case.search.setting.paths, case.search.setting.supply.to_string())
        };
        let all: Vec<_> = settings.cases.iter().map(of).collect();
        let expected = [
            ("a", 1, "2"),
            ("a", 2, "2"),
            ("a", 3, "2"),
            ("c", 1, "3"),
            ("c", 2, "3"),
            ("c", 3, "3"),
        ];
        assert_eq!(all, expected.map(|(name, k, f)| (name.to_owned(), k, f.to_owned())));
    }

    #[test]
    fn packet_settings_are_those_of_section_5() {
        let text = format!(
            "{HEAD}packet = '500 B'\ndelta = 0.03\nintervals = 1000\nsettled = 500\nband = \
             0.05\n[[case]]\nname = 'a'\n[[case]]\nname = 'c'\ndemand = '6 Mbit/s'\n"
        );
        let settings = Settings::read(&text, "x.toml").unwrap();
        for (case, demand) in settings.cases.iter().zip([Rate::kbit(1_200), Rate::mbit(6)]) {
            let expected = relays::OverlaySetting::new(Demands::Equal(demand));
            assert_eq!(case.packets.as_ref(), Some(&expected));
        }
    }

    #[test]
    fn mistakes_have_a_line_and_the_nearest_name() {
        for (keys, wanted) in [
            ("epsilom = 0.1", "x.toml:3: epsilom: no such key; did you mean `epsilon`?"),
            ("rule = 'AIMD'", "x.toml:3: rule: 'AIMD' is not known here; did you mean"),
            (
                "[sweep]\nchoise = ['uniform']",
                "x.toml:4: sweep.choise: no such key; did you mean `choice`?",
            ),
            (
                "[[case]]\nname = 'a'\nreselct = 'k'",
                "x.toml:5: case.reselct: no such key; did you mean `reselect`?",
            ),
            ("[sweep]\nk = [1, 'two']", "x.toml:4: sweep.k: wants a whole number, not string"),
            ("k = 101", "x.toml:3: k: leaves fewer relays"),
            ("settled = 20000", "x.toml:3: settled: leaves fewer `intervals`"),
            ("demand = '1.2 parsecs'", "x.toml:3: demand: "),
            ("epsilon = 0", "x.toml:3: epsilon: wants a number above 0"),
            ("rtt = '20 ms'", "x.toml:3: rtt: means nothing without `packet`"),
            ("packet = '0 B'", "x.toml:3: packet: wants 1 B"),
            ("detect = 'overload'\npacket = '500 B'", "x.toml:3: detect: is for fluids"),
            (
                "[instance]\ndemands = ['1 Mbit/s']\ncapacities = ['1 Mbit/s']\npaths = [[2]]",
                "wants a whole number from 1 to 1",
            ),
            ("k = ", "x.toml:3"),
        ] {
            let text = error(keys);
            assert!(text.contains(wanted), "{keys}\n  says   {text}\n  wanted {wanted}");
        }
    }
}
