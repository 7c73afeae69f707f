"""Where the state of runs lives: memory, SQLite, Azure. The port is in `dagkit.stores.base`."""
