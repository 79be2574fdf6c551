//! Malicious or broken clients. Other connections are never affected.

use super::*;

fn short() -> Limits {
    Limits { idle: Duration::from_millis(1_500), stall: Duration::from_millis(500), ..Limits::default() }
}

#[tokio::test]
async fn nonsense_is_answered_once_and_ends_only_its_connection() {
    let gate = gate().await;
    let mut bystander = gate.connect().await;
    bystander.line("PING", "+PONG ").await;
    for (bytes, problem) in [
        (b"*1\r\n$-5\r\n".as_slice(), "invalid bulk length"),
        (b"*1000000\r\n", "invalid multibulk length"),
        (b"*1\r\n$999999999\r\n", "too big command, the largest is 65536 bytes"),
        (b"*1\r\n+PING\r\n", "expected '$', got '+'"),
        (b"ECHO 'a\r\n", "unbalanced quotes in request"),
    ] {
        let answers = gate.ask([b"PING\r\n", bytes, b"PING\r\n"].concat()).await;
        assert_eq!(answers, format!("+PONG -ERR Protocol error: {problem} "));
    }
    bystander.line("PING", "+PONG ").await;
}

#[tokio::test]
async fn an_endless_line_is_not_kept() {
    let gate = gate().await;
    let mut client = gate.connect().await;
    // It may be cut off while it is still sending.
    let _ = client.0.write_all(&[b'x'; 200_000]).await;
    assert_eq!(client.rest().await, "-ERR Protocol error: too big inline request ");
}

#[tokio::test]
async fn half_a_command_is_waited_for_and_not_for_ever() {
    let gate = open(&[], 10, short(), None).await;
    let mut client = gate.connect().await;
    client.send("*1\r\n$4\r\nPI").await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    client.line("NG", "+PONG ").await;
    client.send("*1\r\n$4\r\nPI").await;
    assert_eq!(client.rest().await, "", "cut off");
    // Sending a byte now and then does not help.
    let mut client = gate.connect().await;
    let started = std::time::Instant::now();
    while started.elapsed() < Duration::from_secs(10) && client.0.write_all(b"x").await.is_ok() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(started.elapsed() < Duration::from_secs(9), "cut off though it moves");
}

#[tokio::test]
async fn silence_ends_a_connection() {
    let gate = open(&[], 10, short(), None).await;
    let mut client = gate.connect().await;
    client.line("PING", "+PONG ").await;
    // Longer than a command may take: between commands there is more time.
    tokio::time::sleep(Duration::from_millis(700)).await;
    client.line("PING", "+PONG ").await;
    assert_eq!(client.rest().await, "");
}

#[tokio::test]
async fn who_does_not_read_is_cut_off() {
    let gate = open(&[], 10, short(), None).await;
    let mut client = gate.connect().await;
    let started = std::time::Instant::now();
    let echo = command(&[b"ECHO", &[b'x'; 60_000]]);
    while started.elapsed() < Duration::from_secs(10) && client.0.write_all(&echo).await.is_ok() {}
    assert!(started.elapsed() < Duration::from_secs(9), "it would have gone on");
    gate.connect().await.line("PING", "+PONG ").await;
}

#[tokio::test]
async fn further_connections_wait_for_their_turn() {
    let gate = open(&[], 10, Limits { connections: 1, ..Limits::default() }, None).await;
    let mut first = gate.connect().await;
    first.line("PING", "+PONG ").await;
    let mut second = gate.connect().await;
    second.send("PING\r\n").await;
    let mut byte = [0];
    let early = tokio::time::timeout(Duration::from_millis(100), second.0.read(&mut byte)).await;
    assert!(early.is_err(), "served beside the first");
    drop(first);
    second.line("PING", "+PONG +PONG ").await;
}

/// A web page can make a browser post to any port of this machine.
#[tokio::test]
async fn a_browser_is_not_listened_to() {
    let gate = gate().await;
    for request in ["POST / HTTP/1.1\r\nHost: localhost\r\n\r\nCL.THROTTLE k 0 1 60\r\n", "Host: localhost\r\nPING\r\n"]
    {
        assert_eq!(gate.ask(request).await, "");
    }
    assert_eq!(gate.ask("CL.THROTTLE k 0 1 60\r\n").await, "*5 :0 :1 :0 :-1 :60 ");
}

/// Passwords could be guessed as fast as commands are read, thousands in one pipeline.
#[tokio::test]
async fn whoever_guesses_passwords_is_cut_off_and_nobody_else_waits() {
    let gate = open(&[], 10, Limits::default(), Some("open sesame")).await;
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled. ";
    let mut bystander = gate.connect().await;
    bystander.line("AUTH \"open sesame\"", "+OK ").await;
    let mut guesser = gate.connect().await;
    guesser.send("AUTH a\r\n".repeat(1_000)).await;
    bystander.line("PING", "+PONG ").await;
    assert_eq!(guesser.rest().await, wrong.repeat(5));
    // Neither another form of login nor RESET gives another chance.
    let tricks = "AUTH a\r\nHELLO 3 AUTH default b\r\nRESET\r\nAUTH default c\r\nAUTH other d\r\nRESET\r\nAUTH e\r\n";
    let answers = gate.ask(format!("{tricks}AUTH \"open sesame\"\r\n")).await;
    assert_eq!(answers, format!("{wrong}{wrong}+RESET {wrong}{wrong}+RESET {wrong}"));
    // A few mistakes are forgiven if the right password follows.
    let answers = gate.ask("AUTH a\r\nAUTH b\r\nAUTH \"open sesame\"\r\nAUTH c\r\nAUTH d\r\nPING\r\n").await;
    assert_eq!(answers, format!("{wrong}{wrong}+OK {wrong}{wrong}+PONG "));
}

/// `MULTI` and a thousand times `COMMAND`, ten kilobytes, made the service keep thirteen megabytes of answers for as long as the
/// client liked, on each connection.
#[tokio::test]
async fn a_transaction_keeps_no_more_in_answers_than_in_words() {
    let gate = gate().await;
    let mut client = gate.connect().await;
    client.send(format!("MULTI\r\n{}EXEC\r\nQUIT\r\n", "COMMAND\r\n".repeat(1_000))).await;
    let answers = client.rest().await;
    assert!(answers.contains("-ERR a transaction has at most 1024 commands and 256 KiB "), "{answers:.300}");
    assert!(answers.contains("-EXECABORT ") && answers.len() < 100_000, "{}", answers.len());
    // A few are fine.
    let mut client = gate.connect().await;
    client.send("MULTI\r\nCOMMAND COUNT\r\nCOMMAND INFO ping nonsense\r\nEXEC\r\nQUIT\r\n").await;
    let answers = client.rest().await;
    assert!(answers.contains(" *2 :") && answers.contains(" *2 *10 $4 ping :-1 *1 +fast "), "{answers}");
}

/// All answers of a pipeline were gathered before the first was sent.
#[tokio::test]
async fn long_answers_of_a_pipeline_are_sent_one_after_the_other() {
    let gate = gate().await;
    let mut client = gate.connect().await;
    let count = 2_000;
    let one = gate.ask("COMMAND\r\n").await;
    let send = async { client.0.write_all(format!("{}QUIT\r\n", "COMMAND\r\n".repeat(count)).as_bytes()).await };
    send.await.expect("sent");
    assert_eq!(client.rest().await, format!("{}+OK ", one.repeat(count)));
}

/// Only the guesses of one connection were counted, and a guesser could open a thousand.
#[tokio::test]
async fn guesses_on_many_connections_are_slowed_down_together() {
    let gate = open(&[], 10, Limits::default(), Some("open sesame")).await;
    let guesses = (0..40).map(|_| gate.ask("AUTH a\r\nAUTH b\r\n"));
    let answers = futures_util::future::join_all(guesses).await.concat();
    let unchecked = answers.matches("-ERR too many wrong passwords come from this address").count();
    let checked = answers.matches("-WRONGPASS").count();
    assert_eq!(checked + unchecked, 80);
    assert!(unchecked >= 40, "{checked} were checked");
    // Afterwards the right one is checked again.
    gate.connect().await.line("AUTH \"open sesame\"", "+OK ").await;
}
