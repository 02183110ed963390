//! Sets of addresses that operators name: networks in CIDR form, single addresses, and `unix` for
//! every peer of a UNIX socket.

use ipnet::IpNet;
use std::net::IpAddr;

#[derive(Clone, Debug, Default)]
pub struct Networks {
    networks: Vec<IpNet>,
    unix: bool,
}

impl Networks {
    /// Parses the texts. The error is the first text that is not valid.
    pub fn parse(texts: &[String]) -> Result<Self, &str> {
        let mut set = Self::default();
        for text in texts {
            match (text.parse::<IpNet>(), text.parse::<IpAddr>()) {
                _ if text == "unix" => set.unix = true,
                (Ok(network), _) => set.networks.push(network),
                (_, Ok(address)) => set.networks.push(address.into()),
                _ => return Err(text),
            }
        }
        Ok(set)
    }

    pub fn is_empty(&self) -> bool {
        self.networks.is_empty() && !self.unix
    }

    pub fn contains(&self, ip: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&ip))
    }

    /// Whether the set contains a peer. Peers of UNIX sockets have an empty address.
    pub fn contains_peer(&self, ip: &str) -> bool {
        match ip.parse() {
            Ok(ip) => self.contains(ip),
            Err(_) => self.unix,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_addresses_and_unix() {
        let texts = ["10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "unix"].map(String::from);
        let set = Networks::parse(&texts).unwrap();
        for inside in ["10.255.0.1", "192.0.2.7", "2001:db8:1::1", ""] {
            assert!(set.contains_peer(inside), "{inside}");
        }
        for outside in ["11.0.0.1", "192.0.2.8", "2001:db9::1"] {
            assert!(!set.contains_peer(outside), "{outside}");
        }
        assert!(!Networks::parse(&texts[..1]).unwrap().contains_peer(""));
        assert!(Networks::parse(&[]).unwrap().is_empty());
        assert_eq!(Networks::parse(&["10.0.0.0/33".into()]).unwrap_err(), "10.0.0.0/33");
    }
}
