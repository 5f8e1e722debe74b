"""One `trainbox` command in a process forked from one that has imported TensorFlow; `conftest.py` gives the request."""

import os
import sys

request = globals()["request"]
os.chdir(request["cwd"])
os.environ.clear()
os.environ.update(request["environ"])
for descriptor, path in enumerate(request["outlets"], start=1):
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.dup2(file, descriptor)
    os.close(file)
sys.argv = ["trainbox", *request["words"]]

from trainbox.cli.app import main  # noqa: E402

sys.exit(main())
