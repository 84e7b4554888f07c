//! What stands between a socket and a relay, in words.

use std::net::SocketAddr;

use super::translator::{Filtering, Mapping, Translator};

impl Translator {
    /// The kind of the translator.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match (self.mapping, self.filtering) {
            (Mapping::None, Filtering::Hosts | Filtering::Unknown) => "none",
            (Mapping::None, Filtering::Ports) => {
                "none; a filter lets in only ports that were asked"
            }
            (Mapping::Same, Filtering::Hosts) => "same port for all destinations",
            (Mapping::Same, Filtering::Ports) => {
                "same port for all destinations; lets in only ports that were asked"
            }
            (Mapping::Same, Filtering::Unknown) => {
                "same port for all destinations; what it lets in is not known"
            }
            (Mapping::Different, Filtering::Hosts) => {
                "another port for each destination (symmetric)"
            }
            (Mapping::Different, Filtering::Ports | Filtering::Unknown) => {
                "another port for each destination (symmetric); lets in only ports that were \
                 asked"
            }
            (Mapping::Unknown, Filtering::Hosts | Filtering::Unknown) => {
                "ports not known: name a second relay"
            }
            (Mapping::Unknown, Filtering::Ports) => {
                "ports not known: name a second relay; lets in only ports that were asked"
            }
        }
    }

    /// Behind which translators hosts find a direct way, after they met this one at a relay.
    #[must_use]
    pub fn direct_ways(&self) -> &'static str {
        match (self.mapping, self.filtering) {
            (Mapping::Different, _) => "those with the same port for all, that let in all ports",
            (Mapping::Same | Mapping::None, Filtering::Ports) => "all but symmetric ones",
            (Mapping::Unknown, _) => "not known",
            (Mapping::Same | Mapping::None, Filtering::Hosts | Filtering::Unknown) => "all",
        }
    }

    /// What would open a way for all to this address inside, where there is none.
    #[must_use]
    pub fn remedy(&self, inside: SocketAddr) -> Option<String> {
        let port = inside.port();
        match (self.mapping, self.filtering) {
            (Mapping::None, Filtering::Ports) => {
                Some(format!("let UDP and TCP port {port} in at the filter in front of {inside}"))
            }
            (Mapping::None | Mapping::Same, Filtering::Hosts | Filtering::Unknown) => None,
            _ => Some(format!(
                "have the translator forward UDP and TCP port {port} of {} to {inside}",
                self.outside.ip()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of docs/relay.md.
    #[test]
    fn every_kind_has_words_and_a_remedy_where_ways_are_missing() {
        let outside = "198.51.100.1:4000".parse().unwrap();
        let inside = "192.168.1.2:7707".parse().unwrap();
        for mapping in [Mapping::None, Mapping::Same, Mapping::Different, Mapping::Unknown] {
            for filtering in [Filtering::Hosts, Filtering::Ports, Filtering::Unknown] {
                let found = Translator { outside, mapping, filtering };
                let (ways, remedy) = (found.direct_ways(), found.remedy(inside));
                assert_eq!(ways == "all", remedy.is_none(), "{found:?}");
                let is_symmetric = found.kind().contains("symmetric");
                assert_eq!(is_symmetric, mapping == Mapping::Different, "{found:?}");
            }
        }
        let (mapping, filtering) = (Mapping::Different, Filtering::Ports);
        let remedy = Translator { outside, mapping, filtering }.remedy(inside).unwrap();
        assert!(remedy.contains("7707 of 198.51.100.1 to 192.168.1.2:7707"), "{remedy}");
    }
}
