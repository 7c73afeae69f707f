"""`python -m dagkit.cli`, for where the program is not on the PATH."""

from __future__ import annotations

from dagkit.cli import main

main()
