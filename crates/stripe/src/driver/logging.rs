//! What a connection's log is told of the connection and its paths.

use crate::RouteId;
use ptcp::Event;
use units::{SubflowId, Time};

use super::link::Link;
use super::sockets::Sockets;
use crate::qlog::PathEnds;

impl Link {
    /// The connection begins, over its first path.
    pub(super) fn log_start(&mut self, now: Time, sockets: &Sockets) {
        let Some(ends) = self.path_ends(SubflowId(0), sockets) else { return };
        if let Some(log) = &mut self.log {
            log.started(now, ends.local, ends.remote);
        }
    }

    /// The state machine tells of a path.
    pub(super) fn log_event(&mut self, now: Time, event: Event, sockets: &Sockets) {
        let opened = match event {
            Event::PathOpened { path } => self.path_ends(path, sockets),
            _ => None,
        };
        let Some(log) = &mut self.log else { return };
        match (event, opened) {
            (Event::PathOpened { path }, Some(ends)) => log.path_opened(now, path, ends),
            (Event::PathSilent { path }, _) => log.path_silent(now, path),
            (Event::PathBack { path }, _) => log.path_back(now, path),
            _ => {}
        }
    }

    /// A path has other addresses.
    pub(super) fn log_move(&mut self, now: Time, path: SubflowId, sockets: &Sockets) {
        let Some(ends) = self.path_ends(path, sockets).filter(|_| self.log.is_some()) else {
            return;
        };
        if let Some(log) = &mut self.log {
            log.path_moved(now, path, ends.local, ends.remote);
        }
    }

    /// The socket of a route fails.
    pub(super) fn log_failure(&mut self, now: Time, route: RouteId, reason: &str) {
        if let (Some(log), Some(route)) = (&mut self.log, self.routes.get(&route)) {
            for path in &route.paths {
                log.path_failing(now, *path, reason);
            }
        }
    }

    /// What was lost, and what limits the paths.
    pub(super) fn log_paths(&mut self) {
        let Some(log) = &mut self.log else { return };
        let now = self.latest;
        while let Some(lost) = self.core.poll_lost() {
            log.lost(now, lost);
        }
        for path in self.core.paths() {
            if let Some(metrics) = self.core.path_metrics(path) {
                log.metrics(now, path, metrics);
            }
        }
    }

    fn path_ends(&self, path: SubflowId, sockets: &Sockets) -> Option<PathEnds> {
        let route = self.routes.get(self.route_of.get(&path)?)?;
        let (name, local) = (route.name.text.clone(), route.local(sockets));
        Some(PathEnds { route: route.name.number, name, local, remote: route.remote })
    }
}
