"""Whether GPUs reach each other's memory: where they seem to and do not, the first all-reduce hangs."""

from __future__ import annotations

from trainbox.doctor.case import Case
from trainbox.doctor.finding import Finding, note, ok

_ADVICE = "if the first step hangs: NCCL_P2P_DISABLE=1 trainbox train …"


def examine(case: Case) -> list[Finding]:
    """What NVML says of each pair, and whether an IOMMU redirects what they send to each other."""
    numbers = {gpu.uuid: gpu.index for gpu in case.usable}
    if len(numbers) < 2:
        return ok("fewer than two GPUs")
    if case.environ.get("NCCL_P2P_DISABLE", "0") not in ("", "0"):
        return ok("NCCL_P2P_DISABLE is set: NCCL goes through the host's memory")
    found = []
    pairs = [barrier for barrier in case.barriers if set(barrier.uuids) <= set(numbers)]
    if pairs:
        named = ", ".join(f"{numbers[one.uuids[0]]}-{numbers[one.uuids[1]]}" for one in pairs[:6])
        more = ", …" if len(pairs) > 6 else ""
        found.append(
            note(
                f"no direct path between GPUs {named}{more} ({pairs[0].reason}): NCCL goes through the host's memory, "
                "which is slower",
                _ADVICE,
            )
        )
    if how := _iommu(case):
        found.append(
            note(
                f"the IOMMU is on ({how}): direct transfers between GPUs may hang or be wrong",
                f"{_ADVICE}; for good, switch it off or to passthrough (iommu=pt) on the host, ACS too",
            )
        )
    return found or ok("no obstacle between the GPUs is known")


def _iommu(case: Case) -> str:
    """How it shows, empty where it is off or only passes through."""
    try:
        words = (case.root / "proc/cmdline").read_text().split()
    except OSError:
        words = []
    if "iommu=pt" in words or "iommu.passthrough=1" in words:
        return ""
    asked = [word for word in words if word in ("intel_iommu=on", "amd_iommu=on", "iommu=force")]
    units = sorted(path.name for path in (case.root / "sys/class/iommu").glob("*"))
    return " ".join(asked) or (f"/sys/class/iommu has {', '.join(units[:4])}" if units else "")
