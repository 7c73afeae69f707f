"""What makes the tasks of a queue run: local processes, queue workers. The port is in `dagkit.executors.base`."""
