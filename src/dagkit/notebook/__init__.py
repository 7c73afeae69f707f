"""What a notebook shows: drawings of workflows and, later, the live view."""
