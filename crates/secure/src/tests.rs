//! Two ends and what is between them; strangers at a listener; a session's keys.

mod ends;
mod flights;
mod links;
mod peers;
mod resets;
mod session;
mod strangers;
