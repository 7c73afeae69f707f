"""Bulk jobs: thousands of independent commands, kept in a queue as full as it may be, each followed by its own key.

```python
from dagkit.bulk import BulkJob, CommandProfile, HpcProfile, run_bulk

jobs = [BulkJob(f"size-{n}", work_dir=f"out/{n}", command_args={"size": n}) for n in range(2000)]
result = run_bulk(jobs, CommandProfile(["./simulate"]), registry="campaign.db", hpc=HpcProfile("pjm", queue="small"))
```
"""

from __future__ import annotations

from dagkit.bulk.campaign import BulkResult, run_bulk
from dagkit.bulk.jobs import BulkJob, BulkStatus, CommandProfile, ExecutionProfile, HpcProfile
from dagkit.bulk.runner import BulkRunner, Tick

__all__ = [
    "BulkJob",
    "BulkResult",
    "BulkRunner",
    "BulkStatus",
    "CommandProfile",
    "ExecutionProfile",
    "HpcProfile",
    "Tick",
    "run_bulk",
]
