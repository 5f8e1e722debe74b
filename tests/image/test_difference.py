"""`.ci/image-difference`, on archives as `docker save` writes them: what it says where two images part."""

import io
import json
import subprocess
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def packed(files: dict[str, bytes], date: int = 0) -> bytes:
    """A tar archive of these files."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(content), date
            tar.addfile(entry, io.BytesIO(content))
    return archive.getvalue()


def saved(path: Path, *layers: bytes, revision: str = "1") -> Path:
    """An image of these layers."""
    history = [{"created_by": f"RUN step {number}"} for number, _ in enumerate(layers, 1)]
    history.insert(1, {"created_by": "LABEL revision", "empty_layer": True})
    config = {
        "config": {"Labels": {"revision": revision}},
        "history": history,
        "rootfs": {"diff_ids": [str(hash(layer)) for layer in layers]},
    }
    names = [f"layer{number}" for number, _ in enumerate(layers)]
    manifest = [{"Config": "config", "Layers": names}]
    documents = {"manifest.json": json.dumps(manifest).encode(), "config": json.dumps(config).encode()}
    path.write_bytes(packed(documents | dict(zip(names, layers, strict=True))))
    return path


BASE = packed({"etc/base": b"base"})


@pytest.mark.parametrize(
    ("first", "second", "code", "said"),
    [
        ([BASE, packed({"a": b"1"})], [BASE, packed({"a": b"1"})], 0, []),
        (
            [BASE, packed({"a": b"1", "b": b"1", "same": b""})],
            [BASE, packed({"a": b"2", "c": b"1", "same": b""})],
            1,
            [
                "layer 2 differs: RUN step 2",
                "  a: content 6b86b273ff34 / d4735e3a265e",
                "  b: only in the first",
                "  c: only in the second",
            ],
        ),
        (
            [packed({"a": b""}, 1), BASE],
            [packed({"a": b""}, 2), b""],
            1,
            ["layer 1 differs: RUN step 1", "  a: date 1 / 2"],
        ),
        (
            [packed({"a": b"", "b": b""})],
            [packed({"b": b"", "a": b""})],
            1,
            ["layer 1 differs: RUN step 1", "  nothing but the order of its files"],
        ),
    ],
)
def test_the_first_layer_that_differs_is_named_with_its_files(tmp_path, first, second, code, said):
    """One line for each file: what of it differs, or in which of the two it is."""
    paths = [saved(tmp_path / "first.tar", *first), saved(tmp_path / "second.tar", *second)]
    done = subprocess.run([ROOT / ".ci" / "image-difference", *paths], capture_output=True, text=True)
    assert (done.stderr, done.returncode, done.stdout.splitlines()) == ("", code, said)


def test_equal_layers_leave_the_configuration(tmp_path):
    """A label that differs is shown with both values."""
    paths = [saved(tmp_path / f"{number}.tar", BASE, BASE, revision=number) for number in ("1", "2")]
    done = subprocess.run([ROOT / ".ci" / "image-difference", *paths], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "the layers are the same, the configuration differs:",
        "  config: Labels {'revision': '1'} / {'revision': '2'}",
    ]
