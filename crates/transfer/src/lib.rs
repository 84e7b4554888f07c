//! A file transfer over several paths as a state machine.
