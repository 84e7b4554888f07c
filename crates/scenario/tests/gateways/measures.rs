//! What is measured of flows and paths, and traced.

use scenario::RunOptions;
use scenario::watch::Capture;

use super::{BOTH, PAIR, of_flow, read, run};

#[test]
fn paths_have_samples_for_each_direction_that_flows_send_in() {
    let names = |text: &str, settings: &[&str]| -> Vec<String> {
        let series = run(text, settings).series.expect("it was asked for");
        series.paths.iter().map(|(name, _)| name.to_string()).collect()
    };
    assert_eq!(names(PAIR, &[BOTH, "duration=6 s"]), ["site/0/up", "site/1/up"]);
    assert!(names(PAIR, &["flow.backup.gateway=off", "duration=6 s"]).is_empty());
}

#[test]
fn losses_and_delays_are_those_of_the_whole_way() {
    let lossy = PAIR.replacen("delay = \"20 ms\"", "delay = \"20 ms\"\nloss = 0.02", 1);
    let settings =
        ["measure=[\"delay\"]", "flow.backup.source={ stream = \"500 kbit/s\" }", "duration=60 s"];
    let lost = |seed| {
        let seed = format!("seed={seed}");
        let settings = [&settings[..], &[&seed]].concat();
        of_flow(&run(&lossy, &settings), "backup", "loss")
    };
    let mean = (1..=8).map(lost).sum::<f64>() / 8.0;
    assert!(mean > 0.016 && mean < 0.024, "{mean}");
    let direct = [&settings[..], &["flow.backup.gateway=off"]].concat();
    let [direct, through] = [&direct[..], &settings[..]].map(|settings| {
        let run = run(PAIR, settings);
        ["delay_p50", "delay_max"].map(|name| of_flow(&run, "backup", name))
    });
    // 22 ms of propagation; packets of 677 bytes in the mean, and the jitter of the sender.
    for (direct, through) in direct.into_iter().zip(through) {
        assert!(direct > 22.0 && through > direct && through < direct + 5.0, "{direct}, {through}");
    }
}

#[test]
fn the_ideal_counts_all_legs_and_the_tunnel() {
    let ideal = |settings: &[&str]| {
        let more = ["flow.backup.source={ file = \"1 MB\" }", "warmup=0 s"];
        let run = run(PAIR, &[settings, &more].concat());
        run.requests[0].ideal.expect("it is known")
    };
    let direct = ideal(&["flow.backup.gateway=off"]);
    let through = ideal(&[]);
    // 38 bytes more for the SYN and each packet of data, 29 for the answer to the SYN.
    let packets = 1_000_000_f64 / 1_448.0;
    let more = (38.0 * (1.0 + packets.ceil()) + 29.0) * 8.0 / 10e6;
    assert!((through - direct - more).abs() < 1e-9, "{through} - {direct} is not {more}");
    assert!((ideal(&["gateway.site.overhead=0 B"]) - direct).abs() < 1e-9);
    // Two paths of equal rates.
    let both = ideal(&[BOTH]);
    assert!(both < 0.6 * through && both > 0.5 * through, "{both} of {through}");
}

#[test]
fn traces_change_nothing_and_show_tunnels() {
    let scenario = read(PAIR, &[BOTH, "duration=6 s"]);
    let plain = scenario.run(scenario.seed, RunOptions::default()).expect("it runs");
    let mut octets = Vec::new();
    let built = scenario.build(scenario.seed).expect("it is built");
    let mut capture = Capture::new(&mut octets, &built).expect("memory takes all");
    let traced = scenario.run_traced(scenario.seed, RunOptions::default(), &mut capture);
    assert_eq!(traced.expect("it runs").digest, plain.digest);
    capture.finish().expect("memory takes all");

    let word = |at: usize| u32::from_be_bytes(octets[at..at + 4].try_into().unwrap()) as usize;
    let [mut data, mut returned, mut reports, mut plain] = [0; 4];
    let mut at = 24;
    while at < octets.len() {
        let (captured, original) = (word(at + 8), word(at + 12));
        let packet = &octets[at + 16..at + 16 + captured];
        at += 16 + captured;
        if packet[9] == 6 {
            plain += 1;
            continue;
        }
        assert_eq!((packet[9], &packet[20..24]), (17, &[16, 181, 16, 181][..]), "UDP, our port");
        let length = usize::from(u16::from_be_bytes([packet[24], packet[25]]));
        assert_eq!(length + 20, original);
        let (header, inner) = wire::harp::parse(&packet[28..]).expect("it is a message");
        match header {
            wire::harp::Header::Data(stamp) => {
                assert!(stamp.path < 2);
                data += 1;
            }
            wire::harp::Header::Return => returned += 1,
            wire::harp::Header::Probe(..) => {}
            wire::harp::Header::Report(flow, _) => {
                assert_eq!(flow, 0);
                reports += 1;
            }
        }
        if !inner.is_empty() {
            let length = usize::from(u16::from_be_bytes([inner[2], inner[3]]));
            let before = packet.len() - inner.len();
            assert_eq!((inner[0], inner[9], length + before), (0x45, 6, original), "TCP inside");
        }
    }
    assert!(data > 100 && returned > 50 && reports > 10, "{data}, {returned}, {reports}");
    assert!(plain >= data, "what the sender sent is there too: {plain}, {data}");
}
