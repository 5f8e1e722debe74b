"""Ask TensorFlow's own loader for each GPU library of its wheels; needs no GPU. Runs inside the image, on x86-64.

Prints a JSON object: the name of each library, and "MaybeTryDlopenGPULibraries" for the question that TensorFlow asks
itself before it looks for devices, to whether it was found.
"""

import ctypes
import json
from pathlib import Path

import tensorflow as tf

LIBRARIES = ("CudaRuntime", "Cublas", "CublasLt", "Cufft", "Cusolver", "Cusparse", "Cupti", "Cudnn", "Nccl")
framework = ctypes.CDLL(str(Path(tf.__file__).parent / "libtensorflow_framework.so.2"))


def succeeds(name: str) -> bool:
    """Call `tsl::internal::DsoLoader::NAME()`, which returns an absl::Status, alone or with a handle after it."""
    function = getattr(framework, f"_ZN3tsl8internal9DsoLoader{len(name)}{name}Ev")
    function.restype = None
    # Such a value comes back through a pointer in the first argument's place; its first word is 1 if all is well.
    result = (ctypes.c_uint64 * 4)()
    function(ctypes.byref(result))
    return result[0] == 1


found = {name: succeeds(f"Get{name}DsoHandle") for name in LIBRARIES}
print(json.dumps(found | {"MaybeTryDlopenGPULibraries": succeeds("MaybeTryDlopenGPULibraries")}))
