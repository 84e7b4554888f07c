//! The lines between `cp` and its far side. The test `fuzz_seeds` of the program runs it on all
//! seeds.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

#[expect(dead_code, reason = "limits and marks that the program uses")]
#[path = "../../crates/anabranch/src/commands/cp/messages.rs"]
mod messages;

/// A line of either side: it is no message, or one that means the same when it is written and read
/// again. Returns the number of messages.
pub fn ssh_lines(data: &[u8]) -> usize {
    let messages = data.split(|&byte| byte == b'\n').map(|line| {
        usize::from(survives::<messages::Hello>(line))
            + usize::from(survives::<messages::Version>(line))
            + usize::from(survives::<messages::Request>(line))
            + usize::from(survives::<messages::Answer>(line))
    });
    messages.sum()
}

fn survives<T: Serialize + DeserializeOwned + Debug>(line: &[u8]) -> bool {
    let Ok(message) = serde_json::from_slice::<T>(line) else { return false };
    let written = serde_json::to_vec(&message).expect("texts and numbers have a JSON form");
    assert!(!written.contains(&b'\n'), "one line");
    let again: T = serde_json::from_slice(&written).expect("what was written can be read");
    assert_eq!(format!("{message:?}"), format!("{again:?}"));
    true
}
