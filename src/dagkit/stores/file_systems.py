"""What kind of file system a path is on, where the system says so (Linux)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["NETWORK", "file_system_of"]

#: File systems that other machines may write to, or that do not lock as a local disk does.
NETWORK: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "9p", "virtiofs", "vboxsf", "drvfs", "davfs"}
    | {"lustre", "fefs", "gpfs", "beegfs", "beegfs_nodev", "panfs", "pvfs2", "orangefs", "wekafs", "ceph", "glusterfs"}
    | {f"fuse.{kind}" for kind in ("ceph", "glusterfs", "sshfs", "s3fs", "blobfuse2", "davfs", "rclone")}
)


def file_system_of(path: Path, mounts: str | None = None) -> str | None:
    """Type of the file system that holds `path` (`ext4`, `nfs4`), or None if it cannot be told.

    Args:
        mounts: Text in the form of /proc/mounts (man 5 fstab); read from there if it is not given.
    """
    if mounts is None:
        try:
            mounts = Path("/proc/mounts").read_text(errors="replace")
        except OSError:
            return None
    place, best, kind = path.resolve(), -1, None
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = Path(_plain(fields[1]))
        depth = len(point.parts)
        if depth >= best and (place == point or point in place.parents):
            best, kind = depth, fields[2]
    return kind


def _plain(field: str) -> str:
    """Mount points carry space, tab, newline and backslash as octal escapes."""
    for escape, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(escape, char)
    return field
