//! Pairs of gateways, and the flows that go through them.

use std::sync::Arc;

use hashbrown::HashMap;
use netsim::{HostId, Route, Topology, TopologyError};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::Seed;

use crate::build::GatewayEnds;
use crate::file::{FlowSpec, GatewaySpec, Scenario, TcpSpec, Through, Transport};
use crate::host::{GatewayPlan, Passenger};

/// What each pair is made of; `None` if no flow goes through it.
pub(super) type GatewayPlans = Vec<Option<Arc<GatewayPlan>>>;

/// The gateways at each host that has some: what they are made of, and 0 for an entry, 1 for an
/// exit.
pub(super) type Seats = HashMap<HostId, Vec<(Arc<GatewayPlan>, usize)>>;

impl Scenario {
    /// For each pair of gateways that flows go through, an empty list; their nodes become hosts.
    /// Where no flow goes through, the nodes are routers as others.
    pub(super) fn no_passengers<'a>(
        &'a self,
        hosts: &mut HashMap<&'a str, bool>,
    ) -> Vec<Option<Vec<Passenger>>> {
        let mut passengers = vec![None; self.gateways.len()];
        for through in self.flows.iter().filter_map(|flow| flow.gateway) {
            if passengers[through.gateway].is_none() {
                passengers[through.gateway] = Some(Vec::new());
                hosts.extend(self.gateways[through.gateway].ends.iter().map(|end| (&**end, true)));
            }
        }
        passengers
    }

    /// The gateways with their passengers, and where they are; `agents_at` is the number of agents
    /// at a host without them, `seed` that of the run.
    pub(super) fn seats(
        &self,
        passengers: Vec<Option<Vec<Passenger>>>,
        seed: Seed,
        agents_at: impl Fn(HostId) -> usize,
        topology: &mut Topology,
    ) -> Result<(Vec<Option<GatewayEnds>>, Seats, GatewayPlans), TopologyError> {
        let mut gateways = vec![None; self.gateways.len()];
        let mut plans = vec![None; self.gateways.len()];
        let mut seats = Seats::new();
        for (number, passengers) in passengers.into_iter().enumerate() {
            let Some(passengers) = passengers else { continue };
            let spec = &self.gateways[number];
            let plan = Arc::new(self.gateway_plan(spec, passengers, seed, topology)?);
            let mut seat = |side: usize| {
                let host = topology.host_id(&spec.ends[side])?;
                let at_host = seats.entry(host).or_default();
                at_host.push((Arc::clone(&plan), side));
                Ok((host, agents_at(host) + at_host.len() - 1))
            };
            gateways[number] = Some([seat(0)?, seat(1)?]);
            plans[number] = Some(plan);
        }
        Ok((gateways, seats, plans))
    }

    /// A pair of gateways, and the connections that go through it; `seed` is the run's.
    fn gateway_plan(
        &self,
        spec: &GatewaySpec,
        passengers: Vec<Passenger>,
        seed: Seed,
        topology: &mut Topology,
    ) -> Result<GatewayPlan, TopologyError> {
        let seed = seed.stream(&format!("gateway/{}", spec.name));
        let ends = spec.ends.each_ref().map(|end| &**end);
        let paths = self.routes(ends, &spec.paths, seed, topology)?;
        let [entry, exit] = ends;
        let normal = [
            self.shortest([entry, exit], seed, ("there", 0), topology)?,
            self.shortest([exit, entry], seed, ("back", 0), topology)?,
        ];
        Ok(GatewayPlan {
            config: spec.config,
            overhead: spec.overhead,
            paths: paths.into_iter().map(|(there, back)| [there, back]).collect(),
            normal,
            passengers,
        })
    }

    /// The routes from the hosts of a flow to the gateways nearer to them; `seed` is the flow's.
    pub(super) fn to_gateways(
        &self,
        through: Through,
        [from, to]: [&str; 2],
        seed: Seed,
        topology: &mut Topology,
    ) -> Result<(Route, Route), TopologyError> {
        let gateways = &self.gateways[through.gateway].ends;
        let [near, far] = through.sides().map(|side| &*gateways[side]);
        let there = self.shortest([from, near], seed, ("there", 0), topology)?;
        Ok((there, self.shortest([to, far], seed, ("back", 0), topology)?))
    }

    /// The routes to the hosts of a flow from the entry and from the exit; `seed` is the flow's.
    pub(super) fn inside(
        &self,
        through: Through,
        [from, to]: [&str; 2],
        seed: Seed,
        topology: &mut Topology,
    ) -> Result<[Route; 2], TopologyError> {
        let [entry, exit] = &self.gateways[through.gateway].ends;
        let [first, second] = if through.is_reverse { [to, from] } else { [from, to] };
        let at_entry = self.shortest([entry, first], seed, ("entry", 0), topology)?;
        Ok([at_entry, self.shortest([exit, second], seed, ("exit", 0), topology)?])
    }
}

/// The connections of a flow, from number `first` on; `seed` is the flow's.
pub(super) fn passengers(
    flow: &FlowSpec,
    first: u32,
    inside: [Route; 2],
    seed: Seed,
) -> impl Iterator<Item = Passenger> {
    let Transport::Tcp(TcpSpec { config, workload, .. }) = &*flow.transport else {
        unreachable!("the file's reader lets only TCP through gateways")
    };
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed.stream("initial").0);
    let mss = u16::try_from(config.mss.0).expect("the file's reader bounds it");
    let scale = Passenger::scale_for(config.receive_buffer);
    let count = usize::try_from(workload.connections()).expect("the file's reader bounds it");
    (first..).take(count).map(move |connection| Passenger {
        connection,
        inside,
        // Up to 16 MiB before the end of the numbers: connections of some size wrap.
        initial: [0; 2].map(|_| u32::MAX - (rng.next_u32() >> 8)),
        scale,
        mss,
    })
}

const _: () = assert!(size_of::<Passenger>() <= 24, "there may be a million");
