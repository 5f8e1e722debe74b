"""What tests in several folders stand on: real images, prepared once for all, and GPUs that a file describes."""

import contextlib
import os
import shutil
import struct
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path

import pytest

from trainbox.data import prepare

DEBIAN = Path("/usr/share/datasets/fashion-mnist")  # the package dataset-fashion-mnist
# When each of the original archives was made. Debian packs them at another time and without their names; with
# both in their gzip headers they are the originals again, to the byte.
PACKED_AT = {
    "train-images-idx3-ubyte": 1504176606,
    "train-labels-idx1-ubyte": 1504176606,
    "t10k-images-idx3-ubyte": 1504176627,
    "t10k-labels-idx1-ubyte": 1504176627,
}


def _original(packed: bytes, *, name: str, seconds: int) -> bytes:
    """The gzip file `packed`, whose header has no name, with the name and the time that the original had."""
    assert packed[:4] == b"\x1f\x8b\x08\x00", "the gzip header has no name"
    has_name = 8
    return (
        packed[:3] + bytes([has_name]) + struct.pack("<I", seconds) + packed[8:10] + name.encode() + b"\0" + packed[10:]
    )


@pytest.fixture(scope="session")
def fashion_mnist_dir() -> Path:
    """A data folder in which TFDS's own `fashion_mnist` lies prepared: it was empty, and downloaded Debian's files.

    Kept between runs. Skipped without the package dataset-fashion-mnist, unless TRAINBOX_REQUIRE names fashion_mnist.
    """
    if not DEBIAN.is_dir():
        reason = f"{DEBIAN} is not there: apt-get install dataset-fashion-mnist"
        if "fashion_mnist" in os.environ.get("TRAINBOX_REQUIRE", "").split(","):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    data_dir = Path(tempfile.gettempdir()) / f"trainbox-tests-{os.getuid()}" / f"tfds-{version('tensorflow-datasets')}"
    with _source() as proxy, pytest.MonkeyPatch.context() as patch:
        for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"):
            patch.delenv(variable, raising=False)
        patch.setenv("http_proxy", proxy)
        prepare.prepare("fashion_mnist", data_dir=data_dir)
    return data_dir


class _Source(BaseHTTPRequestHandler):
    """Answers for every host, as a proxy does, with the originals."""

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2].removesuffix(".gz")
        if name not in PACKED_AT:
            self.send_error(404)
            return
        body = _original((DEBIAN / f"{name}.gz").read_bytes(), name=name, seconds=PACKED_AT[name])
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def _source() -> Iterator[str]:
    """The address of a proxy that has the originals."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Source) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def digits_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder in which the bundled digits lie prepared; only to be read."""
    data_dir = tmp_path_factory.mktemp("digits")
    prepare.prepare("digits", data_dir=data_dir, offline=True)
    return data_dir


@pytest.fixture(scope="session")
def nvml_stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a libnvidia-ml.so.1 that describes GPUs from a file (see `unit/nvml_stub.c`)."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler for the stub of NVML")
    folder = tmp_path_factory.mktemp("nvml")
    source = Path(__file__).parent / "unit" / "nvml_stub.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", source], check=True)
    return folder


@pytest.fixture
def nvml(nvml_stub: Path, tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """Write down GPUs in the words of `unit/nvml_stub.c`; the variables with which a new process sees them.

    The linker reads them when a program starts, so one that is only forked does not (`fresh=True` in `tests/runs`).
    """

    def describe(description: str) -> dict[str, str]:
        path = tmp_path / f"gpus-{len(list(tmp_path.glob('gpus-*')))}"
        path.write_text(description)
        folders = [str(nvml_stub), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        return {"LD_LIBRARY_PATH": ":".join(folders), "NVML_STUB": str(path)}

    return describe
