"""What all tests share: property tests that try the same examples every time, and one thread a process."""

import torch
from hypothesis import settings

settings.register_profile("steady", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("steady")

# Where cores are shared, threads that wait for each other make small networks fifty times slower.
torch.set_num_threads(1)
