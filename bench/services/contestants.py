"""Every server that is compared: how it is started, and the request that it gets. All enforce a limit that nobody reaches, per user, unless
a row says otherwise; keys are drawn uniformly from 10,000."""

import dataclasses
import json
import pathlib
import subprocess
import tempfile

from processes import Process, free_port

KEY = "########"  # Where the load puts the key.
PLENTY = 1_000_000  # Requests a second and client.


@dataclasses.dataclass
class Running:
    """A contestant that has been started."""

    protocol: str
    port: int
    request: bytes
    service: Process
    others: dict = dataclasses.field(default_factory=dict)
    path: str = "/"

    def stop(self):
        for process in [self.service, *self.others.values()]:
            process.stop()


def post(path, document):
    body = json.dumps(document, separators=(",", ":"))
    return (f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n{body}").encode()


def get(path):
    return f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nx-api-key: {KEY}\r\n\r\n".encode()


def resp(*words):
    return f"*{len(words)}\r\n".encode() + b"".join(f"${len(word)}\r\n{word}\r\n".encode() for word in words)


def field(number, value):
    """A field of a protobuf message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value):
    encoded = b""
    while value > 127:
        encoded += bytes([value & 127 | 128])
        value >>= 7
    return encoded + bytes([value])


# As our service schedules its busy threads.
BATCH = ("chrt", "--batch", "0")
RLS_PATH = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
CHECK = post("/v1/check", {"attributes": {"user_id": KEY, "plan": "free"}})
THROTTLE = resp("CL.THROTTLE", KEY, str(PLENTY), str(PLENTY), "1")


def rls(*attributes):
    entries = b"".join(field(1, field(1, name) + field(2, value)) for name, value in attributes)
    return field(1, "bench") + field(2, entries)


RLS = rls(("user_id", KEY), ("plan", "free"))


class Contestants:
    """What can be started, given the programs."""

    def __init__(self, tollkeeper, peers):
        self.tollkeeper, self.peers = str(pathlib.Path(tollkeeper).resolve()), peers

    # Tollkeeper.

    def rules(self, count):
        names = [("per-user", "{user_id}"), ("per-plan", "{plan}"), ("everybody", "global")][:count]
        return "rules:\n" + "".join(
            f'  - {{name: {name}, key: "{key}", limit: {PLENTY}/s}}\n' for name, key in names
        )

    def serve(self, rules="", redis=None, only_http=False):
        """Returns the process and its ports for HTTP, gRPC and RESP."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tollkeeper-bench-"))
        (folder / "rules.yaml").write_text(rules or self.rules(1))
        http, grpc, resp_port = free_port(), free_port(), free_port()
        command = [self.tollkeeper, "serve", "--config", "rules.yaml", "--http", f"127.0.0.1:{http}"]
        if not only_http:
            command += ["--grpc", f"127.0.0.1:{grpc}", "--resp", f"127.0.0.1:{resp_port}"]
        if redis:
            command += ["--store", f"redis://127.0.0.1:{redis.port}"]
        process = Process("tollkeeper", command, http, {"RUST_LOG": "warn"}, folder)
        return process, http, grpc, resp_port

    def ours_http(self, rules=1, redis=False):
        redis = self.redis() if redis else None
        process, port, _, _ = self.serve(self.rules(rules), redis)
        return Running("http", port, CHECK, process, {"redis": redis} if redis else {})

    def ours_authorize(self):
        rules = f'identify: {{user_id: header.x-api-key}}\n{self.rules(1)}'
        process, port, _, _ = self.serve(rules)
        return Running("http", port, get("/v1/authorize"), process)

    def ours_grpc(self, rules=1, redis=False):
        redis = self.redis() if redis else None
        process, _, port, _ = self.serve(self.rules(rules), redis)
        return Running("grpc", port, RLS, process, {"redis": redis} if redis else {}, RLS_PATH)

    def ours_resp(self, redis=False):
        redis = self.redis() if redis else None
        process, _, _, port = self.serve(redis=redis)
        return Running("resp", port, THROTTLE, process, {"redis": redis} if redis else {})

    def ours_proxy(self, limit):
        upstream, port = self.upstream(), free_port()
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tollkeeper-bench-"))
        command = [self.tollkeeper, "proxy", "--upstream", f"http://127.0.0.1:{upstream.port}", "--listen", f"127.0.0.1:{port}"]
        if limit:
            command += ["--limit", f"{limit} by header.x-api-key"]
        else:
            (folder / "rules.yaml").write_text('rules:\n  - {name: never, when: {path: /never}, key: "{ip}", limit: 1/s}\n')
            command += ["--config", "rules.yaml"]
        process = Process("tollkeeper", command, port, {"RUST_LOG": "warn"}, folder)
        return Running("http", port, get("/"), process, {"upstream": upstream})

    # Servers that do nothing.

    def floor(self, kind, *arguments, scheduled=()):
        port = free_port()
        return Process(f"floor {kind}", [*scheduled, self.peers["floor"], kind, port, *arguments], port)

    def upstream(self):
        return self.floor("upstream")

    def redis(self, *arguments, environment=None):
        port = free_port()
        command = [self.peers["redis-server"], "--port", port, "--bind", "127.0.0.1", "--save", "", *arguments]
        return Process("redis", command, port, environment)

    def floor_http(self, request=CHECK, scheduled=()):
        process = self.floor("http", scheduled=scheduled)
        return Running("http", process.port, request, process)

    def floor_grpc(self, scheduled=()):
        process = self.floor("grpc", scheduled=scheduled)
        return Running("grpc", process.port, RLS, process, path=RLS_PATH)

    def floor_resp(self, scheduled=()):
        process = self.floor("resp", scheduled=scheduled)
        return Running("resp", process.port, THROTTLE, process)

    def floor_proxy(self):
        upstream = self.upstream()
        process = self.floor("proxy", upstream.port)
        return Running("http", process.port, get("/"), process, {"upstream": upstream})

    # Peers.

    def throttlecrab(self, protocol):
        port = free_port()
        command = [self.peers["throttlecrab-server"], f"--{protocol}", f"--{protocol}-host", "127.0.0.1", f"--{protocol}-port", port,
                   "--log-level", "error"]
        process = Process("throttlecrab", command, port)
        # A limit of 32 bits.
        burst, count, period = PLENTY, 60 * PLENTY, 60
        if protocol == "http":
            request = post("/throttle", {"key": KEY, "max_burst": burst, "count_per_period": count, "period": period})
            return Running("http", port, request, process)
        if protocol == "grpc":
            message = field(1, KEY) + field(2, burst) + field(3, count) + field(4, period) + field(5, 1)
            return Running("grpc", port, message, process, path="/throttlecrab.RateLimiter/Throttle")
        return Running("resp", port, resp("THROTTLE", KEY, str(burst), str(count), str(period)), process)

    def limitador(self, protocol, rules="one", redis=False):
        if redis:
            raise RuntimeError("its Redis storage (0.14.0) does not compile without RocksDB, and its server is in no registry")
        port = free_port()
        process = Process("limitador", [self.peers["limitador"], protocol, port, rules], port)
        return Running(protocol, port, CHECK if protocol == "http" else RLS, process, path=RLS_PATH)

    def ratelimit(self, protocol):
        redis, http, grpc = self.redis(), free_port(), free_port()
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tollkeeper-bench-"))
        (folder / "runtime" / "config").mkdir(parents=True)
        (folder / "runtime" / "config" / "bench.yaml").write_text(
            f"domain: bench\ndescriptors:\n  - key: user_id\n    rate_limit: {{unit: second, requests_per_unit: {PLENTY}}}\n"
        )
        environment = {
            "RUNTIME_ROOT": str(folder), "RUNTIME_SUBDIRECTORY": "runtime", "RUNTIME_WATCH_ROOT": "false", "USE_STATSD": "false",
            "REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": f"127.0.0.1:{redis.port}", "LOG_LEVEL": "error", "HOST": "127.0.0.1", "PORT": str(http),
            "GRPC_HOST": "127.0.0.1", "GRPC_PORT": str(grpc), "DEBUG_HOST": "127.0.0.1", "DEBUG_PORT": str(free_port()),
        }
        port = http if protocol == "http" else grpc
        process = Process("ratelimit", [self.peers["ratelimit"]], port, environment, folder)
        if protocol == "http":
            document = {"domain": "bench", "descriptors": [{"entries": [{"key": "user_id", "value": KEY}]}]}
            return Running("http", http, post("/json", document), process, {"redis": redis})
        return Running("grpc", grpc, rls(("user_id", KEY)), process, {"redis": redis}, RLS_PATH)

    def gubernator(self, protocol):
        http, grpc, members = free_port(), free_port(), free_port()
        # A cluster of one: without members it answers every check with an error.
        environment = {
            "GUBER_HTTP_ADDRESS": f"127.0.0.1:{http}", "GUBER_GRPC_ADDRESS": f"127.0.0.1:{grpc}",
            "GUBER_ADVERTISE_ADDRESS": f"127.0.0.1:{grpc}", "GUBER_MEMBERLIST_ADVERTISE_ADDRESS": f"127.0.0.1:{grpc}",
            "GUBER_MEMBERLIST_ADDRESS": f"127.0.0.1:{members}", "GUBER_MEMBERLIST_BIND_ADDRESS": f"127.0.0.1:{members}",
            "GUBER_MEMBERLIST_KNOWN_NODES": f"127.0.0.1:{members}", "GUBER_LOG_LEVEL": "error", "OTEL_TRACES_EXPORTER": "none",
        }
        process = Process("gubernator", [self.peers["gubernator"]], http if protocol == "http" else grpc, environment)
        if protocol == "http":
            limit = {"name": "bench", "unique_key": KEY, "hits": "1", "limit": str(PLENTY), "duration": "1000"}
            return Running("http", http, post("/v1/GetRateLimits", {"requests": [limit]}), process)
        limit = field(1, "bench") + field(2, KEY) + field(3, 1) + field(4, PLENTY) + field(5, 1000)
        return Running("grpc", grpc, field(1, limit), process, path="/pb.gubernator.V1/GetRateLimits")

    def redis_cell(self):
        # The crate is a Rust dynamic library, which needs that of the standard library.
        libraries = subprocess.run(["rustc", "--print", "target-libdir"], capture_output=True, text=True, check=True).stdout.strip()
        redis = self.redis("--loadmodule", self.peers["redis-cell"], environment={"LD_LIBRARY_PATH": libraries})
        return Running("resp", redis.port, THROTTLE, redis)

    def nginx(self, denies):
        upstream, port = self.upstream(), free_port()
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tollkeeper-bench-"))
        limit = "rate=1r/m" if denies else f"rate={PLENTY}r/s"
        burst = "" if denies else f"burst={PLENTY} nodelay"
        (folder / "nginx.conf").write_text(f"""
            daemon off; worker_processes 2; pid {folder}/pid; error_log {folder}/error crit;
            events {{ worker_connections 20000; }}
            http {{
                access_log off; keepalive_requests 1000000000;
                client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u;
                scgi_temp_path {folder}/s;
                limit_req_zone $http_x_api_key zone=z:32m {limit}; limit_req_status 429; limit_req_log_level info;
                upstream behind {{ server 127.0.0.1:{upstream.port}; keepalive 64; keepalive_requests 1000000000; }}
                server {{
                    listen 127.0.0.1:{port};
                    location / {{
                        limit_req zone=z {burst}; proxy_pass http://behind; proxy_http_version 1.1; proxy_set_header Connection "";
                    }}
                }}
            }}""")
        process = Process("nginx", [self.peers["nginx"], "-p", folder, "-c", folder / "nginx.conf"], port, folder=folder)
        return Running("http", port, get("/"), process, {"upstream": upstream})

    def haproxy(self, denies):
        upstream, port = self.upstream(), free_port()
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tollkeeper-bench-"))
        period, most = ("60s", 1) if denies else ("1s", PLENTY)
        (folder / "haproxy.cfg").write_text(f"""
global
    nbthread 2
    maxconn 2000
defaults
    mode http
    timeout client 30s
    timeout server 30s
    timeout connect 5s
frontend front
    bind 127.0.0.1:{port}
    stick-table type string len 32 size 1m expire 60s store http_req_rate({period})
    http-request track-sc0 req.hdr(x-api-key)
    http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt {most} }}
    default_backend behind
backend behind
    http-reuse always
    server upstream 127.0.0.1:{upstream.port}
""")
        process = Process("haproxy", [self.peers["haproxy"], "-db", "-f", folder / "haproxy.cfg"], port, folder=folder)
        return Running("http", port, get("/"), process, {"upstream": upstream})

    def envoy(self, limiter):
        """Envoy in front of the upstream. `limiter` is a running gRPC contestant, or None for no limits at all."""
        upstream, port = self.upstream(), free_port()
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tollkeeper-bench-"))
        (folder / "envoy.json").write_text(json.dumps(envoy_config(port, upstream.port, limiter.port if limiter else None)))
        command = [self.peers["envoy"], "-c", folder / "envoy.json", "--concurrency", "1", "--disable-hot-restart", "-l", "error"]
        process = Process("envoy", command, port, folder=folder)
        others = {"upstream": upstream}
        if limiter:
            # What is judged is the limiter; Envoy is one of the others.
            return Running("http", port, get("/"), limiter.service, {"envoy": process, **others, **limiter.others})
        return Running("http", port, get("/"), process, others)


def envoy_config(port, upstream, limiter):
    def cluster(name, port, http2):
        endpoint = {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}}
        made = {"name": name, "type": "STATIC", "connect_timeout": "1s",
                "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]}}
        if http2:
            options = {"@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                       "explicit_http_config": {"http2_protocol_options": {}}}
            made["typed_extension_protocol_options"] = {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options}
        return made

    filters = [{"name": "router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}]
    route = {"match": {"prefix": "/"}, "route": {"cluster": "upstream"}}
    clusters = [cluster("upstream", upstream, False)]
    if limiter:
        filters.insert(0, {"name": "ratelimit", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit",
            "domain": "bench", "timeout": "1s", "failure_mode_deny": True,
            "rate_limit_service": {"transport_api_version": "V3", "grpc_service": {"envoy_grpc": {"cluster_name": "limiter"}}},
        }})
        action = {"request_headers": {"header_name": "x-api-key", "descriptor_key": "user_id"}}
        route["route"]["rate_limits"] = [{"actions": [action]}]
        clusters.append(cluster("limiter", limiter, True))
    manager = {"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
               "stat_prefix": "bench", "http_filters": filters, "generate_request_id": False,
               "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]}}
    return {"static_resources": {
        "listeners": [{"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
                       "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}]}],
        "clusters": clusters,
    }}
