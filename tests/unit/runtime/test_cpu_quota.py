"""`has_quota` on copies of the kernel's file trees for both versions of control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.runtime.busy_poll import has_quota


def quota(tmp_path: Path, membership: str, files: dict[str, str]) -> bool:
    (tmp_path / "self").write_text(membership)
    mount = tmp_path / "cgroup"
    for name, text in files.items():
        (mount / name).parent.mkdir(parents=True, exist_ok=True)
        (mount / name).write_text(text)
    return has_quota(tmp_path / "self", mount)


def test_quota_is_absent_without_control_groups(tmp_path: Path) -> None:
    assert not has_quota(tmp_path / "missing", tmp_path)


@pytest.mark.parametrize(("limit", "limited"), [("max 100000", False), ("200000 100000", True)])
@pytest.mark.parametrize("where", ["a/b", "a", "."])
def test_quota_of_a_group_applies_to_nested_groups(
    tmp_path: Path, where: str, limit: str, limited: bool
) -> None:
    files = {"a/b/cpu.stat": "", f"{where}/cpu.max": f"{limit}\n"}
    assert quota(tmp_path, "0::/a/b\n", files) is limited


@pytest.mark.parametrize(("limit", "limited"), [("-1", False), ("200000", True)])
@pytest.mark.parametrize("controllers", ["cpu", "cpu,cpuacct"])
def test_quota_of_cgroups_v1_is_found_at_the_mount_of_its_controller(
    tmp_path: Path, controllers: str, limit: str, limited: bool
) -> None:
    membership = f"9:name=systemd:/\n3:cpuset:/a\n1:{controllers}:/a\n0::/\n"
    files = {"cpuset/a/cpus": "0", f"{controllers}/a/cpu.cfs_quota_us": f"{limit}\n"}
    assert quota(tmp_path, membership, files) is limited


def test_quota_is_found_in_a_container_that_sees_the_hosts_group_path(
    tmp_path: Path,
) -> None:
    files = {"cpu/cpu.cfs_quota_us": "150000\n"}
    assert quota(tmp_path, "1:cpu:/docker/4f2a\n", files)


def test_quotas_of_sibling_groups_and_above_the_mount_are_ignored(
    tmp_path: Path,
) -> None:
    (tmp_path / "cpu.max").write_text("1000 100000\n")
    files = {"a/cpu.max": "max 100000\n", "b/cpu.max": "1000 100000\n"}
    assert not quota(tmp_path, "0::/a\n", files)
