//! What a seed makes of a scenario, for those who carry out its flows themselves: ends, starts and
//! routes.

use std::sync::Arc;

use hashbrown::HashMap;
use netsim::{LinkId, Route, TopologyError};
use units::{Bytes, Seed, Span, Time};

use super::{Built, Plans, drawn_ends};
use crate::file::{FlowSpec, Scenario, Transport, Workload};
use crate::host::{GatewayPlan, Passenger, file_size};

/// The flows of a scenario, in the order of the file.
#[derive(Clone, Debug)]
pub struct RunLayout {
    /// Each flow.
    pub flows: Vec<FlowLayout>,
    /// Each pair of gateways; `None` if no flow goes through it.
    pub gateways: Vec<Option<GatewayLayout>>,
}

/// A pair of gateways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayLayout {
    /// The routes of each path, from the entry to the exit and back, as numbers of links'
    /// directions.
    pub paths: Vec<[Vec<usize>; 2]>,
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
    /// no way back. Of a flow through gateways they lead from its hosts to the gateways nearer to
    /// them.
    pub routes: Vec<[Vec<usize>; 2]>,
    /// Of a flow through gateways: the routes from these to the sender, and to the receiver.
    pub inside: Option<[Vec<usize>; 2]>,
    /// The size of its file, if its source is one.
    pub file: Option<Bytes>,
}

impl Scenario {
    /// What the run with this seed has of hosts, starts, sizes and routes.
    ///
    /// # Errors
    /// If there is no route for a flow.
    pub fn layout(&self, seed: Seed) -> Result<RunLayout, TopologyError> {
        let (built, Plans { flows: plans, gateways }) = self.build_with_plans(seed)?;
        let directions: HashMap<LinkId, usize> = (built.links.iter().enumerate())
            .flat_map(|(link, (up, down))| [(*up, 2 * link), (*down, 2 * link + 1)])
            .collect();
        let slowest = self.slowest_packet();
        let passengers = gateways.iter().enumerate().filter_map(|(number, gateway)| {
            let of =
                move |passenger: &Passenger| ((number, passenger.connection), passenger.inside);
            Some(gateway.as_ref()?.passengers.iter().map(of))
        });
        let inside: HashMap<(usize, u32), [Route; 2]> = passengers.flatten().collect();
        let flows = self.flows.iter().zip(&plans).map(|(flow, plan)| {
            let [from, to] = drawn_ends(flow, plan.seed);
            let links = |route: Route| route_links(&built, &directions, route);
            let routes = plan.routes.iter().map(|(there, back)| {
                [links(*there), if plan.is_udp() { Vec::new() } else { links(*back) }]
            });
            FlowLayout {
                from: from.into(),
                to: to.into(),
                start: plan.start,
                jitter: flow.jitter.unwrap_or(slowest),
                routes: routes.collect(),
                inside: flow.gateway.map(|through| {
                    let inside = inside[&(through.gateway, plan.first)];
                    through.sides().map(|side| links(inside[side]))
                }),
                file: file(flow, plan.seed),
            }
        });
        let flows = flows.collect();
        let of = |gateway: &Arc<GatewayPlan>| GatewayLayout {
            paths: (gateway.paths.iter())
                .map(|ways| ways.map(|route| route_links(&built, &directions, route)))
                .collect(),
        };
        let gateways = gateways.iter().map(|gateway| gateway.as_ref().map(of)).collect();
        Ok(RunLayout { flows, gateways })
    }
}

/// The size of a flow's file, if its source is one; `seed` is the flow's.
fn file(flow: &FlowSpec, seed: Seed) -> Option<Bytes> {
    let workload = match &*flow.transport {
        Transport::Tcp(spec) => &spec.workload,
        Transport::Ptcp(spec) => &spec.workload,
        Transport::Sockets(spec) => &spec.workload,
        Transport::Udp(_) => return None,
    };
    let Workload::File(size) = workload else { return flow.size };
    Some(flow.size.unwrap_or_else(|| file_size(size, seed)))
}

fn route_links(built: &Built, directions: &HashMap<LinkId, usize>, route: Route) -> Vec<usize> {
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
        assert_eq!((tcp.file, tcp.inside.as_ref(), layout.gateways.len()), (None, None, 0));
    }

    /// Routes of a flow that goes through gateways from the exit to the entry, over links whose
    /// numbers are in the order of the file.
    #[test]
    fn a_layout_has_the_routes_around_gateways() {
        let link = |name: &str, a: &str, b: &str| {
            format!(
                "[[link]]\nname = '{name}'\nbetween = ['{a}', '{b}']\nrate = '10 Mbit/s'\ndelay \
                 = '10 ms'\nqueue = '20 packets'\n"
            )
        };
        let text = format!(
            "name = 'site'\nduration = '10 s'\n{}{}{}{}{}",
            link("near", "a", "e"),
            link("one", "e", "x"),
            link("two", "e", "x"),
            link("far", "x", "b"),
            "[[gateway]]\nname = 'site'\nentry = 'e'\nexit = 'x'\npaths = [['two'], ['one']]\n\
             [[gateway]]\nname = 'unused'\nentry = 'e'\nexit = 'x'\n\
             [[flow]]\nname = 'backup'\nfrom = 'b'\nto = 'a'\ngateway = 'site'\n\
             source = { file = { uniform = { from = '1 kB', to = '2 kB' } } }\n"
        );
        let scenario = Document::new(&text, "site.toml")
            .and_then(|document| document.scenario(&[]))
            .expect("a scenario");
        let layout = scenario.layout(scenario.seed).expect("there are routes");
        let paths = vec![[vec![4], vec![5]], [vec![2], vec![3]]];
        assert_eq!(layout.gateways, [Some(super::GatewayLayout { paths }), None]);
        let backup = &layout.flows[0];
        // To the exit and to the entry, and from there to both hosts.
        assert_eq!(backup.routes, [[vec![7], vec![0]]]);
        assert_eq!(backup.inside, Some([vec![6], vec![1]]));
        let size = backup.file.expect("its source is a file").0;
        assert!((1_000..=2_000).contains(&size), "{size}");
    }
}
