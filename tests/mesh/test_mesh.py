"""The manifests of docs/howto/envoy-gateway.md, for which no cluster is at hand: they have the form that Istio and Envoy Gateway
accept, and what these make of them is run by a real Envoy in front of the service.

The forms are the custom resource definitions in the Go modules of both projects. It needs the service in target/debug.
"""

import collections
import http.client
import json
import os
import re
import socket
import subprocess
import tempfile
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import jsonschema
import yaml

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/howto/envoy-gateway.md"
BINARY = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "debug/tollkeeper"
MODULES = {
    "istio.io/api@v1.31.1": "kubernetes/customresourcedefinitions.gen.yaml",
    "github.com/envoyproxy/gateway@v1.9.0": "charts/gateway-helm/charts/crds/crds/generated/*.yaml",
}
HANGS = 30


def blocks():
    """The YAML blocks of the page, also those inside lists."""
    found = re.findall(r"^( *)```yaml\n(.*?)^\1```$", PAGE.read_text(), re.S | re.M)
    return [yaml.safe_load(re.sub(f"^{indent}", "", text, flags=re.M)) for indent, text in found]


def manifest(kind):
    [found] = [block for block in blocks() if block.get("kind") == kind]
    return found


def rules():
    [found] = [block for block in blocks() if "rules" in block]
    return found


def definitions():
    """The custom resource definitions, by kind and version."""
    found = {}
    for module, pattern in MODULES.items():
        done = subprocess.run(["go", "mod", "download", "-json", module], capture_output=True, text=True, check=True, cwd=tempfile.gettempdir())
        for path in Path(json.loads(done.stdout)["Dir"]).glob(pattern):
            for each in yaml.safe_load_all(path.read_text()):
                for version in (each or {}).get("spec", {}).get("versions", []):
                    found[each["spec"]["names"]["kind"], f"{each['spec']['group']}/{version['name']}"] = version["schema"]["openAPIV3Schema"]
    return found


def strict(schema):
    """The same, where a field that it does not name is an error: a cluster would drop it, or refuse the object."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: strict(value) for name, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        made.pop("type", None)
    return made


class Forms(unittest.TestCase):
    def test_manifests_are_what_istio_and_envoy_gateway_accept(self):
        known = definitions()
        for kind in ["EnvoyFilter", "SecurityPolicy"]:
            found = manifest(kind)
            form = strict(known[kind, found["apiVersion"]]["properties"]["spec"])
            with self.subTest(kind):
                jsonschema.validate(found["spec"], form)
                with self.assertRaises(jsonschema.ValidationError, msg="a field that does not exist is found"):
                    jsonschema.validate({**found["spec"], "wrong": 1}, form)


class Application(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def cluster(name, port, http2=False):
    options = {"http2_protocol_options": {}} if http2 else {"http_protocol_options": {}}
    kind = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    endpoint = {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}}
    return {
        "name": name,
        "connect_timeout": "1s",
        "typed_extension_protocol_options": {kind: {"@type": f"type.googleapis.com/{kind}", "explicit_http_config": options}},
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }


def bootstrap(port, filters, virtual_host, clusters):
    """A gateway as both projects make it: the address of the connection is the client's, one route to the application."""
    router = {"name": "envoy.filters.http.router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "web",
        "use_remote_address": True,
        "http_filters": [*filters, router],
        "route_config": {
            "virtual_hosts": [{"name": "shop", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "application"}}], **virtual_host}]
        },
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    address = {"socket_address": {"address": "0.0.0.0", "port_value": port}}
    return {"static_resources": {"listeners": [{"name": "web", "address": address, "filter_chains": [chain]}], "clusters": clusters}}


def addresses():
    """Those of this machine: Envoy adds one of them to X-Forwarded-For when it asks, in a cluster that of its pod."""
    done = subprocess.run(["ip", "-json", "address"], capture_output=True, text=True, check=True)
    return ["127.0.0.1/32", *(one["local"] for link in json.loads(done.stdout) for one in link["addr_info"] if link["ifname"] != "lo")]


class Gateway(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.application = ThreadingHTTPServer(("127.0.0.1", 0), Application)
        threading.Thread(target=self.application.serve_forever, daemon=True).start()
        self.addCleanup(self.application.server_close)
        self.addCleanup(self.application.shutdown)

    def start(self, name, command, port):
        log = Path(self.folder.name, f"{name}.log")
        with log.open("w") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, "HOME": self.folder.name})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + HANGS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    self.fail(f"{name} does not start: {log.read_text()[-3000:]}")
                time.sleep(0.05)

    def written(self, name, value):
        path = Path(self.folder.name, name)
        path.write_text(json.dumps(value))
        return str(path)

    def serve(self, config, http_port, grpc_port=None):
        config["listen"] = {"http": f"127.0.0.1:{http_port}", **({"grpc": f"127.0.0.1:{grpc_port}"} if grpc_port else {})}
        self.start("tollkeeper", [BINARY, "serve", "--config", self.written("tollkeeper.yaml", config)], http_port)

    def envoy(self, config, port):
        [program] = ROOT.glob("target/tools/lib/python3*/site-packages/envoy/_bin/envoy")
        self.start("envoy", [program, "-c", self.written("envoy.json", config), "--concurrency", "1", "--disable-hot-restart", "-l", "error"], port)

    def ask(self, port, path="/", headers=None, source="127.0.0.1"):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANGS, source_address=(source, 0))
        connection.request("GET", path, headers=headers or {})
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer

    def test_the_patches_for_istio_limit_users_and_addresses(self):
        web, api, grpc = free_port(), free_port(), free_port()
        patches = manifest("EnvoyFilter")["spec"]["configPatches"]
        [inserted] = [each["patch"]["value"] for each in patches if each["applyTo"] == "HTTP_FILTER"]
        [merged] = [each["patch"]["value"] for each in patches if each["applyTo"] == "VIRTUAL_HOST"]
        name = inserted["typed_config"]["rate_limit_service"]["grpc_service"]["envoy_grpc"]["cluster_name"]
        self.assertEqual(name.split("|")[1], str(rules()["listen"]["grpc"].rsplit(":", 1)[1]), "the port that the rules listen on")
        # Under load, late answers would be let pass.
        inserted["typed_config"].update(timeout="10s", failure_mode_deny=True)
        self.serve(rules(), api, grpc)
        self.envoy(bootstrap(web, [inserted], merged, [cluster(name, grpc, http2=True), cluster("application", self.application.server_port)]), web)
        of_ann = collections.Counter(self.ask(web, headers={"x-user": "ann"}, source=f"127.0.1.{turn % 20 + 1}").status for turn in range(110))
        # A hundred a minute, and what is refilled meanwhile.
        self.assertGreaterEqual(of_ann[200], 100)
        self.assertGreaterEqual(of_ann[429], 1, of_ann)
        self.assertEqual(self.ask(web, headers={"x-user": "bob"}, source="127.0.2.1").status, 200)

    def test_the_policy_for_envoy_gateway_limits_each_client(self):
        web, api = free_port(), free_port()
        policy = manifest("SecurityPolicy")["spec"]["extAuth"]
        # As Envoy Gateway 1.9 translates it (internal/xds/translator/extauth.go).
        asking = {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz",
            "transport_api_version": "V3",
            "failure_mode_allow": False,
            "allowed_headers": {"patterns": [{"exact": name, "ignore_case": True} for name in policy["headersToExtAuth"]]},
            "http_service": {
                "path_prefix": policy["http"]["path"],
                "server_uri": {"uri": f"http://tollkeeper{policy['http']['path']}", "cluster": "tollkeeper", "timeout": "10s"},
            },
        }
        self.serve(
            {
                "trusted_proxies": addresses(),
                "rules": [
                    {"name": "per-address", "key": "{ip}", "limit": "3/day"},
                    {"name": "login", "key": "{ip}", "limit": "1/day", "when": {"path": "/login"}},
                ],
            },
            api,
        )
        filters = [{"name": "envoy.filters.http.ext_authz", "typed_config": asking}]
        self.envoy(bootstrap(web, filters, {}, [cluster("tollkeeper", api), cluster("application", self.application.server_port)]), web)
        statuses = [self.ask(web, path, source="127.0.1.1").status for path in ["/login", "/login", "/", "/", "/"]]
        self.assertEqual(statuses, [200, 429, 200, 200, 429])
        denied = self.ask(web, source="127.0.1.1", headers={"x-forwarded-for": "203.0.113.9"})
        self.assertEqual((denied.status, denied.getheader("content-type")), (429, "application/problem+json"), "nobody chooses an address")
        self.assertTrue(denied.getheader("retry-after"))
        self.assertEqual(self.ask(web, source="127.0.1.2").status, 200, "another client has a bucket of its own")


if __name__ == "__main__":
    unittest.main()
