"""Engines that paint nothing: clocks with failures to order, for load and fault tests. Everything says so: `sim`."""
