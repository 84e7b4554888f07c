//! The sites of the configuration, by numbers that stay when the file changes.

use reach::Network;

use crate::config::SiteConfig;
use crate::plane::SiteId;

/// The sites that the file has or had.
#[derive(Debug, Default)]
pub(crate) struct Sites(Vec<SitePlace>);

#[derive(Debug)]
struct SitePlace {
    config: SiteConfig,
    /// Whether the file still has it. Its number is kept, in case it comes back.
    is_present: bool,
    /// How often its sessions have been ended by another file.
    ends: u64,
}

/// What another file changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SitesChange {
    /// The names of sites that have a number now, in their order.
    pub(crate) added: Vec<String>,
    /// Sites that are no longer there, or that are dialed elsewhere or over other relays: their
    /// sessions end.
    pub(crate) ended: Vec<SiteId>,
}

impl Sites {
    /// Takes over the sites of a file.
    pub(crate) fn update(&mut self, sites: Vec<SiteConfig>) -> SitesChange {
        let mut change = SitesChange::default();
        let is_named = |place: &SitePlace| sites.iter().any(|site| site.name == place.config.name);
        for (number, place) in self.0.iter_mut().enumerate() {
            if place.is_present && !is_named(place) {
                place.is_present = false;
                place.ends += 1;
                change.ended.push(SiteId(number));
            }
        }
        for config in sites {
            let known = self.0.iter().position(|place| place.config.name == config.name);
            let Some(number) = known else {
                change.added.push(config.name.clone());
                self.0.push(SitePlace { config, is_present: true, ends: 0 });
                continue;
            };
            let place = &mut self.0[number];
            let is_elsewhere = place.config.at != config.at || place.config.relays != config.relays;
            if place.is_present && is_elsewhere {
                place.ends += 1;
                change.ended.push(SiteId(number));
            }
            (place.config, place.is_present) = (config, true);
        }
        change
    }

    /// The sites that the file has, with their numbers.
    pub(crate) fn present(&self) -> impl Iterator<Item = (SiteId, &SiteConfig)> {
        let numbered = self.0.iter().enumerate();
        numbered
            .filter(|(_, place)| place.is_present)
            .map(|(at, place)| (SiteId(at), &place.config))
    }

    /// How often the sessions of a site have been ended by another file: whoever dials it as an
    /// earlier one had it is to stop, also when it is as before again.
    pub(crate) fn ends(&self, site: SiteId) -> u64 {
        self.0.get(site.0).map_or(0, |place| place.ends)
    }

    /// A site that the file has.
    pub(crate) fn get(&self, site: SiteId) -> Option<&SiteConfig> {
        self.0.get(site.0).filter(|place| place.is_present).map(|place| &place.config)
    }

    /// The networks that a site may have.
    pub(crate) fn networks(&self, site: SiteId) -> Vec<Network> {
        self.get(site).map(|site| site.networks.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(name: &str, at: Option<&str>, network: &str) -> SiteConfig {
        SiteConfig {
            name: name.into(),
            at: at.map(|at| at.parse().expect("an address")),
            relays: Vec::new(),
            networks: vec![network.parse().expect("a network")],
        }
    }

    fn numbers(sites: &Sites) -> Vec<(usize, &str)> {
        sites.present().map(|(site, config)| (site.0, config.name.as_str())).collect()
    }

    #[test]
    fn numbers_stay_while_sites_come_and_go() {
        let mut sites = Sites::default();
        let (a, b) = (site("a", Some("192.0.2.1"), "10.1.0.0/16"), site("b", None, "10.2.0.0/16"));
        let change = sites.update(vec![a.clone(), b.clone()]);
        assert_eq!(change, SitesChange { added: vec!["a".into(), "b".into()], ended: vec![] });
        // Another order, and other networks, change no session.
        let wider = site("b", None, "10.2.0.0/15");
        assert_eq!(sites.update(vec![wider.clone(), a.clone()]), SitesChange::default());
        assert_eq!(sites.networks(SiteId(1)), wider.networks);
        let c = site("c", None, "10.3.0.0/16");
        let change = sites.update(vec![b.clone(), c]);
        assert_eq!(change, SitesChange { added: vec!["c".into()], ended: vec![SiteId(0)] });
        assert_eq!(numbers(&sites), [(1, "b"), (2, "c")]);
        assert!(sites.get(SiteId(0)).is_none() && sites.networks(SiteId(0)).is_empty());
        // It comes back, with its number.
        let change = sites.update(vec![a, b]);
        assert_eq!(change, SitesChange { added: vec![], ended: vec![SiteId(2)] });
        assert_eq!(numbers(&sites), [(0, "a"), (1, "b")]);
        assert_eq!(
            [0, 1, 2].map(|site| sites.ends(SiteId(site))),
            [1, 0, 1],
            "it is not as before"
        );
        // Dialed elsewhere.
        let moved = site("a", Some("192.0.2.9"), "10.1.0.0/16");
        let change = sites.update(vec![moved, site("b", None, "10.2.0.0/16")]);
        assert_eq!(change.ended, [SiteId(0)]);
    }
}
