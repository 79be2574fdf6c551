"""The Helm chart makes what the plain manifests make, and objects that Kubernetes accepts whatever is set.

HELM names the program; the plain manifests in deploy/kubernetes are the reference.
"""

import os
import subprocess
import unittest
from pathlib import Path

import kubernetes_validate
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/tollkeeper"
HELM = os.environ.get("HELM", str(ROOT / "target/tools/bin/helm"))

# Labels that only the chart has: they say which release an object belongs to.
OF_RELEASES = {"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart"}


def helm(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([HELM, *arguments], capture_output=True, text=True, check=False)


def rendered(*flags: str, release: str = "tollkeeper") -> str:
    done = helm("template", release, str(CHART), *flags)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout


def objects(text: str) -> dict[tuple[str, str], dict]:
    found = [entry for entry in yaml.safe_load_all(text) if entry]
    return {(entry["kind"], entry["metadata"]["name"]): entry for entry in found}


def without_release(value):
    """The same without what names a release: its labels, and the checksum that kustomize has in a name instead."""
    if isinstance(value, list):
        return [without_release(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    kept = {}
    for name, entry in value.items():
        if name in OF_RELEASES or name == "checksum/rules":
            continue
        entry = without_release(entry)
        if entry == {} and name in ("annotations", "labels"):
            continue
        kept[name] = entry
    return kept


class Chart(unittest.TestCase):
    maxDiff = None

    def test_by_default_it_is_the_plain_manifests(self) -> None:
        plain = {}
        for name in ["tollkeeper.yaml", "redis.yaml"]:
            plain |= objects((ROOT / "deploy/kubernetes" / name).read_text(encoding="utf-8"))
        made = objects(rendered())
        rules = made.pop(("ConfigMap", "tollkeeper-rules"))
        reference = (ROOT / "deploy/kubernetes/rules.yaml").read_text(encoding="utf-8")
        self.assertEqual(yaml.safe_load(rules["data"]["rules.yaml"]), yaml.safe_load(reference))
        self.assertEqual(sorted(made), sorted(plain))
        for identity, entry in made.items():
            entry, expected = without_release(entry), without_release(plain[identity])
            # The plain manifests label only what somebody selects by a label.
            entry["metadata"].pop("labels", None)
            expected["metadata"].pop("labels", None)
            self.assertEqual(entry, expected, identity)

    def test_kubernetes_accepts_it_whatever_is_set(self) -> None:
        settings = [
            [],
            ["--set", "redis.enabled=false,replicas=5,service.type=LoadBalancer,image.tag=1.2.3,image.pullPolicy=Always,minAvailable=50%"],
            ["--set", "image.pullSecrets[0].name=registry,env[0].name=TOLLKEEPER_STORE,env[0].value=redis://db:6379"],
            ["--set-json", 'tolerations=[{"key":"a","operator":"Exists"}]', "--set", "nodeSelector.disk=ssd,podAnnotations.team=edge"],
        ]
        for flags in settings:
            for release in ["tollkeeper", "edge"]:
                for entry in objects(rendered(*flags, release=release)).values():
                    kubernetes_validate.validate(entry, kubernetes_validate.latest_version(), strict=True)

    def test_releases_with_other_names_share_nothing(self) -> None:
        first, second = objects(rendered(release="edge")), objects(rendered(release="inner"))
        self.assertFalse(set(first) & set(second))
        text = rendered(release="edge")
        self.assertIn("redis://edge-tollkeeper-redis:6379", text)
        self.assertIn(("Service", "edge-tollkeeper-redis"), first)
        selector = first["Service", "edge-tollkeeper"]["spec"]["selector"]
        labels = first["Deployment", "edge-tollkeeper"]["spec"]["template"]["metadata"]["labels"]
        self.assertLessEqual(selector.items(), labels.items())

    def test_a_configuration_of_ones_own_replaces_the_example_and_restarts_the_pods(self) -> None:
        checksum = lambda made: made["Deployment", "tollkeeper"]["spec"]["template"]["metadata"]["annotations"]["checksum/rules"]
        made = objects(rendered("--set-file", f"config={ROOT / 'deploy/rules.yaml'}"))
        self.assertIn("name: login", made["ConfigMap", "tollkeeper-rules"]["data"]["rules.yaml"])
        self.assertNotEqual(checksum(made), checksum(objects(rendered())))

    def test_a_slip_in_a_value_is_refused(self) -> None:
        for slip in ["replica=3", "replicas=many", "service.type=Loadbalancer"]:
            done = helm("template", "tollkeeper", str(CHART), "--set", slip)
            self.assertNotEqual(done.returncode, 0, slip)

    def test_it_passes_helms_own_lint(self) -> None:
        done = helm("lint", "--strict", str(CHART))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
