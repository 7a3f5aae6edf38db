"""Makes the tiny models of the rotary tests importable, and keeps the suite on one thread."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "rope"))
sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)
