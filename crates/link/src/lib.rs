//! One link as a state machine: rate, delay, queue, loss and their schedules.
