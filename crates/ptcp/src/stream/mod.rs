pub(crate) mod recv;
pub(crate) mod send;
