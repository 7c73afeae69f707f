from __future__ import annotations

from pathlib import Path

import pytest

from dagkit.stores.file_systems import NETWORK, file_system_of

MOUNTS = r"""
/dev/sda1 / ext4 rw,relatime 0 0
server:/home /home nfs4 rw,vers=4.2 0 0
tmpfs /home/local tmpfs rw 0 0
mds@tcp:/fs /my\040data lustre rw 0 0
overlay /over ext4 rw 0 0
server:/over /over nfs rw 0 0
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/srv/x", "ext4"),
        ("/home/ann/.dagkit", "nfs4"),
        ("/home", "nfs4"),
        ("/homes/ann", "ext4"),  # a common beginning of the name is not the same directory
        ("/home/local/ann", "tmpfs"),
        ("/my data/run", "lustre"),
        ("/over/x", "nfs"),  # the later mount hides the earlier one
    ],
)
def test_the_deepest_mount_point_decides(path, kind):
    assert file_system_of(Path(path), MOUNTS) == kind


def test_without_a_list_of_mounts_it_is_not_known():
    assert file_system_of(Path("/srv/x"), "") is None


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "fuse.sshfs", "gpfs", "fefs"])
def test_shared_file_systems_are_known_as_such(kind):
    assert kind in NETWORK


def test_the_real_list_can_be_read(tmp_path):
    kind = file_system_of(tmp_path)

    assert kind is None or kind.strip() == kind != ""
