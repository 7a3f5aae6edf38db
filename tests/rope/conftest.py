"""Makes the helper modules beside the tests importable, and keeps the suite on one thread."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)
