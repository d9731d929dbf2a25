"""Check whether this process's control group has a CPU quota (cgroups(7): `cpu.max`, `cpu.cfs_quota_us`).

In a container with a quota, busy polling uses up the processor time that brokers need. The
kernel then stops the brokers for the rest of each period of 100 ms.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

MEMBERSHIP: Final = Path("/proc/self/cgroup")
MOUNT: Final = Path("/sys/fs/cgroup")


def has_quota(membership: Path = MEMBERSHIP, mount: Path = MOUNT) -> bool:
    """Return True if this process's control group, or one of its ancestors, has a CPU quota.

    Return False on a system without control groups.
    """
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return False
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers and any(limit != "max" for limit in _limits(mount, path, "cpu.max")):
            return True
        if "cpu" in controllers.split(",") and any(
            int(limit) > 0 for limit in _limits(mount / controllers, path, "cpu.cfs_quota_us")
        ):
            return True
    return False


def _limits(mount: Path, path: str, name: str) -> Iterator[str]:
    """Yield the first word of each file `name` in the control group's directory and in its parents, up to `mount`.

    `path`: the path of the control group below `mount`. Directories without the file are skipped. In a container,
    `mount` may already be the group's directory, while `path` is a path on the host that does not exist here.
    """
    group = mount / path.lstrip("/")
    for folder in (group, *group.parents):
        if folder == mount.parent:
            return
        try:
            yield (folder / name).read_text().split()[0]
        except (OSError, IndexError):
            continue
