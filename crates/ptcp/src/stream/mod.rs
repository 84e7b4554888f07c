pub(crate) mod outgoing;
pub(crate) mod recv;
pub(crate) mod send;
