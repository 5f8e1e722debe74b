"""Original files: from a source that answers, does not, or sends another file; and from the user's own folder."""

import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from trainbox.data import downloads, prepare
from trainbox.errors import DataError

FILE = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/t10k-images-idx3-ubyte.gz"


class Source(BaseHTTPRequestHandler):
    """Answers for every host, as a proxy does: with `status`, and with a file that is not the right one."""

    status = 200

    def do_GET(self) -> None:
        body = b"something else"
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Source]]:
    """Every plain HTTP download ends at `Source`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Source)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server.server_port}")
    yield Source
    server.shutdown()
    server.server_close()
    thread.join()


def refused(data_dir: Path) -> str:
    """The line that preparing fashion_mnist ends with, after which no half of a download is left."""
    with pytest.raises(DataError) as refusal:
        prepare.prepare("fashion_mnist", data_dir=data_dir)
    assert not list(data_dir.rglob("*.tmp.*"))
    return str(refusal.value)


def test_another_file_than_tfds_knows_is_refused(source: type[Source], tmp_path: Path) -> None:
    """A cold data folder downloads, and a file with another checksum is refused with both checksums."""
    line = refused(tmp_path)
    assert re.fullmatch(
        rf"data set fashion_mnist: {tmp_path}/downloads/\S+ is not the file that TFDS knows from http://\S+\.gz: "
        r"SHA-256 is f41f3fa6\w{56}, expected [0-9a-f]{64}; remove it and put the right one into "
        rf"{tmp_path}/downloads/manual",
        line,
    )


def test_a_source_that_refuses_is_told(source: type[Source], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that has no such file is an error with its status."""
    monkeypatch.setattr(source, "status", 404)
    assert re.fullmatch(
        r"data set fashion_mnist could not be downloaded \(DownloadError: Failed to get url http://\S+\.gz\. HTTP "
        rf"code: 404\.\): try again, or put the original files into {tmp_path}/downloads/manual",
        refused(tmp_path),
    )


def test_a_wrong_file_of_the_users_is_refused(tmp_path: Path) -> None:
    """A file in downloads/manual is taken instead of a download, and checked like one."""
    file = tmp_path / "downloads" / "manual" / "t10k-images-idx3-ubyte.gz"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"something else")
    line = refused(tmp_path)
    assert line.startswith(
        f"data set fashion_mnist: {file} is not the file that TFDS knows from {FILE}: SHA-256 is f41f3fa6"
    )


def test_files_that_must_be_fetched_by_hand_are_told(tmp_path: Path) -> None:
    """A set that nobody may download says where its files go and how to get them."""
    with pytest.raises(DataError) as refusal:
        prepare.prepare("resisc45", data_dir=tmp_path)
    assert str(refusal.value) == (
        f"data set resisc45 needs files fetched by hand into {tmp_path}/downloads/manual: Dataset can be downloaded "
        "from OneDrive: https://1drv.ms/u/s!AmgKYzARBl5ca3HNaHIlzp_IXjs After downloading the rar file, please extract "
        "it to the manual_dir."
    )


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A socket of this machine that listens and never accepts."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        yield server


def test_a_source_is_asked_before_it_is_waited_for(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that accepts is reachable; one that refuses or drops is not, and is not waited for longer than the limit."""
    port = listener.getsockname()[1]
    monkeypatch.setattr(downloads, "REACH_SECONDS", 1.0)
    reach = downloads.unreachable.__wrapped__
    assert reach("127.0.0.1", port) is None
    assert reach("127.0.0.1", port) == "127.0.0.1 did not answer in 1 s"  # the first one fills its queue
    listener.close()
    assert reach("127.0.0.1", port) == "127.0.0.1 cannot be reached (Connection refused)"


@pytest.mark.parametrize(
    ("url", "proxy", "endpoint"),
    [
        ("https://a.org/x", "", ("a.org", 443)),
        ("http://a.org:8080/x", "", ("a.org", 8080)),
        ("ftp://user:word@a.org/x", "", ("a.org", 21)),
        ("gs://bucket/x", "", ("storage.googleapis.com", 443)),
        ("https://a.org/x", "http://proxy.org:3128", ("proxy.org", 3128)),
        ("https://a.org/x", "proxy.org:3128", ("proxy.org", 3128)),
        ("https://inside.org/x", "http://proxy.org:3128", ("inside.org", 443)),
    ],
)
def test_who_is_asked(url: str, proxy: str, endpoint: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The source itself is asked, or the proxy that the environment sets for it."""
    for variable in ("all_proxy", "ALL_PROXY", "https_proxy", "no_proxy"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    monkeypatch.setenv("NO_PROXY", "inside.org")
    assert downloads._endpoint(url) == endpoint


def test_what_a_killed_download_left_is_removed(tmp_path: Path) -> None:
    """Only folders that were noted go; without a note nothing does."""
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    notes = tmp_path / "notes"
    downloads.remove_unfinished(notes)
    notes.write_text(f"{tmp_path / 'ours'}\n{tmp_path / 'gone'}\n")
    downloads.remove_unfinished(notes)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes", "theirs"]
