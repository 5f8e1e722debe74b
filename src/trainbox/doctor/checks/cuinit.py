"""What the driver answers to cuInit, the first call of every CUDA program, and what that means."""

from __future__ import annotations

from trainbox.doctor.case import Case
from trainbox.doctor.compatibility import table
from trainbox.doctor.finding import Finding, failure, ok


def examine(case: Case) -> list[Finding]:
    """Asked where GPUs are listed or asked for, and in a process of its own."""
    if not case.inventory.gpus and case.device != "gpu":
        return ok("no GPU is listed: cuInit is not called")
    cuda = case.cuda()
    if not cuda.began:
        return ok("not called: libcuda.so.1 does not load")
    if cuda.result == 0:
        return ok("cuInit succeeds")
    if cuda.result is None:
        return [
            failure(
                f"cuInit {cuda.end}",
                "sudo nvidia-smi -pm 1 (a driver that starts anew for every process takes long); "
                "then dmesg | grep -i -e nvrm -e xid",
            )
        ]
    known = table()["cuinit"].get(str(cuda.result))
    if known is None:
        return [failure(f"cuInit answers {cuda.result}", "nvidia-smi; then dmesg | grep -i -e nvrm -e xid")]
    return [failure(f"cuInit answers {cuda.result} ({known['name']}): {known['meaning']}", known["remedy"])]
