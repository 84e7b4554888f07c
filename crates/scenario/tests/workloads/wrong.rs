//! What a mistake in a workload is told.

use std::fs;

use scenario::Document;

use super::{error, text};

#[test]
#[expect(clippy::too_many_lines, reason = "a list of mistakes")]
fn wrong_workloads_are_explained() {
    let tcp = "[[flow]]\nname = \"w*\"\ncount = 2\nfrom = \"server1\"\nto = \"client1\"\n";
    let udp = format!("{tcp}transport = \"udp\"\n");
    let file = |inner: &str| format!("{tcp}source = {{ file = {inner} }}\n");
    let cases: &[(String, &[&str])] = &[
        (
            format!("{tcp}start = {{ poisson = \"fast\" }}"),
            &["flow.w.start.poisson", "'fast'", "100 per s"],
        ),
        (format!("{tcp}start = {{ poisson = \"0 per s\" }}"), &["start.poisson", "above 0"]),
        (
            format!("{tcp}start = {{ poisson = \"5 per kB\" }}"),
            &["start.poisson", "not a frequency"],
        ),
        (
            format!("{tcp}start = {{ poisson = \"5 per s\", to = \"3 s\" }}"),
            &["start.to", "no such key"],
        ),
        (
            format!("{tcp}start = {{ load = 0.5, of = \"line\" }}"),
            &["start.load", "mean size", "file"],
        ),
        (
            format!("{}start = {{ load = 0.5, of = \"lin\" }}", file("\"1 kB\"")),
            &["start.of", "did you mean 'line'"],
        ),
        (
            format!("{}start = {{ load = 0, of = \"line\" }}", file("\"1 kB\"")),
            &["start.load", "such as 0.6"],
        ),
        (
            format!(
                "{}start = {{ load = 1, of = \"line\" }}",
                file("{ pareto = { min = \"1 kB\", shape = 0.9 } }")
            ),
            &["start.load", "mean size"],
        ),
        (
            format!("{tcp}start = {{ poisson = \"5 per s\", from = \"11 s\" }}"),
            &["flow.w.start", "run ends"],
        ),
        (format!("{tcp}group = \"a b\""), &["flow.w.group", "letters"]),
        (tcp.replace("\"server1\"", "[]"), &["flow.w.from", "at least one host"]),
        (tcp.replace("\"server1\"", "[\"server1\", \"sever2\"]"), &["flow.w.from", "'server2'"]),
        (tcp.replace("\"server1\"", "\"sevrer?\""), &["flow.w.from", "'sevrer?'"]),
        (tcp.replace("\"server1\"", "[\"client1\"]"), &["flow.w.to", "where the flow begins"]),
        (file("{ paretto = 1 }"), &["source.file.paretto", "did you mean `pareto`"]),
        (file("{ exponential = \"1 kB\", constant = \"1 kB\" }"), &["source.file", "one kind"]),
        (file("{ exponential = \"0 B\" }"), &["file.exponential", "more than nothing"]),
        (file("{ exponential = \"1 s\" }"), &["file.exponential", "'1 s' is not an amount"]),
        (
            file("{ uniform = { from = \"2 kB\", to = \"1 kB\" } }"),
            &["file.uniform.to", "below `from`"],
        ),
        (file("{ pareto = { mean = \"1 kB\", shape = 1 } }"), &["pareto.shape", "more than 1"]),
        (file("{ pareto = { min = \"1 kB\", shape = 0 } }"), &["pareto.shape", "more than 0"]),
        (
            file("{ pareto = { min = \"2 kB\", max = \"1 kB\", shape = 1 } }"),
            &["pareto.max", "not above `min`"],
        ),
        (
            file("{ pareto = { max = \"1 kB\", shape = 1.5 } }"),
            &["file.pareto", "`mean`, or `min`"],
        ),
        (file("{ lognormal = { sigma = 11, mean = \"1 kB\" } }"), &["lognormal.sigma", "0 to 10"]),
        (file("{ lognormal = { sigma = 1 } }"), &["file.lognormal", "either `mean` or `median`"]),
        (file("{ exponential = \"1 kB\", unit = \"1 kB\" }"), &["file.unit", "is for `cdf`"]),
        (file("{ cdf = \"none.cdf\" }"), &["file.cdf", "none.cdf", "No such file"]),
        (format!("{udp}interval = \"1 ms\"\nrate = \"1 Mbit/s\""), &["flow.w.interval", "exclude"]),
        (udp.clone(), &["flow.w.rate", "`interval`"]),
        (
            format!("{udp}interval = \"1 ms\"\npacket = \"70 kB\""),
            &["flow.w.packet", "28 to 65535"],
        ),
        (
            format!("{udp}trace = \"none.csv\"\nsize = \"1 kB\""),
            &["flow.w.size", "`trace` exclude"],
        ),
        (
            format!("{tcp}source = {{ requests = {{ think = \"1 s\" }} }}"),
            &["requests.size", "is missing"],
        ),
        (
            format!("{tcp}source = {{ requests = {{ size = \"1 kB\", request = \"0 B\" }} }}"),
            &["requests.request", "at least a byte"],
        ),
        (
            format!("{tcp}source = {{ requests = {{ size = \"1 kB\", count = 0 }} }}"),
            &["requests.count", "1 to 1000000"],
        ),
        (
            format!("{tcp}source = {{ requests = {{ size = \"1 kB\", connections = \"each\" }} }}"),
            &["requests.count", "is missing", "how many connections"],
        ),
        (
            format!("{tcp}source = {{ requests = {{ size = \"1 kB\", connections = \"all\" }} }}"),
            &["requests.connections", "'all'", "one, each"],
        ),
        (
            format!("{tcp}source = {{ requests = {{ size = \"1 kB\", connections = 200000 }} }}"),
            &["requests.connections", "more than 100000"],
        ),
        (
            format!(
                "{tcp}source = {{ requests = {{ size = \"1 kB\", connections = 2 }} }}\n\
                 subflows = 2"
            ),
            &["flow.w.source", "without `subflows`"],
        ),
        (
            format!(
                "{tcp}source = {{ requests = {{ size = \"1 kB\", connections = 2 }} }}\n\
                 transport = \"ptcp\""
            ),
            &["flow.w.source", "TCP"],
        ),
    ];
    for (flows, parts) in cases {
        let error = error(flows);
        for part in *parts {
            assert!(error.contains(part), "{flows}\ngives {error}\nwithout {part}");
        }
        assert!(error.contains("workloads.toml:"), "{error}");
    }
}

#[test]
fn wrong_rows_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("scenario.toml").display().to_string();
    let arriving = "[[flow]]\nname = \"f*\"\nfrom = \"server1\"\nto = \"client1\"\n\
                    arrivals = \"rows\"\n";
    let packets = "[[flow]]\nname = \"u\"\nfrom = \"server1\"\nto = \"client1\"\n\
                   transport = \"udp\"\ntrace = \"rows\"\n";
    let sizes = "[[flow]]\nname = \"f\"\nfrom = \"server1\"\nto = \"client1\"\n\
                 source = { file = { cdf = \"rows\" } }\n";
    for (flows, rows, parts) in [
        (arriving, "", &["flow.f.arrivals", "has no row", "start, size, from, to"][..]),
        (arriving, "1,2\n\n1", &["rows:3: ", "'1' has no `size`"]),
        (arriving, "1,2\nx,2", &["rows:2: `start`: 'x' is not a time", "10 ms"]),
        (arriving, "1,2\n1,-2", &["rows:2: `size` -2 is negative"]),
        (arriving, "1,2,server3", &["rows:1: `from`: 'server3'", "did you mean 'server1'"]),
        (arriving, "1,2,,server1", &["rows:1: `to` is where the flow begins"]),
        (arriving, "1,2,a,b,c", &["rows:1: ", "5 columns", "start, size"]),
        (arriving, "start,bytes\n1,2", &["rows:1: ", "not known", "start, size"]),
        (packets, "0,100\n1,20", &["flow.u.trace", "rows:2: `size` 20 wants 28 to 65535"]),
        (packets, "1,100\n0,100", &["rows:2: `time` is earlier"]),
        (sizes, "1 0.5\n2 0.4\n3 1", &["flow.f.source.file.cdf", "rows:2: ", "it is cumulative"]),
    ] {
        fs::write(folder.path().join("rows"), rows).expect("it is written");
        let error =
            Document::new(&text("10 s", flows), &file).expect_err("it is wrong").to_string();
        for part in parts {
            assert!(error.contains(part), "{rows:?} gives {error}\nwithout {part}");
        }
    }
    fs::write(folder.path().join("rows"), "1,2\n").expect("it is written");
    for (more, part) in [
        ("count = 3\n", "flow.f.count: comes from the file"),
        ("source = \"bulk\"\n", "flow.f.source: and `arrivals` exclude each other"),
    ] {
        let flows = format!("{arriving}{more}");
        let error =
            Document::new(&text("10 s", &flows), &file).expect_err("it is wrong").to_string();
        assert!(error.contains(part), "{error} lacks {part}");
    }
}
