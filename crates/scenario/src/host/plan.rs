//! A flow in one run: what is drawn from the seed, and the ends that are made of it.

use std::sync::Arc;

use netsim::Route;
use policy::cc::{Controller, Reno, Uncoupled};
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use smallvec::SmallVec;
use tcp::Endpoint;
use units::{Bytes, Seed, SubflowId, Time};

use crate::distribution::Distribution;
use crate::file::{Lines, PtcpSpec, SocketsSpec, TcpSpec, Transport, Workload};
use crate::host::{
    Agent, Application, Connection, Gaps, Pool, Socket, Sockets, Striped, Subflow, UdpSink,
    UdpSource,
};
use crate::registry::Registry;

/// The values of a flow that both ends share. The ends of a flow that arrives in the course of the
/// run are made when it begins; until then there is only this.
#[derive(Clone, Debug)]
pub(crate) struct FlowPlan {
    pub(crate) transport: Arc<Transport>,
    pub(crate) registry: Arc<Registry>,
    /// The size in a trace of arrivals.
    pub(crate) size: Option<Bytes>,
    /// The number of the first connection.
    pub(crate) first: u32,
    pub(crate) start: Time,
    /// When its sender stops.
    pub(crate) stop: Option<Time>,
    /// The forward and the return route of each connection.
    pub(crate) routes: SmallVec<[(Route, Route); 1]>,
    /// The seed of the flow.
    pub(crate) seed: Seed,
    /// Whether it arrives in the course of the run.
    pub(crate) is_arrival: bool,
    /// Whether the times without bytes in order are measured.
    pub(crate) measures_gaps: bool,
}

impl FlowPlan {
    /// The routes of the packets that one end sends.
    fn routes(&self, is_sender: bool) -> impl Iterator<Item = Route> + '_ {
        self.routes.iter().map(move |(there, back)| if is_sender { *there } else { *back })
    }

    /// The times without bytes in order, of a receiver of which they are measured.
    fn gaps(&self, is_sender: bool) -> Option<Box<Gaps>> {
        (self.measures_gaps && !is_sender).then(|| Box::new(Gaps::new(self.start)))
    }

    /// One end of the flow.
    pub(crate) fn agent(&self, is_sender: bool) -> Agent {
        let gaps = self.gaps(is_sender);
        match &*self.transport {
            Transport::Udp(spec) => {
                let seed = self.seed.stream("udp");
                let size = self.size.or_else(|| {
                    let size = spec.size.as_ref()?;
                    let seed = seed.stream("size");
                    Some(size.draw_bytes(&mut Xoshiro256PlusPlus::seed_from_u64(seed.0)))
                });
                if !is_sender {
                    return Agent::UdpSink(UdpSink::new(self.start, size));
                }
                Agent::UdpSource(UdpSource::new(
                    Arc::clone(spec),
                    self.routes[0].0,
                    self.first,
                    self.start,
                    self.stop,
                    size,
                    seed,
                ))
            }
            Transport::Tcp(TcpSpec { workload: Workload::Requests(requests), .. })
                if requests.lines != Lines::One =>
            {
                Agent::Pool(Box::new(Pool::new(self, requests, is_sender).with_gaps(gaps)))
            }
            Transport::Tcp(spec) => Agent::Tcp(self.tcp(spec, is_sender).with_gaps(gaps)),
            Transport::Ptcp(spec) => {
                Agent::Ptcp(Box::new(self.ptcp(spec, is_sender).with_gaps(gaps)))
            }
            Transport::Sockets(spec) => {
                Agent::Sockets(Box::new(self.sockets(spec, is_sender).with_gaps(gaps)))
            }
        }
    }

    /// Whether it is a UDP flow.
    pub(crate) fn is_udp(&self) -> bool {
        matches!(*self.transport, Transport::Udp(_))
    }

    /// When an end acts of itself for the first time.
    pub(crate) fn opens(&self, is_sender: bool) -> Option<Time> {
        let opens = match &*self.transport {
            Transport::Udp(_) => is_sender,
            Transport::Tcp(TcpSpec { workload, .. })
            | Transport::Ptcp(PtcpSpec { workload, .. })
            | Transport::Sockets(SocketsSpec { workload, .. }) => {
                is_sender != workload.is_asked_for()
            }
        };
        opens.then_some(self.start)
    }

    /// The end of sending, of the sender.
    fn stop(&self, is_sender: bool) -> Option<Time> {
        self.stop.filter(|_| is_sender)
    }

    fn application(&self, workload: &Workload, is_sender: bool) -> Application {
        let own = self.size.map(|bytes| Workload::File(Distribution::Constant(bytes.as_f64())));
        let workload = own.as_ref().unwrap_or(workload);
        let mut application = Application::new(workload, self.start, self.seed, is_sender);
        if let Some(stop) = self.stop {
            application.expect_until(stop);
        }
        application
    }

    /// One end of a TCP flow. The sender of the data opens it, except for requests, where their
    /// sender does.
    fn tcp(&self, spec: &TcpSpec, is_sender: bool) -> Connection {
        let opens = self.opens(is_sender);
        let end = if opens.is_some() { Endpoint::client } else { Endpoint::server };
        let subflows = (0..).zip(self.routes(is_sender)).map(|(number, route)| {
            Subflow::new(
                end(config(spec, is_sender), SubflowId(number)),
                route,
                self.first + u32::from(number),
            )
        });
        let controller = if is_sender { self.controller(&spec.controller) } else { plain() };
        let application = self.application(&spec.workload, is_sender);
        Connection::new(controller, subflows, application, opens, self.stop(is_sender))
    }

    /// One end of one of the connections of a [`Pool`]; the client's has its first request at
    /// `first`.
    ///
    /// # Panics
    /// If the flow has no such connections.
    pub(crate) fn line(&self, number: u32, first: Option<Time>) -> Connection {
        let Transport::Tcp(spec) = &*self.transport else { unreachable!("pools are of TCP") };
        let Workload::Requests(requests) = &spec.workload else {
            unreachable!("pools are of requests")
        };
        let is_server = first.is_none();
        let end = if is_server { Endpoint::server } else { Endpoint::client };
        let route = self.routes(is_server).nth(number as usize).expect("it is one of them");
        let endpoint = end(config(spec, is_server), SubflowId(0));
        let controller = if is_server { self.controller(&spec.controller) } else { plain() };
        let seed = self.seed.stream("source").stream(&format!("connection/{number}"));
        Connection::new(
            controller,
            [Subflow::new(endpoint, route, self.first + number)],
            Application::line(requests, first, seed),
            first,
            self.stop(is_server),
        )
    }

    /// One end of a striped connection. The sender of the data opens it, except for requests, where
    /// their sender does.
    fn ptcp(&self, spec: &PtcpSpec, is_sender: bool) -> Striped {
        let opens = self.opens(is_sender);
        let scheduler = self.registry.make_scheduler(&spec.scheduler);
        let scheduler = scheduler.expect("the file's reader checked the name");
        let (end, name): (fn(_, _, _, _) -> _, _) = if opens.is_some() {
            (ptcp::Connection::client, "client")
        } else {
            (ptcp::Connection::server, "server")
        };
        let tokens = Box::new(Xoshiro256PlusPlus::seed_from_u64(self.seed.stream(name).0));
        let connection =
            end(spec.config.clone(), self.controller(&spec.controller), scheduler, tokens);
        let application = self.application(&spec.workload, is_sender);
        let routes = self.routes(is_sender).collect();
        Striped::new(
            connection,
            routes,
            self.first,
            application,
            opens,
            self.stop(is_sender),
            self.is_arrival,
        )
        .with_clock(spec.clock.filter(|_| !is_sender))
    }

    /// One end of a stream that is striped over sockets. The sender of the data opens them, except
    /// for requests, where their sender does.
    fn sockets(&self, spec: &SocketsSpec, is_sender: bool) -> Sockets {
        let config = &spec.config;
        let opens = self.opens(is_sender);
        let end = if opens.is_some() { Endpoint::client } else { Endpoint::server };
        let sockets = (self.first..).zip(self.routes(is_sender)).map(|(number, route)| {
            let controller = if is_sender { self.controller(&spec.controller) } else { plain() };
            Socket::new(
                controller,
                Subflow::new(end(Arc::clone(config), SubflowId(0)), route, number),
            )
        });
        let application = self.application(&spec.workload, is_sender);
        Sockets::new(
            sockets.collect(),
            config.receive_buffer,
            application,
            opens,
            self.stop(is_sender),
        )
    }

    /// A new controller of this name.
    fn controller(&self, name: &str) -> Box<dyn Controller> {
        self.registry.make_controller(name).expect("the file's reader checked the name")
    }
}

/// A controller for ends that only receive.
fn plain() -> Box<dyn Controller> {
    Box::new(Uncoupled::new(Reno::default()))
}

/// The configuration of one end. The receiver's application lets less than the buffer be offered.
fn config(spec: &TcpSpec, is_sender: bool) -> Arc<tcp::Config> {
    if is_sender && !spec.config.receive_windows.is_empty() {
        return Arc::new(tcp::Config { receive_windows: Vec::new(), ..(*spec.config).clone() });
    }
    Arc::clone(&spec.config)
}
