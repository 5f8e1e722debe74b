"""The bill of materials in the images: valid, complete, and of what is really installed."""

import hashlib
import json
import re
from typing import Any
from urllib.parse import parse_qsl

import pytest

pytestmark = pytest.mark.docker

BOM = "/usr/share/trainbox/sbom.cdx.json"
PACKAGES = "dpkg-query --show --showformat '${Package} ${Version} ${Architecture}\\n'"
# Name and version of each distribution but trainbox, and the tags of the wheel that it came from.
WHEELS = """
import json
from importlib.metadata import distributions
from packaging.utils import canonicalize_name
lines = {d: (d.read_text("WHEEL") or "").splitlines() for d in distributions() if d.name != "trainbox"}
tags = {d: [line[5:] for line in lines[d] if line.startswith("Tag: ")] for d in lines}
print(json.dumps([(canonicalize_name(d.name), d.version, tags[d]) for d in lines]))
"""


@pytest.fixture(params=["image", "gpu_image"])
def either(request) -> str:
    """Each of the two images."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def inside(docker, either, stranger):
    """What a command prints in the image, for a uid that it does not know."""

    def run(*words: str) -> str:
        flags = ("--network", "none", "--user", str(stranger), "--entrypoint", words[0])
        done = docker("run", "--rm", *flags, either, *words[1:])
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def bom(inside) -> dict[str, Any]:
    """The document."""
    return json.loads(inside("cat", BOM))


def of_type(bom: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """Components whose purl has this type."""
    return [one for one in bom["components"] if one.get("purl", "").startswith(f"pkg:{kind}/")]


def told(component: dict[str, Any]) -> dict[str, str]:
    """Its properties, without the common beginning of their names."""
    return {entry["name"].removeprefix("trainbox:"): entry["value"] for entry in component["properties"]}


def test_it_is_valid_cyclonedx(inside):
    """The official schema of version 1.6, and no second component of the same reference."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = inside("cat", BOM)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    references = [component["bom-ref"] for component in json.loads(text)["components"]]
    assert len(references) == len(set(references))


def test_its_debian_packages_are_those_of_dpkg(bom, inside):
    """Name, version and architecture of each, no more and no fewer; the base's own are marked."""
    listed = of_type(bom, "deb")
    found = {f"{one['name']} {one['version']} {dict(parse_qsl(one['purl'].split('?')[1]))['arch']}" for one in listed}
    assert found == set(inside("sh", "-c", PACKAGES).splitlines())
    assert len(found) == len(listed)
    origins = {one["name"]: told(one)["origin"] for one in listed}
    assert (origins["dpkg"], origins["python3"], origins["tini"]) == ("base", "image", "image")


def test_its_wheels_are_those_of_the_virtual_environment(bom, inside):
    """Each distribution with its version and a digest of the lock; the tags of the file are the installed wheel's."""
    listed = {(one["name"], one["version"]): one for one in of_type(bom, "pypi")}
    lock = inside("cat", "/usr/share/trainbox/requirements.txt")
    installed = json.loads(inside("/opt/trainbox/bin/python", "-I", "-c", WHEELS))
    assert set(listed) == {(name, version) for name, version, _ in installed}
    for name, version, tags in installed:
        component = listed[name, version]
        assert component["purl"] == f"pkg:pypi/{name}@{version}"
        (digest,) = component["hashes"]
        pinned = re.search(rf"(?ms)^{re.escape(name)}(\[[^]]*\])?=={re.escape(version)}.*?(?=^[a-z0-9]|\Z)", lock)
        assert f"sha256:{digest['content']}" in pinned[0]
        file = told(component)["file"]
        if file.endswith(".whl"):
            *_, python, abi, platform = file.removesuffix(".whl").split("-")
            assert {f"{p}-{abi}-{m}" for p in python.split(".") for m in platform.split(".")} & set(tags), file


def test_it_describes_this_image(docker, either, bom, inside):
    """Variant, revision, version and lock are the labels'; the base is named by its release and its packages."""
    labels = json.loads(docker("inspect", "--format", "{{json .Config.Labels}}", either).stdout)
    component = bom["metadata"]["component"]
    assert component["version"] == inside("trainbox", "--version").split()[-1]
    values = told(component)
    assert values["variant"] == labels["trainbox.variant"]
    assert values["revision"] == labels["org.opencontainers.image.revision"]
    assert values["requirements_sha256"] == labels["trainbox.requirements.sha256"]
    (base,) = [one for one in bom["components"] if one["type"] == "operating-system"]
    packages = inside("cat", "/usr/share/trainbox/base-packages.txt")
    assert (base["name"], base["version"]) == ("debian", inside("cat", "/etc/debian_version").strip())
    assert told(base) == {"packages_sha256": hashlib.sha256(packages.encode()).hexdigest()}
