"""Read a pylock.toml and write, as sha256sum does, the file of each package that an installer takes for this Python."""

import sys
import tomllib
from collections.abc import Mapping
from typing import Any

from packaging.tags import Tag, sys_tags
from packaging.utils import parse_wheel_filename


def chosen(package: Mapping[str, Any], ranks: Mapping[Tag, int]) -> tuple[str, str]:
    """Name and SHA-256 of the most specific wheel, or of the source where there is no wheel."""
    files = package.get("wheels") or [package["sdist"]]
    # A file has a name, or a URL that ends with it.
    digests = {file.get("name") or file["url"].rsplit("/", 1)[1]: file["hashes"]["sha256"] for file in files}
    if "wheels" not in package:
        return next(iter(digests.items()))
    name = min(digests, key=lambda name: min(ranks.get(tag, len(ranks)) for tag in parse_wheel_filename(name)[3]))
    return name, digests[name]


def main() -> None:
    """From standard input to standard output."""
    ranks = {tag: rank for rank, tag in enumerate(sys_tags())}
    for package in tomllib.load(sys.stdin.buffer)["packages"]:
        name, digest = chosen(package, ranks)
        print(f"{digest}  {name}")


main()
