//! Scenario files: networks, flows and measures in TOML, run in the simulator.

pub mod pcap;
