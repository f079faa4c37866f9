"""What happens, to those who listen: wakeups, events and text while it is being written."""
