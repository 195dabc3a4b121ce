from virtual_time import in_virtual_time, make_clock  # noqa: F401  # fixtures
