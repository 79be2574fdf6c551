//! A whole site: an application, Tollkeeper, and a proxy in front of them.

mod application;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

pub(crate) use application::{Application, Received};
use tollkeeper_testkit::http::Client;
use tollkeeper_testkit::proxy::{Kind, Proxy, Setup};
use tollkeeper_testkit::{Service, file, free_port, repository};

pub(crate) struct Site {
    pub(crate) application: Application,
    pub(crate) tollkeeper: Tollkeeper,
    proxy: Proxy,
}

impl Site {
    /// With the rules of the examples.
    pub(crate) fn start(kind: Kind, changes: &[(&str, &str)]) -> Site {
        let rules = std::fs::read_to_string(repository().join("examples/tollkeeper.yaml")).unwrap();
        Site::start_on(kind, changes, &rules)
    }

    pub(crate) fn start_on(kind: Kind, changes: &[(&str, &str)], rules: &str) -> Site {
        let application = Application::start();
        let tollkeeper = Tollkeeper::start(rules);
        let example = match kind {
            Kind::Nginx => "nginx",
            Kind::Traefik => "traefik",
            Kind::Caddy => "caddy",
            Kind::Haproxy => "haproxy",
            Kind::Envoy => "envoy-ext-authz",
        };
        let ports = [(8080, tollkeeper.port), (3000, application.port)];
        let proxy =
            Proxy::start(&Setup { kind, example, own_port: 8000, ports: &ports, changes }, |status| status == 200);
        Site { application, tollkeeper, proxy }
    }

    /// Not 127.0.0.1, which is the proxy's address, and trusted.
    pub(crate) fn client(&self, number: u8) -> Client {
        Client::to(&self.address()).from(Ipv4Addr::new(127, 0, 0, number)).host("shop.example")
    }

    /// The proxy's address.
    pub(crate) fn address(&self) -> String {
        self.proxy.address()
    }

    pub(crate) fn connections_to_tollkeeper(&self) -> usize {
        connections_to(self.tollkeeper.port)
    }
}

/// The connections opened to a port of this machine, including recently closed ones.
fn connections_to(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("Linux lists its connections");
    // Each is listed twice, once from either side; after its end, perhaps once.
    let place = format!("0100007F:{port:04X}");
    let ends = table.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (local, remote) = (words.next()?, words.next()?);
        let other = if local == place { remote } else { local };
        (local == place || remote == place).then_some(other)
    });
    ends.collect::<BTreeSet<_>>().len()
}

/// The service, always on the same port.
pub(crate) struct Tollkeeper {
    service: Service,
    config: String,
    pub(crate) port: u16,
}

impl Tollkeeper {
    fn start(rules: &str) -> Tollkeeper {
        let (config, port) = (file(rules, "yaml"), free_port());
        Tollkeeper { service: serve(&config, port), config, port }
    }

    pub(crate) fn kill(&mut self) {
        self.service.kill();
    }

    /// Starts it again on the same port, after it was killed.
    pub(crate) fn restart(&mut self) {
        self.service = serve(&self.config, self.port);
    }
}

fn serve(config: &str, port: u16) -> Service {
    Service::start(&["serve", "--http", &format!("127.0.0.1:{port}"), "--config", config])
}
