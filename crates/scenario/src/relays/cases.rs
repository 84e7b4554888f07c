//! The cases of the paper.

use units::Rate;

use super::{Demands, OverlaySetting, RateStudy};

/// A case of the paper.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Demand, b and f: "1.2 Mbit/s b=0.5 f=1".
    pub name: String,
    /// The setting.
    pub setting: OverlaySetting,
}

/// All cases, with `size` sources and `size` relays: demands of 1.2 Mbit/s, of 6 Mbit/s, and of one
/// of 1.2, 3.6 and 6 Mbit/s; b of 0, 0.5 and 1; f of 0.6, 1, 1.6 and 2. The paper has 100 of each;
/// fewer take less time.
#[must_use]
pub fn cases(size: u32) -> Vec<Case> {
    let (small, middle, large) = (Rate::kbit(1_200), Rate::kbit(3_600), Rate::mbit(6));
    let demands = [
        ("1.2 Mbit/s", Demands::Equal(small)),
        ("6 Mbit/s", Demands::Equal(large)),
        ("1.2|3.6|6 Mbit/s", Demands::OneOf(vec![small, middle, large])),
    ];
    let mut cases = Vec::new();
    for (name, demands) in demands {
        for skew in [0.0, 0.5, 1.0] {
            for supply in [0.6, 1.0, 1.6, 2.0] {
                let plain = OverlaySetting::new(demands.clone());
                let study =
                    RateStudy { sources: size as usize, relays: size, skew, supply, ..plain.study };
                cases.push(Case {
                    name: format!("{name} b={skew} f={supply}"),
                    setting: OverlaySetting { study, ..plain },
                });
            }
        }
    }
    cases
}
