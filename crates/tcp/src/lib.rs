//! A plain TCP endpoint as a state machine: baseline and foreground of simulations.
