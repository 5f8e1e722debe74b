"""What TensorFlow would open to use a GPU, with libraries of one function in place of NVIDIA's."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from trainbox import gpu_libraries
from trainbox.values import shown

PROGRAM = """
import dataclasses, json, sys
from trainbox import gpu_libraries
told = [gpu_libraries.problem(several=several) for several in (False, True)]
print(json.dumps([told, gpu_libraries.built_for_gpus(), *map(dataclasses.asdict, gpu_libraries.examine())]))
assert "tensorflow" not in sys.modules
"""
SONAMES = gpu_libraries.SONAMES


@pytest.fixture
def wheels(tmp_path):
    """A site-packages with a TensorFlow that must not be imported, and all GPU libraries in the folders of wheels."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler for libraries to load")
    root = tmp_path / "site"
    for name, soname in SONAMES.items():
        library = root / "nvidia" / name / "lib" / soname
        library.parent.mkdir(parents=True)
        words = [compiler, "-shared", "-nostdlib", f"-Wl,-soname,{soname}", "-xc", "-o", str(library), "-"]
        subprocess.run(words, input=f"int {name};", text=True, check=True)
    platform = root / "tensorflow" / "python" / "platform"
    platform.mkdir(parents=True)
    (root / "tensorflow" / "__init__.py").write_text("raise SystemExit('TensorFlow was imported')\n")
    return root


def examined(site, **environ):
    """Whether that TensorFlow was built for GPUs, and the libraries by name."""
    return asked(site, **environ)[1:]


def asked(site, **environ):
    """What keeps one and several GPUs from being used, whether TensorFlow was built for GPUs, and the libraries."""
    child = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, "PYTHONPATH": str(site), **environ},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    told, built, *libraries = json.loads(child.stdout)
    return told, built, {library.pop("name"): library for library in libraries}


def test_every_library_of_the_wheels_is_found_and_loads(wheels):
    """Those that TensorFlow's own search path misses too, since trainbox loads them first."""
    assert examined(wheels)[1] == {
        name: {"soname": soname, "path": str(wheels / "nvidia" / name / "lib" / soname), "error": ""}
        for name, soname in SONAMES.items()
    }


def test_a_library_that_is_missing_and_one_that_is_broken_are_told_apart(wheels):
    """The linker's own words, and the path where there is a file at all."""
    (wheels / "nvidia/cublas/lib/libcublas.so.12").unlink()
    broken = wheels / "nvidia/cudnn/lib/libcudnn.so.9"
    broken.write_bytes(b"\x7fELF")
    _, libraries = examined(wheels)
    assert {name: library for name, library in libraries.items() if library["error"]} == {
        "cublas": {
            "soname": "libcublas.so.12",
            "path": None,
            "error": "libcublas.so.12: cannot open shared object file: No such file or directory",
        },
        "cudnn": {"soname": "libcudnn.so.9", "path": str(broken), "error": f"{broken}: file too short"},
    }


def test_a_host_library_path_wins_over_the_wheels(wheels, tmp_path):
    """An older cuDNN on LD_LIBRARY_PATH is the one that TensorFlow would get, and it is named."""
    host = tmp_path / "host"
    host.mkdir()
    shutil.copy(wheels / "nvidia/cudnn/lib/libcudnn.so.9", host)
    _, libraries = examined(wheels, LD_LIBRARY_PATH=f"{tmp_path}/none:{host}")
    assert libraries["cudnn"]["path"] == str(host / "libcudnn.so.9")
    assert libraries["cufft"]["path"] == str(wheels / "nvidia/cufft/lib/libcufft.so.11")


def test_nothing_is_the_matter_where_all_load_and_nccl_counts_from_two_gpus_on(wheels, tmp_path):
    """One line otherwise; the profiler's library is nobody's need."""
    driver = tmp_path / "driver"
    driver.mkdir()
    shutil.copy(wheels / "nvidia/cupti/lib/libcupti.so.12", driver / "libcuda.so.1")
    assert asked(wheels, LD_LIBRARY_PATH=str(driver))[0] == ["", ""]
    for name in ("nccl/lib/libnccl.so.2", "cupti/lib/libcupti.so.12"):
        (wheels / "nvidia" / name).unlink()
    assert asked(wheels, LD_LIBRARY_PATH=str(driver))[0] == [
        "",
        f"not found: libnccl.so.2; LD_LIBRARY_PATH is {shown(str(driver))}",
    ]


@pytest.mark.parametrize(("record", "built"), [("True", True), ("False", False), (None, True)])
def test_the_record_of_the_build_tells_whether_it_is_one_for_gpus(wheels, record, built):
    """Without importing TensorFlow; where there is no record TensorFlow itself has to be asked."""
    if record:
        text = f"import collections\nbuild_info = collections.OrderedDict([('is_cuda_build', {record})])\n"
        (wheels / "tensorflow/python/platform/build_info.py").write_text(text)
    assert examined(wheels)[0] is built
