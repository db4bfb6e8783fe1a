"""The sample plant of `demo` and `loop`: real solar cells, people, devices, and turns of the loop."""
