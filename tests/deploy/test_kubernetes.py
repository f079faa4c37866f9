"""The manifests: valid, complete, hardened, and in agreement with the service and each other."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from milepost.api.uploads import UPLOAD_BYTES_MAX
from milepost.settings import load_settings
from milepost.worker.lease import LAG_EXIT_S
from tests.deploy.files import (
    KUBERNETES,
    OURS,
    PORT,
    an_object,
    complaint_about,
    image_environment,
    known_variables,
    manifests,
    objects,
    pods,
    settings_env,
    strings,
)

KUSTOMIZATIONS = sorted(KUBERNETES.rglob("kustomization.yaml"))
SCHEMAS: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("schemas.yaml").read_text())
BUILT_IN = [path for path in manifests() if objects(path)[0]["kind"] not in SCHEMAS]
FOREIGN = [each for each in objects() if each["kind"] in SCHEMAS]
COMPONENT = "app.kubernetes.io/component"


def container(component: str) -> dict[str, Any]:
    [found] = pods()[component]["containers"]
    return dict(found)


def seconds_until_killed(probe: dict[str, Any]) -> int:
    return int(probe["periodSeconds"] * probe["failureThreshold"])


def test_kubernetes_own_objects_are_valid_and_have_nothing_that_it_does_not_know() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "kubernetes_validate", "--strict", *BUILT_IN],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert said.returncode == 0, said.stdout + said.stderr


@pytest.mark.parametrize("each", FOREIGN, ids=lambda each: each["kind"])
def test_other_projects_objects_are_as_their_definitions_say(each: dict[str, Any]) -> None:
    jsonschema.validate(each, SCHEMAS[each["kind"]])


@pytest.mark.parametrize("path", KUSTOMIZATIONS, ids=lambda path: path.parent.name)
def test_a_kustomization_names_all_that_lies_beside_it(path: Path) -> None:
    said = yaml.safe_load(path.read_text())
    jsonschema.validate(said, SCHEMAS["Kustomization"])
    beside = {file.name for file in path.parent.glob("*.yaml")} - {path.name}
    generated = {env for each in said.get("configMapGenerator", []) for env in each["envs"]}

    files = {name for name in said["resources"] if name.endswith(".yaml")}

    assert files == beside
    assert all((path.parent / name).exists() for name in {*said["resources"], *generated})


def test_the_image_is_the_version_that_is_packaged() -> None:
    base = yaml.safe_load((KUBERNETES / "base" / "kustomization.yaml").read_text())

    [image] = base["images"]

    assert f"{image['name']}:{image['newTag']}" == OURS
    assert {container(each)["image"] for each in pods()} == {image["name"]}


@pytest.mark.parametrize("component", sorted(pods()))
def test_a_pod_runs_a_command_with_flags_that_it_takes(component: str) -> None:
    assert complaint_about(container(component)["args"]) is None


@pytest.mark.parametrize("component", sorted(pods()))
def test_a_pod_may_no_more_than_it_needs(component: str) -> None:
    pod, only = pods()[component], container(component)

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert only["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"cpu", "memory"} == set(only["resources"]["requests"])
    assert "memory" in only["resources"]["limits"]


@pytest.mark.parametrize("component", sorted(pods()))
def test_a_pod_gets_no_setting_from_the_names_of_services(component: str) -> None:
    """Kubernetes would say where a service called milepost is in MILEPOST_PORT."""
    assert pods()[component]["enableServiceLinks"] is False


@pytest.mark.parametrize("component", sorted(pods()))
def test_a_pod_can_write_where_the_image_does(component: str) -> None:
    pod, only = pods()[component], container(component)
    mounted = {mount["mountPath"]: mount["name"] for mount in only["volumeMounts"]}

    assert {"/data", "/tmp"} <= set(mounted)
    assert set(mounted.values()) == {volume["name"] for volume in pod["volumes"]}


@pytest.mark.parametrize("component", ["api", "worker"])
def test_artifacts_are_where_every_process_reaches_them(component: str) -> None:
    mounted = {mount["mountPath"]: mount["name"] for mount in container(component)["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pods()[component]["volumes"]}

    claim = volumes[mounted[settings_env()["MILEPOST_ARTIFACTS_DIR"]]]["persistentVolumeClaim"]

    found = an_object("PersistentVolumeClaim", claim["claimName"])
    assert found["spec"]["accessModes"] == ["ReadWriteMany"]


def test_what_the_pods_are_told_is_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, word in settings_env().items():
        monkeypatch.setenv(name, word)

    settings = load_settings({})

    assert set(settings_env()) <= known_variables()
    assert (settings.migrate, settings.demo) == (False, False)


@pytest.mark.parametrize("component", ["api", "worker"])
def test_a_pod_is_given_the_drain_and_ten_seconds_more(component: str) -> None:
    drain_s = float(settings_env()["MILEPOST_DRAIN_S"])

    assert pods()[component]["terminationGracePeriodSeconds"] == drain_s + 10


@pytest.mark.parametrize("component", ["api", "worker"])
def test_a_pod_is_watched_on_the_port_that_it_listens_on(component: str) -> None:
    only = container(component)
    flags = dict(zip(only["args"], only["args"][1:], strict=False))

    [port] = only["ports"]

    assert str(port["containerPort"]) == PORT
    assert flags.get("--probe-port", image_environment()["MILEPOST_PORT"]) == PORT
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert only[probe]["httpGet"]["port"] == port["name"]


def test_nothing_ends_a_worker_before_it_ends_itself() -> None:
    assert seconds_until_killed(container("worker")["livenessProbe"]) > LAG_EXIT_S


def test_what_selects_pods_finds_them() -> None:
    labelled = [
        each["spec"]["template"]["metadata"]["labels"]
        for each in objects()
        if each["kind"] in {"Deployment", "Job"}
    ]
    selectors = [
        each["spec"].get("podSelector", each["spec"].get("selector"))
        for each in objects()
        if each["kind"] in {"Service", "Deployment", "PodDisruptionBudget", "NetworkPolicy"}
    ]

    assert len(selectors) == 7
    for selector in selectors:
        wanted = selector.get("matchLabels", selector)
        assert any(wanted.items() <= labels.items() for labels in labelled), selector


def test_every_object_has_the_label_by_which_it_is_rolled_out() -> None:
    script = (KUBERNETES / "roll-out.sh").read_text()

    told = {each["metadata"]["labels"][COMPONENT] for each in objects()}

    assert told == set(re.findall(r"^apply (\w+)$", script, re.MULTILINE))


def test_both_autoscalers_scale_the_workers_which_name_no_number_themselves() -> None:
    workers = an_object("Deployment", "milepost-worker")

    targets = [
        each["spec"]["scaleTargetRef"]["name"]
        for each in objects()
        if each["kind"] in {"ScaledObject", "HorizontalPodAutoscaler"}
    ]

    assert targets == [workers["metadata"]["name"]] * 2
    assert "replicas" not in workers["spec"]


def test_keda_wants_a_worker_for_as_many_runs_as_it_has_slots() -> None:
    args = container("worker")["args"]
    scaled = an_object("ScaledObject", "milepost-worker")["spec"]
    modifiers = scaled["advanced"]["scalingModifiers"]

    names = [trigger["name"] for trigger in scaled["triggers"]]

    assert modifiers["target"] == args[args.index("--slots") + 1]
    assert modifiers["formula"] == " + ".join(names)


def test_keda_asks_the_service_that_there_is_with_a_key_that_it_is_given() -> None:
    scaled = an_object("ScaledObject", "milepost-worker")["spec"]
    service = an_object("Service", "milepost-api")
    space = an_object("Namespace", "milepost")["metadata"]["name"]
    [port] = service["spec"]["ports"]

    for trigger in scaled["triggers"]:
        assert trigger["metadata"]["url"] == (
            f"http://{service['metadata']['name']}.{space}.svc:{port['port']}/metrics"
        )
        an_object("TriggerAuthentication", trigger["authenticationRef"]["name"])


def test_pods_may_call_what_their_settings_name() -> None:
    policy = an_object("NetworkPolicy", "milepost-called")
    opened = {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]}
    named = {int(port) for text in strings(settings_env()) for port in re.findall(r":(\d+)", text)}

    assert {5432, 6432, 6379, 443, 53} <= opened
    assert named <= opened


def test_the_ingress_leads_to_the_api_and_holds_nothing_back() -> None:
    ingress = an_object("Ingress", "milepost-api")
    [rule] = ingress["spec"]["rules"]
    [path] = rule["http"]["paths"]
    service = an_object("Service", path["backend"]["service"]["name"])

    annotations = ingress["metadata"]["annotations"]

    assert annotations["nginx.ingress.kubernetes.io/proxy-buffering"] == "off"
    assert path["backend"]["service"]["port"]["name"] == service["spec"]["ports"][0]["name"]
    assert rule["host"] in settings_env()["MILEPOST_PUBLIC_URL"]


def test_the_ingress_lets_the_largest_upload_through() -> None:
    ingress = an_object("Ingress", "milepost-api")
    size = ingress["metadata"]["annotations"]["nginx.ingress.kubernetes.io/proxy-body-size"]

    assert int(size.removesuffix("m")) * 2**20 >= UPLOAD_BYTES_MAX


def test_the_monitors_job_is_the_one_that_the_alerts_know() -> None:
    monitor = an_object("PodMonitor", "milepost")["spec"]
    label = monitor["selector"]["matchLabels"][monitor["jobLabel"]]

    assert label == "milepost"
    assert monitor["podMetricsEndpoints"][0]["port"] == container("worker")["ports"][0]["name"]


@pytest.mark.parametrize(("end", "rolled_out"), [("complete", True), ("failed", False)])
def test_workers_and_api_are_rolled_out_once_the_migration_is_complete(
    tmp_path: Path, end: str, *, rolled_out: bool
) -> None:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(
        f"""#!/usr/bin/env bash
        echo "$*" >>{tmp_path}/asked
        [[ $1 != wait || $* == *condition={end}* ]]
        """
    )
    kubectl.chmod(0o755)

    said = subprocess.run(
        [KUBERNETES / "roll-out.sh", KUBERNETES / "overlays" / "keda"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (said.returncode == 0) is rolled_out is not ("has failed" in said.stderr)
    asked = (tmp_path / "asked").read_text()
    assert ("(worker)" in asked) is ("(api)" in asked) is rolled_out


def test_the_script_passes_the_linter() -> None:
    linter = Path(sys.executable).with_name("shellcheck")

    said = subprocess.run(
        [linter, KUBERNETES / "roll-out.sh"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (said.returncode, said.stdout) == (0, "")
