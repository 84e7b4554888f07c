//! Networks of data centres, in which several shortest routes join two hosts.

use link::config::Problem;
use link::config::reader::Section;

use super::{Class, Expansion, check_size, defaults, number};
use crate::file::values::Result;

/// All links are alike unless `access` says otherwise of those of hosts.
const OWN: [&str; 4] = ["leaves", "spines", "hosts", "access"];

/// A link from every leaf to every spine, and `hosts` at each leaf.
pub(super) fn leaf_spine(section: &Section<'_>, plan: &mut Expansion) -> Result<()> {
    let leaves = number(section, "leaves", 4)?;
    let spines = number(section, "spines", 2)?;
    let hosts = number(section, "hosts", 8)?;
    let links = u64::from(leaves) * (u64::from(spines) + u64::from(hosts));
    check_size(section, "leaves", links)?;
    let fabric = Class::read(section.clone(), &OWN, None, plan.seed)?;
    let table = defaults("");
    let access = access(section, table.get_ref(), plan)?;
    let access = access.as_ref().unwrap_or(&fabric);
    for leaf in 1..=leaves {
        for spine in 1..=spines {
            let between = [format!("leaf{leaf}"), format!("spine{spine}")];
            plan.join(format!("fabric{leaf}-{spine}"), between, &fabric)?;
        }
        for host in (leaf - 1) * hosts + 1..=leaf * hosts {
            let between = [format!("host{host}"), format!("leaf{leaf}")];
            plan.join(format!("access{host}"), between, access)?;
        }
    }
    Ok(())
}

/// The class of the table `access`, if there is one.
fn access<'a>(
    section: &Section<'a>,
    nothing: &'a toml::de::DeTable<'a>,
    plan: &Expansion,
) -> Result<Option<Class<'a>>> {
    let has = section.get("access").is_some();
    has.then(|| Class::below(section, "access", nothing, plan.seed)).transpose()
}

/// A fat tree of switches with `ports` ports (M. Al-Fares et al., "A Scalable, Commodity Data
/// Center Network Architecture", 2008): as many pods, each with half as many edge and aggregation
/// switches; half as many hosts at each edge switch.
pub(super) fn fat_tree(section: &Section<'_>, plan: &mut Expansion) -> Result<()> {
    let ports = number(section, "ports", 4)?;
    if ports % 2 != 0 {
        let value = section.require("ports")?;
        return Err(value.error(Problem::Sense("wants an even number of ports")));
    }
    let half = ports / 2;
    check_size(section, "ports", 3 * u64::from(ports) * u64::from(half) * u64::from(half))?;
    let fabric = Class::read(section.clone(), &["ports", "access"], None, plan.seed)?;
    let table = defaults("");
    let access = access(section, table.get_ref(), plan)?;
    let access = access.as_ref().unwrap_or(&fabric);
    let mut host = 0;
    for pod in 1..=ports {
        for edge in 1..=half {
            let switch = || format!("edge{pod}-{edge}");
            for _ in 0..half {
                host += 1;
                plan.join(format!("access{host}"), [format!("host{host}"), switch()], access)?;
            }
            for other in 1..=half {
                let between = [switch(), format!("aggregation{pod}-{other}")];
                plan.join(format!("fabric{pod}-{edge}-{other}"), between, &fabric)?;
            }
        }
        for other in 1..=half {
            for port in 1..=half {
                let core = (other - 1) * half + port;
                let between = [format!("aggregation{pod}-{other}"), format!("core{core}")];
                plan.join(format!("core{pod}-{core}"), between, &fabric)?;
            }
        }
    }
    Ok(())
}
