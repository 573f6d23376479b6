"""Scripts that measure speed, cost, scale and agreement with other libraries, and write pages about it."""
