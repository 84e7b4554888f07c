//! The memory that a list of files may take.

use crate::Error;

/// Reserves memory for a number of bytes, which may be zero; the error ends the walk. Called for
/// every entry that is found, and every few bytes that are hashed.
pub(crate) type MemoryBudget<'a> = &'a mut dyn FnMut(usize) -> Result<(), Error>;
