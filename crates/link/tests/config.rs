//! Network files: their meaning, and messages about mistakes.

use std::num::NonZeroU64;
use std::path::Path;

use link::config::{Carry, Network, TCP_PAYLOAD_SHARE, Unreachable};
use link::{
    Aqm, Blackout, Bucket, Change, CoDel, Dated, DualPi2, FqCoDel, GilbertElliott, Jitter, Limit,
    Loss, Red, Spread, Threshold,
};
use units::{Bytes, Rate, Span};

const LINK: &str =
    "[[link]]\nname = 'wifi'\nrate = '50 Mbit/s'\ndelay = '5 ms'\nqueue = '128 KiB'\n";

fn parse(keys: &str) -> Result<Network, String> {
    let text = format!("name = 'test'\n{LINK}{keys}\n");
    Network::parse(&text, "test.toml", None).map_err(|error| error.to_string())
}

fn error(keys: &str) -> String {
    parse(keys).expect_err("it is wrong")
}

#[test]
fn every_key_is_read() {
    let network = parse(
        "mtu = 9000\nloss = { good_to_bad = 0.1, bad_to_good = 0.5 }\nduplicate = 0.01\ncorrupt = \
         1\n\
         reorder = { probability = 0.02, delay = '100 ms' }\nschedule = [{ at = '1 s', rate = '0' \
         }]\n\
         blackout = [{ from = '2 s', to = '3 s', every = '10 s' }]\nnat_idle = '2 s'\nunreachable \
         = 'icmp'\n\
         up = { rate = '10 Mbit/s', carry = 'no-payload' }\ndown = { queue = '100 packets', \
         blackhole_above = 1280, loss = 0 }",
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
    let every =
        parse("loss = { every = 10000 }").expect("all right").links.remove(0).up.profile.loss;
    assert_eq!(every, Loss::Every(NonZeroU64::new(10_000).expect("not zero")));
    assert_eq!(down.loss, Loss::None);
    assert_eq!((link.up.carry, link.down.carry), (Carry::NoPayload, Carry::All));
    assert_eq!(up.rate.changes[0].rate, Rate::ZERO);
}

#[test]
fn errors_have_a_location_and_a_remedy() {
    for (keys, wanted) in [
        ("dealy = '5 ms'", "test.toml:7: wifi.dealy: no such key; did you mean `delay`?"),
        ("colour = 'red'", "test.toml:7: wifi.colour: no such key"),
        ("loss = { every = 0 }", "link.wifi.loss.every: wants a whole number of packets"),
        ("loss = { every = 5, bad = 1 }", "wifi.loss.bad: no such key"),
        ("loss = 1.5", "test.toml:7: link.wifi.loss: wants a number from 0 to 1"),
        ("mtu = '1500'", "test.toml:7: link.wifi.mtu: wants a whole number, not string"),
        ("mtu = 576", "test.toml:7: link.wifi.mtu: wants 1280 to 65535 bytes"),
        (
            "up = { rate = '5 parsecs' }",
            "test.toml:7: link.wifi.up.rate: '5 parsecs' is not a rate",
        ),
        ("up = { rtae = '5 Mbit/s' }", "did you mean `rate`?"),
        ("up = { mtu = 1400 }", "test.toml:7: link.wifi.up.mtu: no such key"),
        ("carry = 'no-paylod'", "'no-paylod' is not known here; did you mean 'no-payload'?"),
        ("shares = 'lte'", "test.toml:7: link.wifi.shares: 'lte' is not known here"),
        (
            "blackout = [{ from = '2 s', to = '1 s' }]",
            "link.wifi.blackout.to: is not later than `from`",
        ),
        (
            "schedule = [{ at = '2 s', rate = '0' }, { at = '1 s', rate = '0' }]",
            "is not later than the entry before it",
        ),
        (
            "schedule = [{ at = { fraction = 0.9, rate = '48 Mbit/s' }, rate = '0' }]",
            "the network says no `bytes`",
        ),
        (
            "schedule = [{ at = '1 s' }]",
            "link.wifi.schedule: changes nothing: wants `rate`, `delay`",
        ),
        ("schedule = [{ at = '1 s', delya = '1 ms' }]", "did you mean `delay`?"),
        ("schedule = [{ at = '1 s', loss = 2 }]", "schedule.loss: wants a number from 0 to 1"),
        ("schedule = [{ at = '1 s', state = 'off' }]", "schedule.state: 'off' is not known here"),
        ("schedule = [{ at = '1 s', state = 'up' }]", "schedule.state: is its state already"),
        ("aqm = 'step'", "link.wifi.aqm: wants a threshold: { kind = "),
        ("aqm = { kind = 'step' }", "link.wifi.aqm.threshold: is missing"),
        (
            "aqm = { kind = 'step', threshold = '5' }",
            "link.wifi.aqm.threshold: wants packets, bytes or a time",
        ),
        ("aqm = { kind = 'step', treshold = '5 ms' }", "did you mean `threshold`?"),
        ("reorder = { probability = 0.1 }", "link.wifi.reorder.delay: is missing"),
        (
            "redraw = { every = '0 s', from = 0, to = 1 }",
            "link.wifi.redraw.every: wants more than no time",
        ),
        ("rate =", "test.toml:7"),
        (
            "aqm = 'codle'",
            "test.toml:7: link.wifi.aqm: 'codle' is not known here; did you mean 'codel'?",
        ),
        ("aqm = { min = 5 }", "link.wifi.aqm.kind: is missing"),
        ("aqm = { kind = 'red', mim = 5 }", "wifi.aqm.mim: no such key; did you mean `min`?"),
        ("aqm = { kind = 'codel', quantum = 5 }", "wifi.aqm.quantum: no such key"),
        (
            "aqm = { kind = 'red', min = 5, max = 4 }",
            "test.toml:7: link.wifi.aqm.max: `max` wants to be more than `min`",
        ),
        ("aqm = { kind = 'red', min = '5 KiB' }", "link.wifi.aqm.min: wants a number of packets"),
        ("aqm = { kind = 'red', ecn = 1 }", "link.wifi.aqm.ecn: wants true or false, not integer"),
        (
            "aqm = { kind = 'fq-codel', queues = 0 }",
            "link.wifi.aqm.queues: wants 1 to 65536 queues",
        ),
        ("aqm = { kind = 'dualpi2', coupling = 0 }", "link.wifi.aqm.coupling: wants 0.1 to 100"),
        ("aqm = { kind = 'dualpi2', ramp_to = '1 us' }", "aqm.ramp_to: `ramp_to` wants to be no"),
        ("aqm = 'policer'", "link.wifi.aqm: wants a rate and a burst"),
        ("aqm = { kind = 'shaper', rate = '1 Mbit/s' }", "link.wifi.aqm.burst: is missing"),
        ("aqm = { kind = 'policer', rate = '0 bit/s', burst = '1 kB' }", "aqm.rate: wants more"),
        (
            "aqm = { kind = 'policer', rate = '1 Mbit/s', burst = '3 GB' }",
            "link.wifi.aqm.burst: wants at least a packet, and less than 2 GiB",
        ),
        ("jitter = 3", "link.wifi.jitter: wants a string with a number and a unit, not integer"),
        ("jitter = { reorder = true }", "link.wifi.jitter.most: is missing"),
        ("jitter = { mean = '1 ms' }", "link.wifi.jitter.deviation: is missing"),
        ("jitter = { most = '1 ms', mean = '1 ms' }", "is of a normal distribution"),
        ("trace = 'x'", "test.toml:7: link.wifi.trace: stands beside `rate`"),
        (
            "up = { trace = 'no-such-file' }",
            "test.toml:7: link.wifi.up.trace: no-such-file: No such file",
        ),
    ] {
        let text = error(keys);
        let wanted = wanted.replace(": wifi.", ": link.");
        assert!(text.contains(&wanted), "{keys}\n  says   {text}\n  wanted {wanted}");
    }
}

#[test]
fn a_time_may_count_from_later() {
    let moment = |more: &str| {
        let at = format!("{{ fraction = 0.9, of = '60 MB', rate = '48 Mbit/s'{more} }}");
        parse(&format!("schedule = [{{ at = {at}, rate = '8 Mbit/s' }}]")).expect("all right").links
            [0]
        .up
        .profile
        .rate
        .changes[0]
            .at
    };
    assert_eq!(moment(""), Span::from_secs(9));
    assert_eq!(moment(", after = '50 ms'"), Span::from_millis(9_050));
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
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../bench/networks")
        .join(format!("{name}.toml"));
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
            assert_eq!(
                path.file_stem().and_then(|stem| stem.to_str()),
                Some(network.name.as_str())
            );
            assert!(
                network.ideal(Bytes(40_000_000), TCP_PAYLOAD_SHARE).is_some(),
                "{}",
                network.name
            );
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
    let seconds =
        |name, bytes| bench(name, None).ideal(Bytes(bytes), 1.0).expect("finite").as_secs_f64();
    assert!((seconds("equal", 40_000_000) - 3.2).abs() < 1e-6);
    assert!((seconds("sar2", 40_000_000) - (6.0 + 32.0 / 26.0)).abs() < 1e-6);
    // 2.13 s of 50 Mbit/s, 10.14 s of 20, and the rest of 50 again.
    assert!(
        (seconds("blackout", 40_000_000) - (12.27 + (320.0 - 2.13 * 50.0 - 10.14 * 20.0) / 50.0))
            .abs()
            < 1e-6
    );
    // A second link that carries nothing adds nothing.
    assert!((seconds("never-worse-accepts-then-nothing", 40_000_000) - 6.4).abs() < 1e-6);
    assert!((seconds("never-worse-same-bottleneck", 40_000_000) - 6.4).abs() < 1e-6);
}

#[test]
fn queues_and_jitter_are_read() {
    let up = |keys: &str| parse(keys).expect("all right").links.remove(0).up.profile;
    // 128 KiB are 87 packets of 1500 bytes.
    assert_eq!(up("aqm = 'red'").aqm, Aqm::Red(Red::new(87.0 / 6.0, 87.0 / 2.0)));
    assert_eq!(up("aqm = 'codel'").aqm, Aqm::CoDel(CoDel::default()));
    assert_eq!(up("aqm = 'fq-codel'").aqm, Aqm::FqCoDel(FqCoDel::default()));
    assert_eq!((up("aqm = 'drop-tail'").aqm, up("").aqm), (Aqm::DropTail, Aqm::DropTail));
    let red = "min = '28 packets', max = 84.5, weight = 0.1, probability = 1, gentle = false, ecn \
               = true, mean_packet = 1000";
    let wanted = Red {
        weight: 0.1,
        probability: 1.0,
        gentle: false,
        ecn: true,
        mean_packet: Bytes(1_000),
        ..Red::new(28.0, 84.5)
    };
    assert_eq!(up(&format!("aqm = {{ kind = 'red', {red} }}")).aqm, Aqm::Red(wanted));
    let (target, interval) = (Span::from_millis(10), Span::from_millis(200));
    let codel = CoDel { target, interval, ecn: true, mtu: Bytes(9_000) };
    let keys = "target = '10 ms', interval = '200 ms', ecn = true, mtu = 9000";
    assert_eq!(up(&format!("aqm = {{ kind = 'codel', {keys} }}")).aqm, Aqm::CoDel(codel));
    let fair = FqCoDel { codel, quantum: Bytes(300), queues: 16 };
    assert_eq!(
        up(&format!("aqm = {{ kind = 'fq-codel', quantum = 300, queues = 16, {keys} }}")).aqm,
        Aqm::FqCoDel(fair)
    );
    let ms = Span::from_millis;
    let uniform = |reorders| Some(Jitter { spread: Spread::Uniform(ms(3)), reorders });
    assert_eq!((up("jitter = '3 ms'").jitter, up("").jitter), (uniform(false), None));
    assert_eq!(up("jitter = { most = '3 ms', reorder = true }").jitter, uniform(true));
    let normal = Spread::Normal { mean: ms(2), deviation: ms(1) };
    let wanted = Some(Jitter { spread: normal, reorders: false });
    assert_eq!(up("jitter = { mean = '2 ms', deviation = '1 ms' }").jitter, wanted);
}

#[test]
fn schedules_change_delay_loss_and_state() {
    let keys = "schedule = [{ at = '1 s', delay = '80 ms', loss = 0.1 }, { at = '2 s', state = \
                'down' }, { at = '3 s', state = 'up', rate = '5 Mbit/s', loss = { every = 7 } }, { \
                at = '4 s', state = 'down' }]\nblackout = [{ from = '9 s', to = '10 s' }]";
    let up = parse(keys).expect("all right").links.remove(0).up.profile;
    let s = Span::from_secs;
    assert_eq!(up.delays, [Dated { at: s(1), value: Span::from_millis(80) }]);
    let every = Loss::Every(NonZeroU64::new(7).expect("not zero"));
    let losses = [(s(1), Loss::Bernoulli(0.1)), (s(3), every)];
    assert_eq!(up.losses, losses.map(|(at, value)| Dated { at, value }));
    assert_eq!(up.rate.changes, [Change { at: s(3), rate: Rate::mbit(5) }]);
    let down = |from, to| Blackout { from, to, every: None };
    assert_eq!(up.blackouts, [down(s(9), Some(s(10))), down(s(2), Some(s(3))), down(s(4), None)]);
}

#[test]
fn steps_are_read() {
    let threshold = |text: &str| {
        let keys = format!("aqm = {{ kind = 'step', threshold = '{text}' }}");
        parse(&keys).expect("all right").links.remove(0).up.profile.aqm
    };
    let backlog = |limit| Aqm::Step(Threshold::Backlog(limit));
    assert_eq!(threshold("65 packets"), backlog(Limit::Packets(65)));
    assert_eq!(threshold("100 KiB"), backlog(Limit::Bytes(Bytes::kib(100))));
    assert_eq!(threshold("1 ms"), Aqm::Step(Threshold::Sojourn(Span::from_millis(1))));
}

#[test]
fn dual_queues_are_read() {
    let up = |keys: &str| parse(keys).expect("all right").links.remove(0).up.profile.aqm;
    assert_eq!(up("aqm = 'dualpi2'"), Aqm::DualPi2(DualPi2::default()));
    let ms = Span::from_millis;
    let keys = "target = '20 ms', longest_rtt = '60 ms', coupling = 1.5, ramp_from = '1 ms', \
                ramp_to = '2 ms'";
    let wanted = DualPi2 {
        target: ms(20),
        longest_rtt: ms(60),
        coupling: 1.5,
        ramp_from: ms(1),
        ramp_to: ms(2),
    };
    assert_eq!(up(&format!("aqm = {{ kind = 'dualpi2', {keys} }}")), Aqm::DualPi2(wanted));
}

#[test]
fn token_buckets_are_read() {
    let up = |kind: &str| {
        let keys = format!("aqm = {{ kind = '{kind}', rate = '10 Mbit/s', burst = '64 KiB' }}");
        parse(&keys).expect("all right").links.remove(0).up.profile.aqm
    };
    let bucket = Bucket { rate: Rate::mbit(10), burst: Bytes::kib(64) };
    assert_eq!((up("policer"), up("shaper")), (Aqm::Policer(bucket), Aqm::Shaper(bucket)));
}

#[test]
fn traces_are_read_from_beside_the_network() {
    let folder = std::env::temp_dir().join(format!("anabranch-trace-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("cell.txt"), "5\n10\n").expect("a file");
    std::fs::write(folder.join("bad.txt"), "5\nten\n").expect("a file");
    let file = folder.join("test.toml").display().to_string();
    let read = |keys: &str| {
        let text = format!(
            "name = 'test'\n[[link]]\nname = 'cell'\ndelay = '5 ms'\nqueue = '64 KiB'\n{keys}\n"
        );
        Network::parse(&text, &file, None).map_err(|error| error.to_string())
    };
    let link = read("trace = 'cell.txt'\ndown = { rate = '1 Mbit/s' }")
        .expect("all right")
        .links
        .remove(0);
    assert_eq!(
        link.up.profile.rate.opportunities.as_ref().map(|trace| trace.period()),
        Some(Span::from_millis(10))
    );
    assert_eq!(link.up.profile.rate.base, Rate::from_bits(2_400_000));
    assert_eq!(
        link.down.profile.rate,
        link::RatePlan::constant(Rate::mbit(1)),
        "the direction's own"
    );
    let bad = read("trace = 'bad.txt'").expect_err("line 2");
    assert!(
        bad.contains("test.toml:6: link.cell.trace: ")
            && bad.contains("bad.txt:2: wants a whole number"),
        "{bad}"
    );
    let both =
        read("trace = 'cell.txt'\nredraw = { every = '1 s', from = 0, to = 1 }").expect_err("both");
    assert!(both.contains("link.cell.redraw: has no meaning for a rate from a `trace`"), "{both}");
    std::fs::write(folder.join("walk.txt"), "0, 9 Mbit/s, 20 ms, 0.1\n5 s, 3 Mbit/s, 70 ms\n")
        .expect("a file");
    let walk = |keys: &str| {
        let text = format!("name = 'test'\n[[link]]\nname = 'cell'\nqueue = '64 KiB'\n{keys}\n");
        Network::parse(&text, &file, None).map_err(|error| error.to_string())
    };
    let ms = Span::from_millis;
    let link = walk("trace = 'walk.txt'\ndown = { delay = '3 ms', loss = 0 }")
        .expect("all right")
        .links
        .remove(0);
    let (up, down) = (link.up.profile, link.down.profile);
    assert_eq!((up.delay, up.loss, up.losses), (ms(20), Loss::Bernoulli(0.1), vec![]));
    assert_eq!(up.delays, [Dated { at: ms(5_000), value: ms(70) }]);
    assert_eq!((down.delay, down.delays, down.loss), (ms(3), vec![], Loss::None));
    for (keys, wanted) in [
        (
            "trace = 'cell.txt'\ndelay = '5 ms'\naqm = { kind = 'shaper', rate = '1 Mbit/s', burst \
             = '9 kB' }",
            "link.cell.aqm: is a shaper, which has no meaning for a `trace`",
        ),
        ("trace = 'walk.txt'\ndelay = '5 ms'", "link.cell.delay: stands beside a `trace`"),
        ("trace = 'walk.txt'\nloss = 0", "link.cell.loss: stands beside a `trace`"),
        ("trace = 'cell.txt'", "link.cell.delay: is missing"),
        (
            "trace = 'walk.txt'\nschedule = [{ at = '1 s', delay = '9 ms' }]",
            "link.cell.schedule.delay: is said by the `trace` already",
        ),
        (
            "trace = 'cell.txt'\ndelay = '5 ms'\nschedule = [{ at = '1 s', rate = '0' }]",
            "link.cell.schedule.rate: is said by the `trace` already",
        ),
    ] {
        let text = walk(keys).expect_err("it is wrong");
        assert!(text.contains(wanted), "{keys}\n  says   {text}\n  wanted {wanted}");
    }
    std::fs::remove_dir_all(&folder).expect("it was there");
}
