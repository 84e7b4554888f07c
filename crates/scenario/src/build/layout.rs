//! What a seed makes of a scenario, for those who carry out its flows themselves: ends, starts and
//! routes.

use std::sync::Arc;

use hashbrown::HashMap;
use netsim::{LinkId, Route, TopologyError};
use units::{Seed, Span, Time};

use super::{Built, drawn_ends};
use crate::file::Scenario;

/// The flows of a scenario, in the order of the file.
#[derive(Clone, Debug)]
pub struct RunLayout {
    /// Each flow.
    pub flows: Vec<FlowLayout>,
}

/// A flow.
#[derive(Clone, Debug)]
pub struct FlowLayout {
    /// The host that sends the bulk of the data.
    pub from: Arc<str>,
    /// The host that receives it.
    pub to: Arc<str>,
    /// The start.
    pub start: Time,
    /// The bound of the random delay before each packet of the sender.
    pub jitter: Span,
    /// The routes of each connection, there and back: the numbers of links' directions. Number `2
    /// n` is the direction up of the scenario's link `n`, and `2 n + 1` its direction down. UDP has
    /// no way back.
    pub routes: Vec<[Vec<usize>; 2]>,
}

impl Scenario {
    /// What the run with this seed has of hosts, starts and routes. Flows through gateways have the
    /// routes from and to their gateways.
    ///
    /// # Errors
    /// If there is no route for a flow.
    pub fn layout(&self, seed: Seed) -> Result<RunLayout, TopologyError> {
        let (built, plans) = self.build_with_plans(seed)?;
        let directions: HashMap<LinkId, usize> = (built.links.iter().enumerate())
            .flat_map(|(link, (up, down))| [(*up, 2 * link), (*down, 2 * link + 1)])
            .collect();
        let slowest = self.slowest_packet();
        let flows = self.flows.iter().zip(&plans).map(|(flow, plan)| {
            let [from, to] = drawn_ends(flow, plan.seed);
            let links = |route: Route| links(&built, &directions, route);
            let routes = plan.routes.iter().map(|(there, back)| {
                [links(*there), if plan.is_udp() { Vec::new() } else { links(*back) }]
            });
            FlowLayout {
                from: from.into(),
                to: to.into(),
                start: plan.start,
                jitter: flow.jitter.unwrap_or(slowest),
                routes: routes.collect(),
            }
        });
        Ok(RunLayout { flows: flows.collect() })
    }
}

fn links(built: &Built, directions: &HashMap<LinkId, usize>, route: Route) -> Vec<usize> {
    built.sim.links_of(route).map(|link| directions[&link]).collect()
}

#[cfg(test)]
mod tests {
    use crate::Document;

    #[test]
    fn a_layout_has_routes_and_starts() {
        let text = r#"
            name = "two hops"
            duration = "10 s"
            [[link]]
            name = "first"
            between = ["a", "r"]
            rate = "10 Mbit/s"
            delay = "10 ms"
            queue = "20 packets"
            [[link]]
            name = "second"
            between = ["b", "r"]
            rate = "12 Mbit/s"
            delay = "10 ms"
            queue = "20 packets"
            [[flow]]
            name = "tcp"
            from = "a"
            to = "b"
            start = "2 s"
            jitter = "off"
            [[flow]]
            name = "udp"
            from = "b"
            to = "a"
            transport = "udp"
            rate = "1 Mbit/s"
        "#;
        let scenario = Document::new(text, "two.toml")
            .and_then(|document| document.scenario(&[]))
            .expect("a scenario");
        let layout = scenario.layout(scenario.seed).expect("there are routes");
        let [tcp, udp] = &layout.flows[..] else { panic!("two flows") };
        assert_eq!((&*tcp.from, &*tcp.to, tcp.start.as_secs_f64()), ("a", "b", 2.0));
        assert_eq!(tcp.routes, [[vec![0, 3], vec![2, 1]]]);
        assert_eq!(udp.routes, [[vec![2, 1], vec![]]]);
        // A full packet on the slowest link.
        assert_eq!((tcp.jitter.as_micros(), udp.jitter.as_micros()), (0, 1_200));
    }
}
