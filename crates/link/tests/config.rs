//! Network files: what they mean, and what is said about a wrong one.

use std::path::Path;

use link::config::{Carry, Network, TCP_PAYLOAD_SHARE, Unreachable};
use link::{GilbertElliott, Limit, Loss};
use units::{Bytes, Rate, Span};

const LINK: &str = "[[link]]\nname = 'wifi'\nrate = '50 Mbit/s'\ndelay = '5 ms'\nqueue = '128 KiB'\n";

fn parse(keys: &str) -> Result<Network, String> {
    let text = format!("name = 'test'\n{LINK}{keys}\n");
    Network::parse(&text, "test.toml", None).map_err(|error| error.to_string())
}

fn error(keys: &str) -> String {
    parse(keys).expect_err("it is wrong")
}

#[test]
fn every_key_has_its_meaning() {
    let network = parse(
        "mtu = 9000\nloss = { good_to_bad = 0.1, bad_to_good = 0.5 }\nduplicate = 0.01\ncorrupt = 1\n\
         reorder = { probability = 0.02, delay = '100 ms' }\nschedule = [{ at = '1 s', rate = '0' }]\n\
         blackout = [{ from = '2 s', to = '3 s', every = '10 s' }]\nnat_idle = '2 s'\nunreachable = 'icmp'\n\
         up = { rate = '10 Mbit/s', carry = 'no-payload' }\ndown = { queue = '100 packets', blackhole_above = 1280, loss = 0 }",
    )
    .expect("all right");
    let link = &network.links[0];
    assert_eq!(
        (link.device_mtu, link.nat_idle, link.unreachable),
        (9_000, Some(Span::from_secs(2)), Some(Unreachable::Icmp))
    );
    let (up, down) = (&link.up.profile, &link.down.profile);
    assert_eq!((up.rate.base, down.rate.base), (Rate::mbit(10), Rate::mbit(50)));
    assert_eq!((up.queue, down.queue), (Limit::Bytes(Bytes::kib(128)), Limit::Packets(100)));
    assert_eq!((up.mtu, down.mtu), (Some(Bytes(9_000)), Some(Bytes(1_280))));
    let model = GilbertElliott { good_to_bad: 0.1, bad_to_good: 0.5, good: 0.0, bad: 1.0 };
    assert_eq!(up.loss, Loss::GilbertElliott(model));
    assert_eq!(down.loss, Loss::None);
    assert_eq!((link.up.carry, link.down.carry), (Carry::NoPayload, Carry::All));
    assert_eq!(up.rate.changes[0].rate, Rate::ZERO);
}

#[test]
fn errors_say_where_and_what_instead() {
    for (keys, wanted) in [
        ("dealy = '5 ms'", "test.toml:7: wifi.dealy: no such key; did you mean `delay`?"),
        ("colour = 'red'", "test.toml:7: wifi.colour: no such key"),
        ("loss = 1.5", "test.toml:7: link.wifi.loss: wants a number from 0 to 1"),
        ("mtu = '1500'", "test.toml:7: link.wifi.mtu: wants a whole number, not string"),
        ("mtu = 576", "test.toml:7: link.wifi.mtu: wants 1280 to 65535 bytes"),
        ("up = { rate = '5 parsecs' }", "test.toml:7: link.wifi.up.rate: '5 parsecs' is not a rate"),
        ("up = { rtae = '5 Mbit/s' }", "did you mean `rate`?"),
        ("up = { mtu = 1400 }", "test.toml:7: link.wifi.up.mtu: no such key"),
        ("carry = 'no-paylod'", "'no-paylod' is not known here; did you mean 'no-payload'?"),
        ("shares = 'lte'", "test.toml:7: link.wifi.shares: 'lte' is not known here"),
        ("blackout = [{ from = '2 s', to = '1 s' }]", "link.wifi.blackout.to: is not later than `from`"),
        (
            "schedule = [{ at = '2 s', rate = '0' }, { at = '1 s', rate = '0' }]",
            "is not later than the entry before it",
        ),
        ("schedule = [{ at = { fraction = 0.9, rate = '48 Mbit/s' }, rate = '0' }]", "the network says no `bytes`"),
        ("reorder = { probability = 0.1 }", "link.wifi.reorder.delay: is missing"),
        ("redraw = { every = '0 s', from = 0, to = 1 }", "link.wifi.redraw.every: wants more than no time"),
        ("rate =", "test.toml:7"),
    ] {
        let text = error(keys);
        let wanted = wanted.replace(": wifi.", ": link.");
        assert!(text.contains(&wanted), "{keys}\n  says   {text}\n  wanted {wanted}");
    }
}

#[test]
fn names_must_be_devices_and_unique() {
    let twice = format!("name = 'test'\n{LINK}{LINK}");
    let error = Network::parse(&twice, "test.toml", None).expect_err("two of a name").to_string();
    assert!(error.contains("is the name of an earlier link too"), "{error}");
    let long = format!("name = 'test'\n{}", LINK.replace("wifi", "a-name-that-is-too-long"));
    assert!(Network::parse(&long, "test.toml", None).is_err());
    assert!(
        Network::parse("name = 'test'\n", "test.toml", None)
            .expect_err("no links")
            .to_string()
            .contains("link: is missing")
    );
}

fn bench(name: &str, bytes: Option<Bytes>) -> Network {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/networks").join(format!("{name}.toml"));
    Network::read(&path, bytes).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_network_of_the_benchmarks_is_read() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/networks");
    let mut count = 0;
    for entry in std::fs::read_dir(directory).expect("the folder is there") {
        let path = entry.expect("readable").path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let network = Network::read(&path, None).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(path.file_stem().and_then(|stem| stem.to_str()), Some(network.name.as_str()));
            assert!(network.ideal(Bytes(40_000_000), TCP_PAYLOAD_SHARE).is_some(), "{}", network.name);
            count += 1;
        }
    }
    assert!(count >= 24, "{count}");
}

#[test]
fn the_change_follows_the_amount() {
    let at = |bytes| bench("sar2", bytes).links[2].up.profile.rate.changes[0].at;
    assert_eq!(at(None), Span::from_secs(6));
    assert_eq!(at(Some(Bytes(4_000_000))), Span::from_millis(600));
}

#[test]
fn ideal_times() {
    let seconds = |name, bytes| bench(name, None).ideal(Bytes(bytes), 1.0).expect("finite").as_secs_f64();
    assert!((seconds("equal", 40_000_000) - 3.2).abs() < 1e-6);
    assert!((seconds("sar2", 40_000_000) - (6.0 + 32.0 / 26.0)).abs() < 1e-6);
    // 2.13 s of 50 Mbit/s, 10.14 s of 20, and the rest of 50 again.
    assert!((seconds("blackout", 40_000_000) - (12.27 + (320.0 - 2.13 * 50.0 - 10.14 * 20.0) / 50.0)).abs() < 1e-6);
    // A second link that carries nothing adds nothing.
    assert!((seconds("never-worse-accepts-then-nothing", 40_000_000) - 6.4).abs() < 1e-6);
    assert!((seconds("never-worse-same-bottleneck", 40_000_000) - 6.4).abs() < 1e-6);
}
