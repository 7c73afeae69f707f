"""Queues that carry task messages and completions: memory, SQLite, Azure. The port is in `dagkit.queues.base`."""
