"""One script per promise: each runs the peer on the same work in the same run, and prints one JSON line last."""
