//! A store's address as people write it.
//!
//! `redis://HOST`, `redis+cluster://A,B,C` and `redis+sentinel://A,B,C/NAME`, each with `rediss` for TLS.
//! `USER:PASSWORD@` before the hosts is for the servers; sentinels with their own get it as
//! `?sentinel=USER:PASSWORD`.

use redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, RedisConnectionInfo,
    TlsCertificates,
};

use super::RedisTls;
use super::server::ConnectError;

/// A parsed address.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) mode: Mode,
    /// One per host, in the order in which they are tried.
    pub(super) hosts: Vec<ConnectionInfo>,
    tls: Option<TlsCertificates>,
    /// User and password of the sentinels, separate from those of the servers.
    sentinel: RedisConnectionInfo,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// One server.
    Single,
    /// Any nodes of a cluster.
    Cluster,
    /// Sentinels that know the primary of this name.
    Sentinel { name: String },
}

impl Address {
    pub(super) fn parse(url: &str, tls: Option<&RedisTls>) -> Result<Address, ConnectError> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| ConnectError::Url("it has no scheme".into()))?;
        let (scheme, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        let tls = tls.map(certificates).transpose()?;
        if let Some((_, parameter)) = url.split_once('?')
            && !["protocol=", "sentinel="].iter().any(|known| parameter.starts_with(known))
        {
            let name = parameter.split('=').next().unwrap_or_default();
            return Err(ConnectError::Url(format!("it has an unknown parameter {name:?}")));
        }
        if kind.is_empty() {
            let sentinel = RedisConnectionInfo::default();
            return Ok(Address { mode: Mode::Single, hosts: vec![info(url)?], tls, sentinel });
        }
        let (rest, sentinel) = match rest.split_once("?sentinel=") {
            Some((rest, user)) => (rest, info(&format!("redis://{user}@sentinel"))?.redis_settings().clone()),
            None => (rest, RedisConnectionInfo::default()),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (format!("{user}@"), hosts),
            None => (String::new(), authority),
        };
        let (mode, path) = match kind {
            "cluster" if path.is_empty() || path == "0" => (Mode::Cluster, ""),
            "cluster" => return Err(ConnectError::Url(format!("a cluster has no database {path:?}"))),
            "sentinel" => {
                let (name, database) = path.split_once('/').unwrap_or((path, ""));
                if name.is_empty() {
                    return Err(ConnectError::Url("the primary's name is missing after the hosts".into()));
                }
                (Mode::Sentinel { name: name.to_string() }, database)
            }
            other => return Err(ConnectError::Url(format!("{other:?} is neither cluster nor sentinel"))),
        };
        let host = |host: &str| {
            if host.trim().is_empty() {
                return Err(ConnectError::Url("one of its hosts is empty".into()));
            }
            let port = if has_port(host) { "" } else { mode.default_port() };
            info(&format!("{scheme}://{user}{}{port}/{path}", host.trim()))
        };
        let hosts = hosts.split(',').map(host).collect::<Result<_, _>>()?;
        Ok(Address { mode, hosts, tls, sentinel })
    }

    /// A client with the same user, database and encryption at another address.
    pub(super) fn client_at(&self, host: &str, port: u16) -> Result<Client, ConnectError> {
        let like = &self.hosts[0];
        let address = match like.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
                host: host.to_string(),
                port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(host.to_string(), port),
        };
        self.client(like.clone().set_addr(address))
    }

    /// A sentinel with its own user and password.
    pub(super) fn sentinel(&self, sentinel: &ConnectionInfo) -> ConnectionInfo {
        sentinel.clone().set_redis_settings(self.sentinel.clone())
    }

    /// A client for one of the configured hosts.
    pub(super) fn client(&self, info: ConnectionInfo) -> Result<Client, ConnectError> {
        let encrypted = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
        // Calls overlap on a connection. With Nagle's algorithm the kernel would hold a small one back until the one before it was
        // acknowledged, which takes a round trip, or up to 40 ms.
        let settings = info.tcp_settings().clone().set_nodelay(true);
        let info = info.set_tcp_settings(settings);
        match &self.tls {
            Some(tls) if encrypted => Client::build_with_tls(info, tls.clone()),
            _ => Client::open(info),
        }
        .map_err(|error| ConnectError::Url(error.to_string()))
    }
}

impl Mode {
    fn default_port(&self) -> &'static str {
        if matches!(self, Mode::Sentinel { .. }) { ":26379" } else { ":6379" }
    }
}

fn has_port(host: &str) -> bool {
    // The colons of an IPv6 address are inside its brackets.
    host.rsplit_once(']').map_or(host, |(_, rest)| rest).contains(':')
}

fn info(url: &str) -> Result<ConnectionInfo, ConnectError> {
    url.into_connection_info().map_err(|error| ConnectError::Url(error.to_string()))
}

/// The first line of a certificate.
const PEM: &[u8] = b"-----BEGIN CERTIFICATE-----";

fn certificates(tls: &RedisTls) -> Result<TlsCertificates, ConnectError> {
    let client_tls = match (&tls.certificate, &tls.key) {
        (Some(certificate), Some(key)) => {
            Some(ClientTlsConfig { client_cert: certificate.clone(), client_key: key.clone() })
        }
        (None, None) => None,
        _ => return Err(ConnectError::Tls("a client certificate needs its key, and a key its certificate".into())),
    };
    let is_pem = |pem: &[u8]| pem.windows(PEM.len()).any(|window| window == PEM);
    for (pem, what) in [(&tls.authority, "the authority"), (&tls.certificate, "the client's certificate")] {
        if pem.as_deref().is_some_and(|pem| !is_pem(pem)) {
            return Err(ConnectError::Tls(format!("no certificate in PEM format was found in {what}")));
        }
    }
    Ok(TlsCertificates { client_tls, root_cert: tls.authority.clone() })
}

/// `host:port`, as in a redirection. An IPv6 address may come without brackets.
pub(super) fn split_host(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    Some((host.trim_start_matches('[').trim_end_matches(']'), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<(Mode, Vec<String>), String> {
        let address = Address::parse(url, None).map_err(|error| error.to_string())?;
        let host = |info: &ConnectionInfo| {
            let settings = info.redis_settings();
            let user = settings.username().unwrap_or("");
            format!("{}/{} {user} {}", info.addr(), settings.db(), settings.password().unwrap_or(""))
        };
        Ok((address.mode, address.hosts.iter().map(host).collect()))
    }

    #[test]
    fn every_form_is_understood() {
        assert_eq!(parse("redis://h:1/2"), Ok((Mode::Single, vec!["h:1/2  ".into()])));
        let cluster = parse("redis+cluster://me:se%40cret@a:7000,b,[::1]:7002").expect("valid");
        assert_eq!(cluster.0, Mode::Cluster);
        assert_eq!(cluster.1, ["a:7000/0 me se@cret", "b:6379/0 me se@cret", "::1:7002/0 me se@cret"]);
        let sentinel = parse("rediss+sentinel://:secret@a,b:7/mymaster/3").expect("valid");
        assert_eq!(sentinel.0, Mode::Sentinel { name: "mymaster".into() });
        assert_eq!(sentinel.1, ["a:26379/3  secret", "b:7/3  secret"]);
        let address = Address::parse("redis+sentinel://u:p@a/m?sentinel=watch:man", None).expect("valid");
        let asked = address.sentinel(&address.hosts[0]);
        assert_eq!(
            (asked.redis_settings().username(), asked.redis_settings().password()),
            (Some("watch"), Some("man"))
        );
        assert_eq!(address.hosts[0].redis_settings().password(), Some("p"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (url, problem) in [
            ("redis//h", "no scheme"),
            ("redis+ring://h", "neither cluster nor sentinel"),
            ("redis+cluster://h/3", "has no database"),
            ("redis+cluster://a,,b", "is empty"),
            ("redis+sentinel://a,b", "name is missing"),
            ("redis://a?x=1", "an unknown parameter \"x\""),
        ] {
            let error = parse(url).expect_err(url);
            assert!(error.contains(problem), "{error}");
        }
    }

    #[test]
    fn redirections_name_any_kind_of_host() {
        assert_eq!(split_host("127.0.0.1:7000"), Some(("127.0.0.1", 7000)));
        assert_eq!(split_host("::1:7000"), Some(("::1", 7000)));
        assert_eq!(split_host("[::1]:7000"), Some(("::1", 7000)));
        assert_eq!(split_host("nowhere"), None);
    }
}
