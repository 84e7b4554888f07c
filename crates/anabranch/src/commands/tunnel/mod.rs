//! `tunnel` and `serve-tunnel`: TCP connections of other programs over every path.

pub(crate) mod far;
pub(crate) mod near;

use events::Events;
use peer::Timetable;
use peer::striped::follow_timetable;
use stripe::TotalRate;
use tunnel::TunnelError;

use crate::exit::Failure;

/// Runs a side, and keeps its bound to the timetable meanwhile.
pub(super) async fn bounded<T>(
    table: Option<&Timetable>,
    total: Option<&TotalRate>,
    events: &Events,
    side: impl Future<Output = T>,
) -> T {
    let follow = async {
        match (table, total) {
            (Some(table), Some(total)) => {
                let set = |rate| {
                    let is_other = total.rate() != rate;
                    total.set(rate);
                    is_other
                };
                follow_timetable(table, set, |text| events.notice(text)).await;
            }
            _ => std::future::pending().await,
        }
    };
    tokio::select! {
        ended = side => ended,
        () = follow => unreachable!("it is followed for ever"),
    }
}

/// The failure of a command that a signal stopped.
pub(super) fn stopped(signal: u8) -> Failure {
    Failure::Message { code: 128 + signal, text: "stopped".into() }
}

/// The failure of a tunnel.
fn failure(error: TunnelError) -> Failure {
    match error {
        TunnelError::Peer(error) => error.into(),
        error => Failure::Message { code: error.exit_code(), text: error.to_string() },
    }
}
