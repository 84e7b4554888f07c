//! The check of the fuzz target of a gateway's packets. The test `fuzz_seeds` of the crate
//! `gateway` runs it on all seeds.

/// What hosts and a site's gateway send, as real packets: none is larger than its path, deadlines
/// move, and little waits.
pub fn gateway_packets(data: &[u8]) {
    gateway::testing::packets(data);
}

/// What a gateway's file says: a message, or a gateway whose rules can be written.
pub fn gateway_config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(config) = text.parse::<gateway::GatewayConfig>() {
        let script = gateway::Rules::new(&config).script();
        assert!(script.lines().all(|line| !line.contains('\r')), "{script}");
    }
}
