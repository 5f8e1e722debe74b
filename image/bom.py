"""Write the bill of materials of this image as CycloneDX 1.6: every Debian package and every wheel that is installed.

Call: bom.py VARIANT REVISION LOCK WHEELS BASE. LOCK is the requirements file, WHEELS what wheel_files.py wrote, BASE
the list of packages that the base brought. The same image gives the same bytes: without a date, and with a serial
number that is a hash of the content.
"""

import hashlib
import json
import platform
import subprocess
import sys
import uuid
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

FIELDS = ("Package", "Version", "Architecture", "source:Package", "source:Version")


def digests(wheels: str) -> dict[tuple[str, Version], tuple[str, str]]:
    """Name and version to the SHA-256 and the name of the file that was installed."""
    found = {}
    for line in wheels.splitlines():
        digest, name = line.split()
        parse = parse_wheel_filename if name.endswith(".whl") else parse_sdist_filename
        found[parse(name)[0], parse(name)[1]] = digest, name
    return found


def licences(package: Distribution) -> list[dict[str, Any]]:
    """What the package says of its licence: an SPDX expression, else a name, else nothing."""
    if expression := package.metadata.get("License-Expression"):
        return [{"expression": expression}]
    classified = [line.split(" :: ")[-1] for line in package.metadata.get_all("Classifier", []) if "License ::" in line]
    # Some have the whole text there.
    stated = package.metadata.get("License", "").strip()
    names = classified or ([stated] if 0 < len(stated) < 80 and "\n" not in stated else [])
    return [{"license": {"name": name}} for name in dict.fromkeys(names)]


def properties(**values: str) -> list[dict[str, str]]:
    """Properties of the names `trainbox:…`."""
    return [{"name": f"trainbox:{name}", "value": value} for name, value in values.items()]


def wheels(lock: str, files: str) -> Iterator[dict[str, Any]]:
    """One component for each distribution of the virtual environment but trainbox itself."""
    known = digests(files)
    for package in distributions():
        name, version = canonicalize_name(package.name), package.version
        if name == "trainbox":
            continue
        digest, file = known[name, Version(version)]
        if f"sha256:{digest}" not in lock:
            raise SystemExit(f"bom: {file} has the SHA-256 {digest}, which the lock does not allow")
        purl = f"pkg:pypi/{name}@{quote(version, safe='.-_~')}"
        yield {
            "type": "library",
            "bom-ref": purl,
            "name": name,
            "version": version,
            "purl": purl,
            "hashes": [{"alg": "SHA-256", "content": digest}],
            "properties": properties(file=file),
        } | ({"licenses": said} if (said := licences(package)) else {})


def debian(base: str, release: str) -> Iterator[dict[str, Any]]:
    """One component for each package that dpkg has installed, and whether the base brought it."""
    wanted = "\t".join(f"${{{field}}}" for field in FIELDS) + "\n"
    listed = subprocess.run(
        ["dpkg-query", "--show", "--showformat", wanted], check=True, capture_output=True, text=True
    )
    brought = set(base.splitlines())
    for line in listed.stdout.splitlines():
        name, version, arch, source, source_version = line.split("\t")
        qualifiers = {"arch": arch, "distro": f"debian-{release}"}
        if source != name or source_version != version:
            qualifiers["upstream"] = f"{source}@{source_version}"
        encoded = "&".join(f"{key}={quote(value, safe='.-_~')}" for key, value in qualifiers.items())
        purl = f"pkg:deb/debian/{quote(name, safe='.-_~')}@{quote(version, safe='.-_~')}?{encoded}"
        origin = "base" if f"{name} {version} {arch}" in brought else "image"
        yield {
            "type": "library",
            "bom-ref": purl,
            "name": name,
            "version": version,
            "purl": purl,
            "properties": properties(origin=origin),
        }


def bill(variant: str, revision: str, lock: str, files: str, base: str) -> dict[str, Any]:
    """The whole document."""
    system = platform.freedesktop_os_release()
    own = next(package for package in distributions() if package.name == "trainbox")
    machine = subprocess.run(
        ["dpkg", "--print-architecture"], check=True, capture_output=True, text=True
    ).stdout.strip()
    component = {
        "type": "container",
        "bom-ref": "trainbox",
        "name": "trainbox",
        "version": own.version,
        "licenses": [{"license": {"id": "Apache-2.0"}}],
        "properties": properties(
            variant=variant,
            architecture=machine,
            revision=revision,
            requirements_sha256=hashlib.sha256(lock.encode()).hexdigest(),
        ),
    }
    release = Path("/etc/debian_version").read_text().strip()
    base_system = {
        "type": "operating-system",
        "bom-ref": "base",
        "name": system["ID"],
        "version": release,
        "description": f"the base, {system['PRETTY_NAME']}; packages_sha256 is over the list of its packages",
        "properties": properties(packages_sha256=hashlib.sha256(base.encode()).hexdigest()),
    }
    listed = [*debian(base, system["VERSION_ID"]), *wheels(lock, files)]
    content = {
        "metadata": {"component": component},
        "components": [base_system, *sorted(listed, key=lambda c: c["purl"])],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{serial}", "version": 1}
    return head | content


def main() -> None:
    """To standard output."""
    variant, revision, *paths = sys.argv[1:]
    print(json.dumps(bill(variant, revision, *(Path(path).read_text() for path in paths)), indent=1))


main()
