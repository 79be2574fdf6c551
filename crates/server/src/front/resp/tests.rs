//! The front on a manual clock, spoken to over real connections.

mod abuse;
mod check;
mod throttle;
mod together;

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tollkeeper::http::{AnswerStyle, Identity};
use tollkeeper::{Limiter, ManualClock, MemoryStore, Policy, RuleSpec, Span, Timestamp};

use super::*;
use crate::observer::Observer;

/// A running front.
struct Gate {
    address: SocketAddr,
    clock: ManualClock,
    service: Arc<Service>,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<anyhow::Result<()>>,
}

async fn gate() -> Gate {
    open(&[], 1_000, Limits::default(), None).await
}

async fn open(rules: &[Value], max_keys: usize, limits: Limits, password: Option<&str>) -> Gate {
    let specs = rules.iter().map(|rule| serde_json::from_value::<RuleSpec>(rule.clone()).expect("a rule"));
    let clock = ManualClock::at(Timestamp::from_micros(1_767_225_600_000_000));
    let store = MemoryStore::with(max_keys, clock.clone());
    let service = Arc::new(Service {
        limiter: Arc::new(Limiter::new(Policy::new(specs).expect("valid rules"), store)),
        metrics: crate::front::metrics().into(),
        alerts: Default::default(),
        observer: Observer::new(Default::default(), tollkeeper::Timestamp::default()),
        identity: Identity::new(),
        answer: AnswerStyle::default(),
        seal: Arc::new(crate::seal::Seal::random().expect("random numbers")),
        tokens: Default::default(),
        guesses: Default::default(),
        rules: None,
        tracer: Default::default(),
        draining: Default::default(),
        drains: Default::default(),
        key_places: Default::default(),
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let (stop, stopped) = oneshot::channel();
    let shutdown = async {
        let _ = stopped.await;
    };
    let running = tokio::spawn(run_within(limits, listener, service.clone(), password.map(Password::new), shutdown));
    Gate { address, clock, service, stop: Some(stop), running }
}

impl Gate {
    async fn connect(&self) -> Client {
        Client(TcpStream::connect(self.address).await.expect("connected"))
    }

    /// The answer to these bytes on a new connection, whose sending half is then closed.
    async fn ask(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut client = self.connect().await;
        client.send(bytes).await;
        client.0.shutdown().await.expect("said everything");
        client.rest().await
    }
}

struct Client(TcpStream);

impl Client {
    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.expect("sent");
    }

    /// Reads until the other side closes; lines end with a space here.
    async fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(20), self.0.read_to_end(&mut bytes)).await;
        read.expect("an end in time").expect("an end without a reset");
        readable(&bytes)
    }

    /// Sends a line and expects this answer.
    async fn line(&mut self, line: &str, answer: &str) {
        self.send(format!("{line}\r\n")).await;
        let mut bytes = vec![0; answer.len() + answer.matches(' ').count()];
        self.0.read_exact(&mut bytes).await.expect("an answer");
        assert_eq!(readable(&bytes), answer, "{line}");
    }
}

fn readable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace("\r\n", " ")
}

/// A command as clients encode it.
fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend([format!("${}\r\n", word.len()).as_bytes(), word, b"\r\n"].concat());
    }
    bytes
}

#[tokio::test]
async fn a_pipeline_is_answered_in_order_and_each_sees_the_ones_before() {
    let gate = gate().await;
    let many: String = (0..1_000).map(|n| format!("CL.THROTTLE k 999 1 60\r\nECHO {n}\r\n")).collect();
    let expected: String = (0..1_000)
        .map(|n| {
            let text = n.to_string();
            format!("*5 :0 :1000 :{} :-1 :{} ${} {text} ", 999 - n, (n + 1) * 60, text.len())
        })
        .collect();
    assert_eq!(gate.ask(many).await, expected);
}

/// What could be read without waiting.
fn available(read: std::io::Result<usize>) -> Option<usize> {
    match read {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => None,
        read => Some(read.expect("an open connection")),
    }
}

/// A deep pipeline was answered without a pause, and other connections of the same thread waited until its client had no more to say.
#[tokio::test]
async fn others_have_their_turn_between_the_parts_of_a_long_pipeline() {
    const COMMANDS: usize = 24_000;
    let gate = gate().await;
    let (replies, mut commands) = gate.connect().await.0.into_split();
    let sending = tokio::spawn(async move {
        commands.write_all("ECHO abcd\r\n".repeat(COMMANDS).as_bytes()).await.expect("sent");
        commands
    });
    let expected = COMMANDS * "$4\r\nabcd\r\n".len();
    let (mut all, mut most) = (0, 0);
    while all < expected {
        // The turn of the others.
        tokio::task::yield_now().await;
        let (mut now, mut buffer) = (0, vec![0; 64 * 1024]);
        while let Some(read) = available(replies.try_read(&mut buffer)) {
            assert!(read > 0, "it has ended");
            now += read;
        }
        (all, most) = (all + now, most.max(now));
    }
    assert!(most <= expected / 2, "{most} bytes of {expected} at once");
    sending.await.expect("no panic");
}

#[tokio::test]
async fn hello_changes_what_follows_and_not_what_went_before() {
    let gate = gate().await;
    let answers =
        gate.ask("CLIENT GETNAME\r\nHELLO 3 SETNAME me\r\nCLIENT GETNAME\r\nRESET\r\nCLIENT GETNAME\r\n").await;
    let version = env!("CARGO_PKG_VERSION");
    let hello = format!(
        "%7 $6 server $10 tollkeeper $7 version ${} {version} $5 proto :3 $2 id :1 $4 mode $10 standalone $4 role $6 master $7 \
         modules *0 ",
        version.len()
    );
    assert_eq!(answers, format!("$-1 {hello}$2 me +RESET $-1 "));
    assert_eq!(
        gate.ask("HELLO 4\r\nHELLO x\r\nHELLO 3 NONSENSE\r\nPING\r\n").await,
        concat!(
            "-NOPROTO unsupported protocol version -ERR Protocol version is not an integer or out of range ",
            "-ERR Syntax error in HELLO option 'NONSENSE' +PONG "
        )
    );
}

#[tokio::test]
async fn without_the_password_nothing_is_decided() {
    let gate = open(&[], 1_000, Limits::default(), Some("open sesame")).await;
    let no = "-NOAUTH Authentication required. ";
    assert_eq!(gate.ask("PING\r\nCL.THROTTLE k 1 1 1\r\nNONSENSE\r\n").await, no.repeat(3));
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled. ";
    assert_eq!(gate.ask("AUTH guess\r\nAUTH other \"open sesame\"\r\nPING\r\n").await, format!("{wrong}{wrong}{no}"));
    assert_eq!(gate.ask("AUTH \"open sesame\"\r\nPING\r\nRESET\r\nPING\r\n").await, format!("+OK +PONG +RESET {no}"));
    assert!(gate.ask("HELLO 3\r\n").await.starts_with("-NOAUTH HELLO must be called"));
    assert_eq!(gate.ask("HELLO 3 AUTH default guess\r\nCLIENT GETNAME\r\n").await, format!("{wrong}{no}"));
    let answers = gate.ask("HELLO 3 AUTH default \"open sesame\"\r\nPING\r\n").await;
    assert!(answers.starts_with("%7 ") && answers.ends_with("+PONG "), "{answers}");
    assert!(
        !crate::metrics::text(crate::metrics::Exposition::Prometheus, &gate.service.families())
            .contains("(cl.throttle)"),
        "nothing was decided"
    );
    assert_eq!(format!("{:?}", Password::new("open sesame")), "Password(..)");
}

#[tokio::test]
async fn auth_without_a_password_says_that_none_is_set() {
    let answer = gate().await.ask("AUTH x\r\n").await;
    assert!(answer.starts_with("-ERR AUTH <password> called without any password configured"), "{answer}");
}

#[tokio::test]
async fn what_clients_ask_when_they_connect_has_an_answer() {
    let gate = gate().await;
    for (asked, answer) in [
        ("PING", "+PONG "),
        ("ping hello", "$5 hello "),
        ("ECHO \"a b\"", "$3 a b "),
        ("SELECT 0", "+OK "),
        (
            "SELECT 1",
            "-ERR DB index is out of range: there is only database 0, not 1; use it, with a key prefix for each \
             application ",
        ),
        ("SELECT one", "-ERR value is not an integer or out of range "),
        ("CLIENT TRACKING ON OPTIN", "+OK "),
        ("CLIENT CACHING YES", "+OK "),
        ("CLIENT SETINFO LIB-NAME x", "+OK "),
        ("CLIENT SETNAME \"a b\"", "-ERR Client names cannot contain spaces, newlines or special characters. "),
        ("CONFIG GET save", "*2 $4 save $0  "),
        ("CONFIG GET maxclients", "*0 "),
        ("COMMAND COUNT", ":20 "),
        ("COMMAND DOCS", "*0 "),
        ("QUIT", "+OK "),
        ("ECHO", "-ERR wrong number of arguments for 'echo' command "),
    ] {
        assert_eq!(gate.ask(format!("{asked}\r\n")).await, answer, "{asked}");
    }
    assert!(gate.ask("INFO\r\n").await.contains("loading:0"));
    assert!(gate.ask("COMMAND\r\n").await.starts_with("*20 *10 $11 cl.throttle :-5 *1 +write :1 :1 :1 "));
    let unknown = gate.ask("GET key\r\n").await;
    assert!(unknown.starts_with("-ERR unknown command 'GET'; there are CL.THROTTLE, TOLLKEEPER.CHECK"), "{unknown}");
    assert_eq!(gate.ask("QUIT\r\nPING\r\n").await, "+OK ", "nothing after it is answered");
}

#[tokio::test]
async fn commands_are_counted_by_names_of_ours() {
    let gate = gate().await;
    gate.ask("CL.THROTTLE k 0 1 60\r\nCL.THROTTLE k 0 1 60\r\nCL.THROTTLE k\r\nping\r\nSECRET\r\n").await;
    let page = crate::metrics::text(crate::metrics::Exposition::Prometheus, &gate.service.families());
    for line in [
        r#"tollkeeper_requests_total{front="resp",outcome="allowed"} 1"#,
        r#"tollkeeper_requests_total{front="resp",outcome="denied"} 1"#,
        r#"tollkeeper_resp_requests_total{command="cl.throttle",outcome="allowed"} 1"#,
        r#"tollkeeper_resp_requests_total{command="cl.throttle",outcome="denied"} 1"#,
        r#"tollkeeper_resp_requests_total{command="cl.throttle",outcome="error"} 1"#,
        r#"tollkeeper_resp_requests_total{command="ping",outcome="ok"} 1"#,
        r#"tollkeeper_resp_requests_total{command="unknown",outcome="error"} 1"#,
        r#"tollkeeper_decisions_total{rule="(cl.throttle)",outcome="denied",source="store"} 1"#,
    ] {
        assert!(page.lines().any(|there| there == line), "{line} is not in\n{page}");
    }
    assert!(!page.contains("SECRET"));
}

#[tokio::test]
async fn what_is_under_way_is_answered_when_the_service_stops() {
    let mut gate = gate().await;
    let mut client = gate.connect().await;
    client.line("PING", "+PONG ").await;
    gate.stop.take().expect("not stopped before").send(()).expect("running");
    assert_eq!(client.rest().await, "");
    gate.running.await.expect("no panic").expect("stopped");
    assert!(TcpStream::connect(gate.address).await.is_err());
}
