use super::*;
use alloc::string::{String, ToString};

fn error(text: &str) -> String {
    by_name(text).expect_err("an error").to_string()
}

#[test]
fn every_name_makes_its_controller() {
    for known in NAMES {
        assert_eq!(by_name(known.signature.name).expect("known").name(), known.signature.name);
        // The defaults as they are printed can be read back, and are those of the options.
        let defaults = known.signature.to_string();
        let (bare, full) = (by_name(known.signature.name), by_name(&defaults));
        assert_eq!(alloc::format!("{bare:?}"), alloc::format!("{full:?}"));
    }
    assert_eq!(
        alloc::format!("{:?}", by_name("cubic")),
        alloc::format!("Ok({:?})", Uncoupled::new(Cubic::default()))
    );
    assert_eq!(
        alloc::format!("{:?}", by_name("vegas")),
        alloc::format!("Ok({:?})", Uncoupled::new(Vegas::default()))
    );
    assert_eq!(
        alloc::format!("{:?}", by_name("fast")),
        alloc::format!("Ok({:?})", Uncoupled::new(Fast::default()))
    );
    assert_eq!(
        alloc::format!("{:?}", by_name("waimd")),
        alloc::format!("Ok({:?})", Uncoupled::new(Waimd::default()))
    );
}

#[test]
fn parameters_are_read() {
    let options = FastOptions {
        alpha: 20.0,
        threshold: Span::from_micros(1_500),
        every: 1,
        ..FastOptions::default()
    };
    let found = by_name(" FAST ( alpha = 20, threshold=1.5 ms,every=1 ) ").expect("well written");
    assert_eq!(
        alloc::format!("{found:?}"),
        alloc::format!("{:?}", Uncoupled::new(Fast::new(options)))
    );
    assert!(by_name("reno()").is_ok());
}

#[test]
fn errors_say_what_would_do() {
    let names = "there are cubic, reno, vegas, fast, bbr, waimd, dctcp, prague, ledbat, \
                 ledbat++, lp, nice, lia, olia, balia, wvegas, coupled-bbr, coupled-cubic, mpfast, \
                 harp";
    assert_eq!(
        error("vagas"),
        alloc::format!(
            "there is no congestion controller 'vagas' (did you mean 'vegas'?); {names}"
        )
    );
    assert_eq!(
        error("quantum"),
        alloc::format!("there is no congestion controller 'quantum'; {names}")
    );
    assert_eq!(
        error("vegas(alhpa=2)"),
        "'vegas' has no parameter 'alhpa' (did you mean 'alpha'?); by default it is \
         vegas(alpha=2, beta=4, gamma=1)"
    );
    assert_eq!(error("reno(beta=0.5)"), "'reno' has no parameter 'beta'; it has none");
    assert_eq!(
        error("vegas(alpha=10)"),
        "'4' is no value for 'beta' of 'vegas': it is largest backlog in packets, alpha or \
         more; by default it is vegas(alpha=2, beta=4, gamma=1)"
    );
    assert!(
        error("fast(threshold=0.75)").starts_with("'0.75' is no value for 'threshold' of 'fast'")
    );
    assert!(error("cubic(c=nan)").starts_with("'nan' is no value for 'c' of 'cubic'"));
    assert!(error("fast(gamma=0)").starts_with("'0' is no value for 'gamma'"));
    assert_eq!(error("fast(every=1,every=2)"), "'every' of 'fast' is given twice");
    for text in ["vegas(alpha", "vegas(alpha)", "vegas)(", ""] {
        assert!(by_name(text).is_err(), "{text}");
    }
}
