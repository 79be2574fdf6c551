//! A line of a log as rules see it: the same attributes as those of the request that it tells of.

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::net::IpAddr;

use tollkeeper::Request;
use tollkeeper::http::{group, normal_host, normal_path, query_value};
use tollkeeper_logs::Entry;

use crate::hash::hash_of;

/// Which attributes requests have, as the configuration says.
#[derive(Debug, Clone)]
pub struct Naming {
    /// How many bits of an IPv6 address name a client.
    pub ipv6_prefix: u8,
    /// Attributes that are taken from elsewhere: `user_id` from `header.x-user-id`.
    pub identify: BTreeMap<String, String>,
}

impl Default for Naming {
    fn default() -> Self {
        Naming { ipv6_prefix: 64, identify: BTreeMap::new() }
    }
}

/// Networks of IPv6 addresses that came lately, each in the place that the hash of its address gives it: to read and to write one takes as long
/// as all else that is done with its line.
#[derive(Debug)]
pub(crate) struct Networks {
    prefix: u8,
    known: RefCell<Vec<Known>>,
}

/// The network of the address, or of the network, with this hash.
#[derive(Debug, Clone, Default)]
struct Known {
    address: u64,
    network: Option<Box<str>>,
}

/// Addresses that a worker has at hand.
const KNOWN: usize = 1_024;

impl Networks {
    pub(crate) fn new(naming: &Naming) -> Networks {
        Networks { prefix: naming.ipv6_prefix, known: RefCell::new(vec![Known::default(); KNOWN]) }
    }

    /// How a client with this address is named; as it is if that is no address.
    fn of(&self, text: &str) -> String {
        self.at_hand(hash_of(0, text.as_bytes()), || match canonical(text) {
            // Many addresses of one network come one after the other, and to write a network takes longest.
            Some(IpAddr::V6(address)) => {
                let bits = address.to_bits().checked_shr(128 - u32::from(self.prefix)).unwrap_or(0);
                self.at_hand(hash_of(1, &bits.to_le_bytes()), || group(address.into(), self.prefix))
            }
            _ => network(text, self.prefix),
        })
    }

    /// What was made for this hash lately, or is made now.
    fn at_hand(&self, hash: u64, make: impl FnOnce() -> String) -> String {
        let place = hash as usize % KNOWN;
        if let Known { address, network: Some(network) } = &self.known.borrow()[place]
            && *address == hash
        {
            return (**network).to_owned();
        }
        let made = make();
        self.known.borrow_mut()[place] = Known { address: hash, network: Some(made.as_str().into()) };
        made
    }
}

fn canonical(text: &str) -> Option<IpAddr> {
    text.parse().ok().map(|address: IpAddr| address.to_canonical())
}

fn network(text: &str, prefix: u8) -> String {
    canonical(text).map_or_else(|| text.to_owned(), |address| group(address, prefix))
}

/// A request of a log, as rules see it.
#[derive(Debug)]
pub struct LogRequest<'e, 'l> {
    entry: &'e Entry<'l>,
    naming: &'e Naming,
    networks: Option<&'e Networks>,
    ip: OnceCell<Option<Cow<'e, str>>>,
    /// Rules ask for it more than once.
    path: OnceCell<Option<Cow<'e, str>>>,
}

impl<'e, 'l> LogRequest<'e, 'l> {
    pub(crate) fn new(entry: &'e Entry<'l>, naming: &'e Naming) -> LogRequest<'e, 'l> {
        LogRequest { entry, naming, networks: None, ip: OnceCell::new(), path: OnceCell::new() }
    }

    /// The same with networks at hand, which are of this naming.
    pub(crate) fn with(self, networks: &'e Networks) -> LogRequest<'e, 'l> {
        LogRequest { networks: Some(networks), ..self }
    }

    fn ip(&self) -> Option<&str> {
        let read = || {
            let text = self.entry.ip.as_deref()?;
            // An IPv4 address has one spelling only, and is a client.
            if memchr::memchr(b':', text.as_bytes()).is_none() {
                return Some(Cow::Borrowed(text));
            }
            Some(Cow::Owned(match self.networks {
                Some(networks) => networks.of(text),
                None => network(text, self.naming.ipv6_prefix),
            }))
        };
        self.ip.get_or_init(read).as_deref()
    }

    pub(crate) fn path(&self) -> Option<&str> {
        self.path.get_or_init(|| self.entry.path().map(normal_path)).as_deref()
    }

    fn own(&self, name: &str) -> Option<Cow<'_, str>> {
        match name {
            "ip" => self.ip().map(Cow::Borrowed),
            "method" => self.entry.method.as_deref().map(Cow::Borrowed),
            "path" => self.path().map(Cow::Borrowed),
            "host" => self.entry.host.as_deref().map(|host| normal_host(Cow::Borrowed(host))),
            _ => self.other(name).or_else(|| match name.strip_prefix("query.") {
                Some(parameter) => query_value(self.entry.query()?, parameter),
                None => None,
            }),
        }
    }

    /// What the log names, with the user as `user_id` or `user` unless it names one of these itself.
    fn other(&self, name: &str) -> Option<Cow<'_, str>> {
        let named = self.entry.others.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_ref());
        let user = || matches!(name, "user_id" | "user").then(|| self.entry.user.as_deref()).flatten();
        named.or_else(user).map(Cow::Borrowed)
    }
}

impl Request for LogRequest<'_, '_> {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        match self.naming.identify.get(name) {
            // A log may name the attribute itself: ours do.
            Some(place) => self.own(place).or_else(|| self.other(name)),
            None => self.own(name),
        }
    }

    fn cost(&self) -> u32 {
        self.entry.cost.unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_those_of_the_request() {
        let entry = Entry {
            ip: Some("2001:db8:1:2::17".into()),
            user: Some("ann".into()),
            method: Some("GET".into()),
            target: Some("/%6Cogin?key=a+b".into()),
            host: Some("API.example.com".into()),
            others: vec![("header.x-key".into(), "k1".into())],
            ..Entry::default()
        };
        let naming =
            Naming { identify: [("api_key".to_owned(), "header.x-key".to_owned())].into(), ..Naming::default() };
        let request = LogRequest::new(&entry, &naming);
        let told = ["ip", "user_id", "path", "host", "query.key", "api_key", "method", "header.x-none"]
            .map(|name| request.attribute(name).map(Cow::into_owned));
        let expected = ["2001:db8:1:2::/64", "ann", "/login", "api.example.com", "a b", "k1", "GET"];
        assert_eq!(told[..7], expected.map(|value| Some(value.to_owned())));
        assert_eq!(told[7], None);
    }

    #[test]
    fn a_network_at_hand_is_the_same_network() {
        let naming = Naming { ipv6_prefix: 48, ..Naming::default() };
        let networks = Networks::new(&naming);
        // More than are at hand, each twice.
        for number in (0..3_000).chain(0..3_000) {
            let address =
                if number == 7 { "no:address".to_owned() } else { format!("2001:db8:{number:x}::{number:x}") };
            let entry = Entry { ip: Some(address.as_str().into()), ..Entry::default() };
            let request = LogRequest::new(&entry, &naming);
            let expected = request.attribute("ip").map(Cow::into_owned);
            assert_eq!(
                LogRequest::new(&entry, &naming).with(&networks).attribute("ip").as_deref(),
                expected.as_deref()
            );
        }
    }
}
