//! Lines as the servers' own documentation shows them, each through detection, as a person would give them.

use tollkeeper_logs::{Entry, Format, Precision, Template};

fn detect(line: &str) -> Format {
    Format::detect(&[line]).unwrap_or_else(|| panic!("nothing reads {line}"))
}

/// What matters to a limit, in one line.
fn told(line: &str) -> String {
    let mut format = detect(line);
    let entry = format.read(line).expect("readable").expect("a request");
    format!("{format}: {}", brief(&entry))
}

fn brief(entry: &Entry<'_>) -> String {
    let Entry { at_us, ip, user, method, target, host, status, .. } = entry;
    let or = |value: &Option<std::borrow::Cow<'_, str>>| value.as_deref().unwrap_or("-").to_owned();
    format!(
        "{at_us} {} {} {} {} {} {}",
        or(ip),
        or(user),
        or(method),
        or(target),
        or(host),
        status.map_or("-".to_owned(), |status| status.to_string())
    )
}

#[test]
fn each_format_is_detected_and_read() {
    let cases = [
        (
            r#"127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326"#,
            "common: 971211336000000 127.0.0.1 frank GET /apache_pb.gif - 200",
        ),
        (
            r#"2001:db8::7 - - [29/Feb/2024:23:59:59 +0100] "POST /login?next=%2F HTTP/2.0" 401 12 "-" "Mozilla/5.0 (X11; \x22quoted\x22)""#,
            "combined: 1709247599000000 2001:db8::7 - POST /login?next=%2F - 401",
        ),
        (
            r#"10.0.0.9 - - [01/Jan/2026:00:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "curl/8" "203.0.113.9" 0.004"#,
            "combined with more fields: 1767225600000000 10.0.0.9 - GET / - 200",
        ),
        (
            r#"192.0.2.8, 10.0.0.1, 198.51.100.3 - - [07/Dec/2016:11:05:07 +0100] "" 400 571 "-" "-""#,
            "combined: 1481105107000000 198.51.100.3 - - - - 400",
        ),
        (
            r#"192.0.2.9 - - [02/Oct/2017:20:22:07 +0000] "GET /a.png HTTP/1.1" 304 0 "http://example.com/x" "Mozilla/5.0" 262 "host-1" "http://172.19.0.3:5601" 2ms"#,
            "combined with more fields: 1506975727000000 192.0.2.9 - GET /a.png - 304",
        ),
        (
            r#"shop.example 192.0.2.10 - - [04/Jul/2019:09:20:46 +0200] "GET / HTTP/1.1" 200 32953 "-" "Mozilla/5.0""#,
            "combined with a virtual host: 1562224846000000 192.0.2.10 - GET / shop.example 200",
        ),
        (
            r#"Feb  6 12:14:14 localhost haproxy[14389]: 10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} "GET /index.html HTTP/1.1""#,
            "haproxy: 1233922454655000 10.0.1.2 - GET /index.html - 200",
        ),
        (
            r#"10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 "GET /a b HTTP/1.1""#,
            "haproxy: 1233922454655000 10.0.1.2 - GET /a b - 200",
        ),
        (
            r#"[2016-04-15T20:17:00.310Z] "POST /api/v1/locations HTTP/2" 204 - 154 0 226 100 "10.0.35.28, 198.51.100.4" "nsq2http" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "locations" "tcp://10.0.2.1:80""#,
            "envoy: 1460751420310000 198.51.100.4 - POST /api/v1/locations locations 204",
        ),
        (
            r#"https 2018-07-02T22:23:00.186641Z app/my-loadbalancer/50dc6c495c0c9188 192.168.131.39:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 "GET https://www.example.com:443/path?q=1 HTTP/1.1" "curl/7.46.0" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/my-targets/73e2d6bc24d8a067 "Root=1-58337281-1d84f3d73c47ec4e58577259" "www.example.com" "arn:aws:acm:us-east-2:123456789012:certificate/12345678" 1 2018-07-02T22:22:48.364000Z "authenticate,forward" "-" "-" "10.0.0.1:80" "200" "-" "-""#,
            "aws-alb: 1530570168364000 192.168.131.39 - GET /path?q=1 www.example.com 200",
        ),
        (
            r#"{"level":"info","ts":1646861401.5241024,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"127.0.0.1","remote_port":"41342","client_ip":"203.0.113.5","proto":"HTTP/2.0","method":"GET","host":"localhost","uri":"/x?y=1","headers":{"User-Agent":["curl/7.82.0"],"Accept":["*/*"]}},"bytes_read":0,"user_id":"ann","duration":0.000929675,"size":10900,"status":200}"#,
            "caddy: 1646861401524102 203.0.113.5 ann GET /x?y=1 localhost 200",
        ),
        (
            r#"{"ClientAddr":"192.0.2.1:53456","ClientHost":"192.0.2.1","ClientUsername":"-","DownstreamStatus":200,"RequestHost":"whoami.localhost","RequestMethod":"GET","RequestPath":"/api?x=1","StartUTC":"2024-05-06T07:08:09.123456789Z","time":"2024-05-06T07:08:10Z","request_User-Agent":"curl/8.5.0"}"#,
            "traefik json: 1714979289123456 192.0.2.1 - GET /api?x=1 whoami.localhost 200",
        ),
        (
            r#"{"ClientIP":"198.51.100.9","ClientRequestHost":"example.com","ClientRequestMethod":"GET","ClientRequestURI":"/a","EdgeResponseStatus":200,"EdgeStartTimestamp":1506702504433000200,"RayID":"3a6050bcbe121a87"}"#,
            "cloudflare: 1506702504433000 198.51.100.9 - GET /a example.com 200",
        ),
        (
            r#"{"start_time":"2024-05-06T07:08:09.123Z","method":"GET","path":"/p","response_code":"200","response_flags":"-","authority":"svc","x_forwarded_for":"203.0.113.1,10.1.1.1","user_agent":"a"}"#,
            "envoy json: 1714979289123000 10.1.1.1 - GET /p svc 200",
        ),
        (
            r#"{"at_us": 3000000, "attributes": {"user_id": "42", "ip": "10.0.0.1"}, "cost": 2}"#,
            "tollkeeper replay: 3000000 10.0.0.1 - - - - -",
        ),
        (
            r#"{"id":218,"at":"2026-11-15T15:36:01.921Z","rule":"login","key":"203.0.113.9","user_id":null,"ip":"203.0.113.9","endpoint":"POST /login","cost":1,"remaining":0,"retry_after_ms":47096,"count":50,"shadow":false,"mode":"enforce","blocked":null,"instance":"vm:17803"}"#,
            "tollkeeper violations: 1794756961921000 203.0.113.9 - POST /login - -",
        ),
    ];
    for (line, expected) in cases {
        assert_eq!(told(line), expected, "{line}");
    }
}

/// Shapes that were found in the fixtures of other log analysers and in people's notes (request-log-analyzer, goaccess and its clones, Istio's
/// and AWS's pages, Alloy, several collectors); the values are ours.
#[test]
fn shapes_that_others_found_in_the_wild() {
    let cases = [
        // HAProxy: nobody to send it to, logged as soon as possible, a bad request, TLS fields behind the request.
        (
            r#"haproxy[18113]: 127.0.0.1:34549 [15/Oct/2024:15:19:06.103] px-http px-http/<NOSRV> -1/-1/-1/-1/+50001 408 +2750 - - cR-- 2/2/2/0/+2 0/0 """#,
            "haproxy: 1729005546103000 127.0.0.1 - - - - 408",
        ),
        (
            r#"Oct 15 15:19:06 lb1 haproxy[2]: ::1:34549 [15/Oct/2024:15:19:06.103] www~ www/<NOSRV> -1/-1/-1/-1/0 400 187 - - PR-- 1/1/0/0/0 0/0 "<BADREQ>""#,
            "haproxy: 1729005546103000 ::1 - - - - 400",
        ),
        (
            r#"<134>Oct 15 15:19:06 haproxy[2]: 192.0.2.4:5 [15/Oct/2024:15:19:06.103] www~ api/a1 0/0/1/2/3 200 42 - - ---- 1/1/0/0/0 0/0 {x|y} "GET /v1/service HTTP/2.0" 0/0000000000000000/0/0/0 example.com/TLSv1.3/TLS_AES_256_GCM_SHA384"#,
            "haproxy: 1729005546103000 192.0.2.4 - GET /v1/service - 200",
        ),
        // Istio: a denial by policy without an upstream, and times with spaces in their brackets.
        (
            r#"[2024-10-09T11:04:06.878Z] "GET /api/v1/products HTTP/1.1" 403 - rbac_access_denied_matched_policy[ns[gate]-policy[deny-api]-rule[0]] - "-" 0 19 1 - "10.244.0.6" "curl/8.7.1" "e591" "shop.example.com" "-" outbound|9080||bridge.example - 127.0.0.1:80 127.0.0.1:48930 - -"#,
            "istio: 1728471846878000 10.244.0.6 - GET /api/v1/products shop.example.com 403",
        ),
        (
            r#"[ 2024-09-17T18:35:29.769Z ] "GET /page HTTP/1.1" 200 - via_upstream - "-" 0 4294 543 542 "10.244.0.1" "curl/8.2.1" "e5d1" "172.18.128.2" "10.0.0.1:80" outbound|9080||page.example 10.244.0.9:60828 10.244.0.9:8080 10.244.0.1:47000 - -"#,
            "istio: 1726598129769000 10.244.0.1 - GET /page 172.18.128.2 200",
        ),
        // Within a mesh nobody was forwarded for: the client is who connected.
        (
            r#"[2020-11-25T21:26:18.409Z] "GET /status/418 HTTP/1.1" 418 - via_upstream - "-" 0 135 3 1 "-" "curl/7.73.0" "84961386" "httpbin:8000" "127.0.0.1:80" inbound|8000|| 127.0.0.1:41854 10.44.1.27:80 10.44.1.23:37652 outbound_.8000_._.httpbin default"#,
            "istio: 1606339578409000 10.44.1.23 - GET /status/418 httpbin 418",
        ),
        // AWS: the load balancers of 2016, classic ones, and one whose target is gone.
        (
            r#"h2 2016-08-10T00:10:33.145057Z app/lb/50dc 10.0.1.252:48160 10.0.0.66:9000 0.000 0.002 0.000 200 200 5 257 "GET https://10.0.2.105:773/ HTTP/2.0" "curl/7.46.0" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:elasticloadbalancing:us-west-2:1:targetgroup/t/73e2 "Root=1-58337327-72bd""#,
            "aws-alb with few fields: 1470787833145057 10.0.1.252 - GET / 10.0.2.105 200",
        ),
        (
            r#"2024-01-15T10:30:45.123456Z my-lb 192.168.1.1:48724 10.0.0.1:80 0.001 0.002 0.000 200 200 0 257 "GET http://example.com:80/a?b=c HTTP/1.1" "curl/8" - -"#,
            "aws-elb: 1705314645123456 192.168.1.1 - GET /a?b=c example.com 200",
        ),
        (
            r#"http 2018-11-30T22:23:00.186641Z app/lb/50dc 192.168.131.39:2817 - -1 -1 -1 502 - 34 366 "GET http://www.example.com:80/ HTTP/1.1" "curl/7.46.0" - - arn:aws:elasticloadbalancing:us-east-2:1:targetgroup/t/73e2 "Root=1-5833" "-" "-" 0 2018-11-30T22:22:48.364000Z "forward" "-" "-" "-" "-" "-" "-" TID_1234"#,
            "aws-alb: 1543616568364000 192.168.131.39 - GET / www.example.com 502",
        ),
        // Cloudflare: times as text, paths apart from queries, nested headers and empty lists.
        (
            r#"{"RayID":"8ec7","EdgeStartTimestamp":"2024-12-04T00:36:43Z","ClientIP":"2001:db8::9","ClientRequestHost":"shop.example","ClientRequestPath":"/x","ClientRequestMethod":"GET","ContentScanObjResults":[],"Cookies":{},"RequestHeaders":{},"EdgeResponseStatus":200,"EdgeCFConnectingO2O":false,"EdgeResponseCompressionRatio":3.1}"#,
            "cloudflare: 1733272603000000 2001:db8::9 - GET /x shop.example 200",
        ),
        // Caddy: milliseconds, text, and the names of version 2.4.
        (
            r#"{"level":"info","ts":1646861401524.1024,"logger":"http.log.access.log0","msg":"handled request","request":{"remote_addr":"192.0.2.7:41342","proto":"HTTP/2.0","method":"GET","host":"a.example","uri":"/","headers":{"User-Agent":["curl"]}},"status":404}"#,
            "caddy: 1646861401524102 192.0.2.7 - GET / a.example 404",
        ),
        (
            r#"{"level":"info","ts":"2022/03/09 21:30:01.524","logger":"http.log.access","msg":"handled request","request":{"client_ip":"192.0.2.7","method":"GET","host":"a.example","uri":"/"},"status":200}"#,
            "caddy: 1646861401524000 192.0.2.7 - GET / a.example 200",
        ),
        // Traefik without the time of arrival, and Envoy Gateway.
        (
            r#"{"time":"2026-02-24T12:00:00Z","level":"info","msg":"","ClientAddr":"10.244.0.1:54321","ClientHost":"10.244.0.1","DownstreamStatus":200,"RequestHost":"api.example","RequestMethod":"POST","RequestPath":"/v1/chat"}"#,
            "traefik json: 1771934400000000 10.244.0.1 - POST /v1/chat api.example 200",
        ),
        (
            r#"{"start_time":"2024-05-06T07:08:09.123Z","method":"GET","x-envoy-origin-path":"/p?q=1","response_code":200,"response_flags":"-","x-forwarded-for":"203.0.113.1","user-agent":"a",":authority":"svc.example","downstream_remote_address":"10.1.1.1:999","upstream_host":null}"#,
            "envoy json: 1714979289123000 203.0.113.1 - GET /p?q=1 svc.example 200",
        ),
        // Gateways of clouds, and nginx behind Cloudflare.
        (
            r#"{"requestId":"x","ip":"192.0.2.1","requestTime":"09/Apr/2025:12:34:56 +0000","httpMethod":"GET","resourcePath":"/pets/{id}","status":"200","domainName":"api.example"}"#,
            "json: 1744202096000000 192.0.2.1 - GET /pets/{id} api.example 200",
        ),
        (
            r#"{"httpRequest":{"requestMethod":"GET","requestUrl":"https://a.example/x?y=1","status":200,"userAgent":"curl","remoteIp":"192.0.2.1"},"timestamp":"2025-04-09T12:34:56.5Z","severity":"INFO"}"#,
            "json: 1744202096500000 192.0.2.1 - GET /x?y=1 a.example 200",
        ),
        (
            r#"{"time_iso8601":"2026-08-19T12:00:00+00:00","cf_connecting_ip":"203.0.113.9","remote_addr":"172.64.0.1","host":"shop.example","request_method":"GET","request_uri":"/x","status":200,"request_time":0.05}"#,
            "json: 1787140800000000 203.0.113.9 - GET /x shop.example 200",
        ),
        // nginx's ingress for Kubernetes, and what scanners send.
        (
            r#"192.0.2.3 - - [04/Apr/2024:09:02:13 +0800] "GET /api HTTP/1.1" 200 15 "-" "curl/8" 78 0.002 [default-web-80] [] 10.1.0.7:80 15 0.002 200 4f2b"#,
            "combined with more fields: 1712192533000000 192.0.2.3 - GET /api - 200",
        ),
        (
            r#"192.0.2.5 - - [04/Apr/2024:09:02:13 +0800] "\x16\x03\x01\x00\xEE\x01 ~W\xB9\x94Qs'\xA8pB" 400 163 "-" "-""#,
            "combined: 1712192533000000 192.0.2.5 - - - - 400",
        ),
        (
            r#"192.0.2.6 - - [04/Apr/2024:09:02:13 +0800] "GET /index.php?s=/\x22><script> HTTP/1.1" 404 163 "-" "() { :; }; echo \x22x\x22""#,
            "combined: 1712192533000000 192.0.2.6 - GET /index.php?s=/\"><script> - 404",
        ),
    ];
    for (line, expected) in cases {
        assert_eq!(told(line), expected, "{line}");
    }
}

#[test]
fn headers_and_attributes_have_the_names_that_rules_use() {
    let line = r#"1.2.3.4 - - [01/Jan/2026:00:00:00 +0000] "GET / HTTP/1.1" 200 5 "https://x.example/\"" "a\\b""#;
    let entry = detect(line).read(line).expect("readable").expect("a request");
    let named: Vec<_> = entry.others.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(named, [r#"header.referer=https://x.example/""#, r"header.user-agent=a\b"]);

    let line = r#"{"at_us": 1, "attributes": {"user_id": "42", "plan": "free"}, "cost": 3}"#;
    let entry = detect(line).read(line).expect("readable").expect("a request");
    assert_eq!(entry.others, [("user_id".into(), "42".into()), ("plan".into(), "free".into())]);
    assert_eq!(entry.cost, Some(3));
}

#[test]
fn a_format_as_written_in_the_servers_configuration() {
    let nginx = r#"log_format  main  '$remote_addr - $remote_user [$time_iso8601] "$request" '
                      '$status $upstream_response_time "$http_x_api_key" ${host}';"#;
    let mut format = Format::named(nginx).expect("compiles");
    let line =
        r#"1.2.3.4 - - [2026-01-01T00:00:00+00:00] "GET /x HTTP/1.1" 200 0.001, 0.002 : 0.003 "k1" api.example.com"#;
    let entry = format.read(line).expect("readable").expect("a request");
    assert_eq!(brief(&entry), "1767225600000000 1.2.3.4 - GET /x api.example.com 200");
    assert_eq!(entry.others, [("header.x-api-key".into(), "k1".into())]);

    let apache = r#"LogFormat "%h %l %u %t \"%r\" %>s %b \"%{X-Api-Key}i\"" keyed"#;
    let mut format = Format::named(apache).expect("compiles");
    let line = r#"1.2.3.4 - bob [10/Oct/2000:13:55:36 -0700] "GET /x HTTP/1.0" 200 - "k1""#;
    assert_eq!(
        brief(&format.read(line).expect("readable").expect("a request")),
        "971211336000000 1.2.3.4 bob GET /x - 200"
    );

    let error = |format: &str| Template::compile(format).expect_err(format).to_string();
    assert!(error("$remote_addr$status [$time_local]").contains("no text between them"));
    assert!(error("$remote_addr \"$request\"").contains("has no time"));
    assert!(error("nothing").contains("no variables"));
    assert!(Format::named("ngnix").expect_err("unknown").to_string().contains("use one of combined"));
}

#[test]
fn columns_are_named_by_the_file() {
    let lines = [
        "#Version: 1.0",
        "#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) cs(User-Agent) cs-uri-query",
        "2019-12-04\t21:02:31\tLAX1\t392\t192.0.2.100\tGET\td111111abcdef8.cloudfront.net\t/index.html\t200\t-\tMozilla/5.0%20(Windows)\ta=b",
        "2019-12-04\t21:02:32\tLAX1\t392\t192.0.2.100\tGET\td111111abcdef8.cloudfront.net\t/\t200\t-\tcurl\t-",
    ];
    let mut format = Format::detect(&lines).expect("detected");
    let entries: Vec<String> =
        lines.iter().filter_map(|line| format.read(line).expect("readable").map(|entry| brief(&entry))).collect();
    assert_eq!(
        entries,
        ["1575493351000000 192.0.2.100 - GET /index.html?a=b - 200", "1575493352000000 192.0.2.100 - GET / - 200"]
    );
    assert_eq!(format.precision(), Precision::Seconds);
}

#[test]
fn a_bad_line_says_what_is_wrong() {
    let good = r#"1.2.3.4 - - [01/Jan/2026:00:00:00 +0000] "GET / HTTP/1.1" 200 5"#;
    let mut format = detect(good);
    let mut reason = |line: &str| format.read(line).expect_err(line).to_string();
    assert_eq!(
        reason(r#"1.2.3.4 - - [01/Foo/2026:00:00:00 +0000] "GET / HTTP/1.1" 200 5"#),
        r#"$time_local: "01/Foo/2026:00:00:00 +0000" is not a time"#
    );
    assert_eq!(
        reason(r#"1.2.3.4 - - [01/Jan/2026:00:00:00 +0000] "GET / HTTP/1.1" abc 5"#),
        r#"$status: "abc" is not a status code"#
    );
    assert_eq!(reason("hello"), r#"" " after $remote_addr is missing"#);
    // What a client sent instead of a request is still a request of that client.
    let entry = format
        .read(r#"1.2.3.4 - - [01/Jan/2026:00:00:00 +0000] "\x16\x03\x01" 400 5"#)
        .expect("readable")
        .expect("a request");
    assert_eq!((entry.method, entry.target, entry.status), (None, None, Some(400)));
}

#[test]
fn times_in_every_zone_and_fraction() {
    let at = |time: &str| {
        let mut format = Format::named("$time_iso8601 $remote_addr").expect("compiles");
        let line = format!("{time} 1.2.3.4");
        format.read(&line).map(|entry| entry.expect("a request").at_us).map_err(|error| error.to_string())
    };
    assert_eq!(at("1970-01-01T00:00:00Z"), Ok(0));
    assert_eq!(at("2000-02-29T12:00:00+05:30"), Ok(951_805_800_000_000));
    assert_eq!(at("1700000000.25"), Ok(1_700_000_000_250_000));
    assert_eq!(at("1700000000250"), Ok(1_700_000_000_250_000));
    assert_eq!(at("2016-12-31T23:59:60Z"), Ok(1_483_228_799_000_000));
    for wrong in
        ["2023-02-29T00:00:00Z", "2023-13-01T00:00:00Z", "2023-01-01T24:00:00Z", "1969-12-31T23:59:59Z", "soon"]
    {
        assert!(at(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_record_of_violations_may_stand_for_many_requests() {
    let line = |mode: &str| {
        format!(
            r#"{{"at":"2026-11-15T15:36:01Z","ip":"192.0.2.1","endpoint":"GET /","retry_after_ms":null,"count":50,"mode":"{mode}"}}"#
        )
    };
    let count = |line: &str| detect(line).read(line).expect("readable").expect("a request").count;
    assert_eq!(count(&line("shadow")), 50);
    assert_eq!(count(&line("fast")), 1, "what others call a count is not one of requests");
}
