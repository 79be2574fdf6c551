//! Exceptions and buckets of rules whose key has alternatives: an API key that looks like an address is not the
//! address.
//!
//! After `allow --key 198.51.100.7` on a rule keyed `{header.x-api-key|ip}`, any client that sent `X-Api-Key:
//! 198.51.100.7` passed without a limit.

use serde_json::{Map, Value, json};
use tollkeeper_testkit::http::{Answer, Client};
use tollkeeper_testkit::store::{Kind, Server};
use tollkeeper_testkit::{Service, file, tollkeeper};

use crate::envoy_client::{Code, Entry, RateLimitDescriptor, RateLimitRequest, RateLimitServiceClient};

const ADDRESS: &str = "198.51.100.7";
const ELSEWHERE: &str = "203.0.113.9";

fn config(store: &str) -> String {
    let settings = format!("store: {{ url: '{store}', timeout: 2s }}\n");
    settings
        + "trusted_proxies: [127.0.0.1]
client_address: x-forwarded-for
rules:
  - { name: clients, key: '{header.x-api-key|ip}', limit: 1/day }
"
}

/// Who sends a request.
#[derive(Clone, Copy, Debug)]
enum Sender {
    /// From the allowed address.
    Address,
    /// From another one, with that address as its API key.
    Spoofer,
}

impl Sender {
    fn attributes(self) -> Vec<(&'static str, &'static str)> {
        match self {
            Sender::Address => vec![("ip", ADDRESS)],
            Sender::Spoofer => vec![("header.x-api-key", ADDRESS), ("ip", ELSEWHERE)],
        }
    }

    /// As HTTP, through a trusted proxy.
    fn get(self, to: &str, target: &str) -> Answer {
        let client = Client::to(to);
        match self {
            Sender::Address => client.with("x-forwarded-for", ADDRESS).get(target),
            Sender::Spoofer => client.with("x-forwarded-for", ELSEWHERE).with("x-api-key", ADDRESS).get(target),
        }
    }
}

/// The fronts.
#[derive(Clone, Copy, Debug)]
enum Front {
    Check,
    Authorize,
    Resp,
    Envoy,
    Proxy,
}

impl Front {
    const ALL: [Front; 5] = [Front::Check, Front::Authorize, Front::Resp, Front::Envoy, Front::Proxy];

    fn start(self, config: &str) -> Service {
        let (config, any) = (file(config, "yaml"), "127.0.0.1:0");
        if let Front::Proxy = self {
            // The upstream never answers: a request that passes is one that reaches it.
            let args =
                ["proxy", "--upstream", "http://127.0.0.1:9", "--listen", any, "--admin", any, "--config", &config];
            return Service::start(&args);
        }
        Service::start(&["serve", "--http", any, "--grpc", any, "--resp", any, "--config", &config])
    }

    fn passes(self, service: &Service, sender: Sender) -> bool {
        match self {
            Front::Check => {
                let attribute = |(name, value): (&str, &str)| (name.to_string(), json!(value));
                let attributes: Map<String, Value> = sender.attributes().into_iter().map(attribute).collect();
                service.check(&json!({ "attributes": attributes }))["allowed"] == true
            }
            Front::Authorize => sender.get(&service.http, "/v1/authorize").status == 200,
            Front::Resp => {
                let url = format!("redis://{}/", service.resp.as_ref().unwrap());
                let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
                let mut command = redis::cmd("TOLLKEEPER.CHECK");
                sender.attributes().iter().for_each(|(name, value)| _ = command.arg(name).arg(value));
                let answer: Vec<redis::Value> = command.query(&mut connection).unwrap();
                redis::from_redis_value::<bool>(answer[0].clone()).unwrap()
            }
            Front::Envoy => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let mut client = RateLimitServiceClient::connect(service.grpc.as_ref().unwrap()).await;
                    let entry = |(key, value): (&str, &str)| Entry { key: key.into(), value: value.into() };
                    let entries = sender.attributes().into_iter().map(entry).collect();
                    let descriptors = vec![RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }];
                    let request = RateLimitRequest { domain: "shop".into(), descriptors, hits_addend: 0 };
                    client.should_rate_limit(request).await.unwrap().into_inner().overall_code() == Code::Ok
                })
            }
            Front::Proxy => sender.get(&service.http, "/").status != 429,
        }
    }
}

fn admin(service: &Service) -> Client {
    Client::to(service.admin.as_ref().unwrap_or(&service.http))
}

#[test]
fn an_api_key_that_looks_like_an_allowed_address_does_not_pass_on_any_front() {
    for front in Front::ALL {
        for shared in [false, true] {
            let redis = shared.then(|| Server::start(Kind::Redis7));
            let store = redis.as_ref().map_or("memory:".into(), Server::url);
            let service = front.start(&config(&store));
            let allow = json!({ "rule": "clients", "key": ADDRESS, "kind": "allow" });
            let made = admin(&service).send("PUT", "/v1/exceptions", &allow.to_string());
            assert_eq!((made.status, &made.json()["by"]), (200, &json!("ip")), "{made}");

            let spoofed = [front.passes(&service, Sender::Spoofer), front.passes(&service, Sender::Spoofer)];
            assert_eq!(spoofed, [true, false], "{front:?} over {store}: one a day, as the rule says");
            for _ in 0..3 {
                assert!(front.passes(&service, Sender::Address), "{front:?} over {store}");
            }
        }
    }
}

/// A command's output and exit code.
fn run(service: &Service, args: &[&str]) -> (i32, String) {
    let server = format!("http://{}", service.http);
    let output = tollkeeper(&[args, &["--server", &server]].concat()).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(said).unwrap())
}

#[test]
fn commands_say_which_alternative_was_taken_and_refuse_to_guess() {
    let rules = config("memory:") + "  - { name: unclear, key: '{header.x-api-key|user|ip}', limit: 1/day }\n";
    let service = Service::on(&rules, &[]);
    let clients = ["--rule", "clients", "--key", ADDRESS];
    let (code, said) = run(&service, &[&["allow"], &clients[..]].concat());
    assert_eq!((code, &*said), (0, &*format!("allow clients {ADDRESS} by ip until it is lifted\n")));
    let block = [&["block"], &clients[..], &["--by", "header.x-api-key"]].concat();
    assert_eq!(run(&service, &block).1, format!("block clients {ADDRESS} by header.x-api-key until it is lifted\n"));
    assert_eq!(run(&service, &["exceptions"]).1.lines().count(), 2);
    assert!(Front::Check.passes(&service, Sender::Address) && !Front::Check.passes(&service, Sender::Spoofer));

    let (code, said) = run(&service, &["block", "--rule", "unclear", "--key", "42"]);
    assert!(code == 1 && said.contains("could be any of them; use header.x-api-key or user or ip"), "{said}");
    let (code, said) = run(&service, &["block", "--rule", "clients", "--key", "42", "--by", "user"]);
    assert!(code == 1 && said.contains("use header.x-api-key or ip"), "{said}");

    let (code, _) = run(&service, &[&["lift"], &clients[..], &["--by", "header.x-api-key"]].concat());
    assert_eq!((code, run(&service, &["exceptions"]).1.contains("by ip")), (0, true));
    let actions = service.get("/v1/actions").json();
    assert_eq!(
        (&actions["actions"][0]["action"], &actions["actions"][0]["key_by"]),
        (&json!("lift"), &json!("header.x-api-key"))
    );
}

/// Resetting an address also reset an API key with the same text.
#[test]
fn a_bucket_is_shown_and_reset_by_its_alternative() {
    let service = Service::on(&config("memory:"), &[]);
    for sender in [Sender::Address, Sender::Spoofer] {
        assert!(Front::Check.passes(&service, sender) && !Front::Check.passes(&service, sender));
    }
    let named = format!("/v1/keys?rule=clients&key={ADDRESS}");
    let shown = service.get(&named).json();
    assert_eq!(shown["alternatives"], json!(["header.x-api-key", "ip"]));
    let variants: Vec<_> = shown["variants"].as_array().unwrap().iter().map(|one| one["by"].clone()).collect();
    assert_eq!(variants, ["header.x-api-key", "ip"]);
    let only = service.get(&format!("{named}&by=ip")).json();
    assert_eq!((&only["by"], only.get("variants")), (&json!("ip"), None));

    let reset = service.client().send("DELETE", &named, "").json();
    assert_eq!(reset, json!({ "reset": true, "by": "ip" }));
    assert!(!Front::Check.passes(&service, Sender::Spoofer), "what the API key used stays used");
    assert!(Front::Check.passes(&service, Sender::Address));
    let reset = service.client().send("DELETE", &format!("{named}&by=header.x-api-key"), "").json();
    assert_eq!(reset["by"], "header.x-api-key");
    assert!(Front::Check.passes(&service, Sender::Spoofer));
    let wrong = service.client().send("DELETE", &format!("{named}&by=user"), "").problem(404);
    assert_eq!(wrong["field"], "by");
}
