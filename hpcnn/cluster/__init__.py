"""The world outside: launchers, allocations, and whether what was started is what was asked for."""
